package mqttclient

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Config is how to reach a broker.
type Config struct {
	// URL is mqtt://HOST[:1883] or mqtts://HOST[:8883].
	URL string
	// User and Password are the credential; empty for none. PasswordFile names a file with
	// the password, which is read at each connect.
	User         string
	Password     ferrule.Secret
	PasswordFile string
	// CA is a file with CA certificates; empty for those of the system. Cert and Key are
	// files with the certificate of this client; empty for none.
	CA, Cert, Key string
	// ClientID is the name of this client at the broker; a random one if it is empty.
	ClientID string
	// Will is published by the broker when the connection breaks or Run ends; nil for none.
	Will *Publication
	// Properties are user properties of CONNECT.
	Properties []Property
	// RetryMin and RetryMax limit the wait before a reconnect.
	RetryMin, RetryMax time.Duration
}

// DefaultConfig has everything but the URL.
func DefaultConfig() Config {
	return Config{RetryMin: 250 * time.Millisecond, RetryMax: 30 * time.Second}
}

// Check returns the first problem of the config.
func (c Config) Check() error {
	if _, _, err := c.endpoint(); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	for _, s := range []struct{ key, value string }{{"user", c.User}, {"password", c.Password.Reveal()}, {"client_id", c.ClientID}} {
		if len(s.value) > maxTopic || !validText(s.value) {
			return fmt.Errorf("%s: must be valid text of at most %d bytes", s.key, maxTopic)
		}
	}
	switch {
	case c.Password != "" && c.PasswordFile != "":
		return errors.New("password: must not be set together with password_file")
	case c.User == "" && (c.Password != "" || c.PasswordFile != ""):
		return errors.New("user: must be set if there is a password")
	case c.Cert != "" && c.Key == "":
		return errors.New("key: must be set if cert is set")
	case c.Cert == "" && c.Key != "":
		return errors.New("cert: must be set if key is set")
	case c.RetryMin <= 0:
		return errors.New("retry_min: must be greater than 0")
	case c.RetryMax < c.RetryMin:
		return errors.New("retry_max: must not be less than retry_min")
	}
	if secure, _, _ := c.endpoint(); !secure && (c.CA != "" || c.Cert != "") {
		return errors.New("url: must start with mqtts:// if ca or cert is set")
	}
	if c.Will != nil {
		if err := checkPublication(c.Will); err != nil {
			return fmt.Errorf("will: %w", err)
		}
		if len(c.Will.Payload) > maxTopic {
			return fmt.Errorf("will: limit is %d bytes", maxTopic)
		}
	}
	return nil
}

// endpoint returns host and port of the broker, and whether to use TLS.
func (c Config) endpoint() (secure bool, address string, err error) {
	u, err := url.Parse(c.URL)
	switch {
	case err == nil && u.User != nil:
		return false, "", errors.New("must not contain a user or a password: set user and password_file")
	case err != nil, u.Scheme != "mqtt" && u.Scheme != "mqtts", u.Hostname() == "",
		u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return false, "", fmt.Errorf("must be mqtt://HOST[:PORT] or mqtts://HOST[:PORT], got %q", ferrule.MaskURL(c.URL))
	}
	secure = u.Scheme == "mqtts"
	port := u.Port()
	if port == "" {
		if port = "1883"; secure {
			port = "8883"
		}
	}
	return secure, net.JoinHostPort(u.Hostname(), port), nil
}

// password returns the password. The file is read each time: it may have changed.
func (c Config) password() (string, error) {
	if c.PasswordFile == "" {
		return c.Password.Reveal(), nil
	}
	text, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("password_file: %w", err)
	}
	text = bytes.TrimRight(text, "\r\n")
	if len(text) > maxTopic {
		return "", fmt.Errorf("password_file: limit is %d bytes", maxTopic)
	}
	return string(text), nil
}

// tls returns the settings for TLS. The files are read each time.
func (c Config) tls(host string) (*tls.Config, error) {
	out := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca: %s has no certificate in PEM format", c.CA)
		}
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("cert, key: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}
