package ferrule

import "time"

// Grant is what a person permitted an agent that logged in at the gateway's own
// authorization server.
type Grant struct {
	ID string `json:"id"`
	// Node is where it was given.
	Node  string `json:"node"`
	Agent string `json:"agent"` // how the agent is named in the journal
	// Client is the ID of the agent's program; a URL if the program has a document there.
	Client string `json:"client"`
	Person string `json:"person"`
	// Scopes is what it permits at most, and Devices are the devices that it is good for;
	// empty for all.
	Scopes  []string  `json:"scopes"`
	Devices []string  `json:"devices"`
	Created time.Time `json:"created"`
	// Expires is when it ends, unless it is used before.
	Expires time.Time `json:"expires"`
	// Used is when it was last used, and From the address that it came from, as far as the
	// node that was asked knows.
	Used time.Time `json:"used,omitzero"`
	From string    `json:"from,omitempty"`
}
