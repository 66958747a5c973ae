package ferrule

import (
	"strings"
	"time"
)

// Token is a token that lets an agent in over HTTP, without its secret.
type Token struct {
	Name string `json:"name"`
	// ID tells the token from others of the same name, see [Principal.TokenID].
	ID string `json:"-"`
	// Scopes is what it permits at most, and Devices are patterns of the devices that it is
	// good for; empty for all.
	Scopes  []string  `json:"scopes"`
	Devices []string  `json:"devices"`
	Created time.Time `json:"created"`
	// Expires is when it ends; zero for never. Expired reports whether it has.
	Expires time.Time `json:"expires,omitzero"`
	Expired bool      `json:"expired,omitempty"`
	// Overlap is until when the secret before the last one is still accepted.
	Overlap time.Time `json:"overlap,omitzero"`
	// Used is when it was last used, and From the address that it came from.
	Used time.Time `json:"used,omitzero"`
	From string    `json:"from,omitempty"`
	// Config reports whether it is one of auth.tokens in the configuration file.
	Config bool `json:"config,omitempty"`
	// Login says more about a login that a person gave to an agent at the gateway's own
	// authorization server; nil for other tokens. It expires unless it is used before.
	Login *TokenLogin `json:"login,omitempty"`
}

// ConfigTokenPrefix begins the IDs of tokens of the configuration.
const ConfigTokenPrefix = "config-"

// HasConfigToken reports whether the caller has a token of the configuration. Each node gives
// such a token its own ID, so what belongs to it on all nodes belongs to its name.
func (p Principal) HasConfigToken() bool { return strings.HasPrefix(p.TokenID, ConfigTokenPrefix) }

// TokenLogin is the login that an agent has its tokens from.
type TokenLogin struct {
	Person string `json:"person"` // who permitted it
	// Client is the ID of the agent's program; a URL if the program has a document there.
	Client string `json:"client"`
	Agent  string `json:"agent"` // how the agent is named in the journal
	Node   string `json:"node"`  // where it was given
}
