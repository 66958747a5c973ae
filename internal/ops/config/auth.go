package config

import (
	"fmt"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/issuer"
)

// Auth configures who may call over HTTP.
type Auth struct {
	Tokens []Token `yaml:"tokens"`
	// URL is how callers reach the gateway, without a path; empty if each one's own address
	// will do.
	URL string `yaml:"url"`
	// Server configures the gateway's own authorization server.
	Server AuthServer `yaml:"server"`
	// Issuers are external ones, whose tokens are accepted.
	Issuers []Issuer `yaml:"issuers"`
}

// Token identifies an agent.
type Token struct {
	Name string `yaml:"name"`
	// Token is the secret; File names a file with it.
	Token ferrule.Secret `yaml:"token"`
	File  string         `yaml:"file"`
	// Scopes and Devices limit it; empty for all but admin, and for all devices.
	Scopes  []string `yaml:"scopes"`
	Devices []string `yaml:"devices"`
}

// limits returns what the token permits at most.
func (t Token) limits() (scopes ferrule.Scopes, devices string, err error) {
	scopes = ferrule.LimitTo(ferrule.ScopeEndanger | ferrule.ScopeMetrics)
	if t.Scopes != nil {
		if scopes, err = ferrule.ParseScopes(t.Scopes); err != nil {
			return 0, "", fmt.Errorf("scopes: %w", err)
		}
	}
	if devices, err = ferrule.CheckDevicePatterns(t.Devices); err != nil {
		return 0, "", fmt.Errorf("devices: %w", err)
	}
	return scopes, devices, nil
}

// AuthServer configures the gateway's own authorization server.
type AuthServer struct {
	Enabled bool `yaml:"enabled"`
	// Register reports whether programs may register themselves.
	Register bool `yaml:"register"`
	// Documents reports whether programs may be known by a document on the web, which the
	// gateway fetches.
	Documents bool         `yaml:"documents"`
	Clients   []AuthClient `yaml:"clients"`
}

// AuthClient is a program that the owner registered.
type AuthClient struct {
	ID string `yaml:"id"`
	// Secret is the program's; SecretFile names a file with it.
	Secret     ferrule.Secret `yaml:"secret"`
	SecretFile string         `yaml:"secret_file"`
	Redirects  []string       `yaml:"redirects"`
}

// Issuer is an external issuer of tokens, such as a company's login.
type Issuer struct {
	// Name is how its callers are named in the journal: agent:NAME:SUBJECT.
	Name string `yaml:"name"`
	URL  string `yaml:"url"`
	// Audience is what its tokens may be for, in addition to the URL of this gateway.
	Audience string `yaml:"audience"`
	CA       string `yaml:"ca"`
	// GroupsClaim is the claim that has the groups of a caller, and Groups what they are
	// called here.
	GroupsClaim string            `yaml:"groups_claim"`
	Groups      map[string]string `yaml:"groups"`
	// ClientID lets people log in through the issuer.
	ClientID         string         `yaml:"client_id"`
	ClientSecret     ferrule.Secret `yaml:"client_secret"`
	ClientSecretFile string         `yaml:"client_secret_file"`
}

// IssuerConfigs returns the configs of external issuers, with secrets read from files.
func (c Config) IssuerConfigs() (all []issuer.Config, err error) {
	for i, entry := range c.Auth.Issuers {
		out := entry.config()
		if out.ClientSecret, err = readSecret(entry.ClientSecret, entry.ClientSecretFile); err != nil {
			return nil, fmt.Errorf("auth.issuers[%d].client_secret_file: %w", i, err)
		}
		all = append(all, out)
	}
	return all, nil
}

func (i Issuer) config() issuer.Config {
	return issuer.Config{
		Name: i.Name, URL: i.URL, Audience: i.Audience, CA: i.CA, GroupsClaim: i.GroupsClaim, Groups: i.Groups, ClientID: i.ClientID, ClientSecret: i.ClientSecret,
	}
}

// checkIssuers checks the external issuers, except for what is in files.
func (c Config) checkIssuers() error {
	names, urls := make(map[string]bool), make(map[string]bool)
	for i, entry := range c.Auth.Issuers {
		if err := entry.config().Check(); err != nil {
			return fmt.Errorf("auth.issuers[%d].%w", i, err)
		}
		switch {
		case names[entry.Name]:
			return fmt.Errorf("auth.issuers[%d].name: %s is the name of another issuer", i, entry.Name)
		case urls[entry.URL]:
			return fmt.Errorf("auth.issuers[%d].url: another issuer has this URL", i)
		case entry.ClientSecret != "" && entry.ClientSecretFile != "":
			return fmt.Errorf("auth.issuers[%d]: must have client_secret or client_secret_file, not both", i)
		case entry.ClientSecretFile != "" && entry.ClientID == "":
			return fmt.Errorf("auth.issuers[%d].client_secret_file: needs client_id", i)
		}
		names[entry.Name], urls[entry.URL] = true, true
	}
	return nil
}
