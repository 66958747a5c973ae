package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/oauth"
)

// OAuthConfig returns the config of the gateway's own authorization server, with secrets
// read from files.
func (c Config) OAuthConfig() (oauth.Config, error) {
	server := c.Auth.Server
	out := oauth.Config{Register: server.Register, Documents: server.Documents}
	for i, one := range server.Clients {
		secret, err := readSecret(one.Secret, one.SecretFile)
		if err != nil {
			return out, fmt.Errorf("auth.server.clients[%d].secret_file: %w", i, err)
		}
		out.Clients = append(out.Clients, oauth.Client{ID: one.ID, Secret: secret, Redirects: one.Redirects})
	}
	if err := out.Check(); err != nil {
		return out, fmt.Errorf("auth.server.%w", err)
	}
	return out, nil
}

// checkAuthServer returns what is wrong with the gateway's own authorization server.
func (c Config) checkAuthServer() error {
	if !c.Auth.Server.Enabled {
		return nil
	}
	for i, one := range c.Auth.Server.Clients {
		if (one.Secret == "") == (one.SecretFile == "") {
			return fmt.Errorf("auth.server.clients[%d]: must have either secret or secret_file", i)
		}
	}
	if c.Listen == "" {
		return errors.New("auth.server: agents and browsers cannot reach it, because listen is empty; set listen, for example to 127.0.0.1:3377")
	}
	if c.Auth.URL == "" {
		if host, _, err := net.SplitHostPort(c.Listen); c.TLS.Cert == "" && (err != nil || !isLoopback(host)) {
			return errors.New("auth.server: everybody on the network could read the tokens, so agents log in only over https, or on this machine; set tls, or auth.url to the https:// address of your proxy, or listen to an address of this machine such as 127.0.0.1:3377")
		}
		return nil
	}
	u, err := url.Parse(c.Auth.URL)
	if err != nil || u.Host == "" || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("auth.url: must be a URL without a path, such as https://ferrule.example.com, got %q", ferrule.MaskURL(c.Auth.URL))
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return fmt.Errorf("auth.url: everybody on the way to %s could read the tokens, so agents log in only over https, or on this machine; use https://, or http://localhost:PORT", ferrule.MaskURL(c.Auth.URL))
	}
	return nil
}

// checkServerCard returns an error if there is no address to announce.
func (c Config) checkServerCard() error {
	if !c.Agents.ServerCard {
		return nil
	}
	if c.Listen == "" {
		return errors.New("nobody can fetch it, because listen is empty; set listen, or set it to false")
	}
	u, err := url.Parse(c.Auth.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("needs auth.url, which it announces: it must be an https:// URL without a path, such as https://ferrule.example.com, got %q", ferrule.MaskURL(c.Auth.URL))
	}
	return nil
}

// OnNetwork reports whether other machines can reach an address to listen on.
func OnNetwork(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err == nil && !isLoopback(host)
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
