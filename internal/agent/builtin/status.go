package builtin

import (
	"context"
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// StatusInput is the arguments of status.
type StatusInput struct{}

// StatusOutput is the result of status.
type StatusOutput struct {
	Version string `json:"version"`
	Summary string `json:"summary" jsonschema:"what is there, and what to do if there is nothing"`
	Listen  string `json:"listen,omitempty" jsonschema:"where HTTP is served"`
	// What follows counts devices.
	Online   int `json:"online"`
	Offline  int `json:"offline"`
	Released int `json:"released" jsonschema:"lent to other programs for a while"`
	Pending  int `json:"pending" jsonschema:"found, and waiting for a person to adopt them"`
	Kinds    int `json:"kinds" jsonschema:"of how many kinds those are that are online"`
	// List is how the list shows their tools.
	List  string `json:"list" jsonschema:"plain: each tool of each device; folded: tools of a kind take a device; search: tools are found by find_tools"`
	Calls Calls  `json:"calls"`
	// Nodes is left out where this gateway is the only one, and all is well with it.
	Nodes *Nodes `json:"nodes,omitempty" jsonschema:"other gateways, whose devices are shared"`
	// Endpoints are those that are not connected, and why.
	Endpoints []string `json:"endpoints,omitempty"`
	// Unrecorded tells why what devices measure is not recorded.
	Unrecorded string `json:"unrecorded,omitempty"`
}

// Nodes is how this gateway stands to others: whether it hears of them and they of it,
// since when, and why not. Every word about it would be in each list of tools.
type Nodes struct {
	Node    string    `json:"node"`
	Tenant  string    `json:"tenant"`
	Others  []string  `json:"others,omitempty"` // those that are there
	Working bool      `json:"working"`
	Since   time.Time `json:"since"`
	Why     string    `json:"why,omitempty"`
	// Waiting is how many of this gateway's devices are yet to be told to the others.
	Waiting int `json:"waiting,omitempty"`
}

// Calls is what became of calls since the gateway began.
type Calls struct {
	CacheHits   uint64 `json:"cache_hits" jsonschema:"answered from what was asked before"`
	CacheMisses uint64 `json:"cache_misses"`
	CacheSize   int    `json:"cache_size" jsonschema:"answers that are kept"`
	Limited     uint64 `json:"limited" jsonschema:"refused, because their caller made too many"`
}

// Status is the tool that tells how the gateway is. Look fills in what it counts.
func Status(version string, look func() StatusOutput) Tool {
	const text = "Tell how the gateway is: which devices are there, and what to do when there is none."
	return Typed("status", text, ferrule.Reads, func(context.Context, *ferrule.Call, StatusInput) (StatusOutput, error) {
		out := look()
		out.Version = version
		out.Summary = out.summary()
		return out, nil
	})
}

// summary says what is there, and what to do next.
func (s StatusOutput) summary() string {
	const docs = "a board on USB is found by `ferrule up --serial auto`, one on the network by `ferrule up --tcp HOST:PORT`; `ferrule sim mcpu` needs no board"
	switch {
	case s.Online > 0 && s.Pending > 0:
		return fmt.Sprintf("%s online. %s found and not trusted yet: a person can look with `ferrule devices` and run `ferrule adopt`.", devices(s.Online), devices(s.Pending))
	case s.Online > 0:
		return devices(s.Online) + " online."
	case s.Pending > 0:
		return fmt.Sprintf("No device can be used. %s found and not trusted yet: a person can look with `ferrule devices` and run `ferrule adopt`.", devices(s.Pending))
	case s.Released > 0:
		return fmt.Sprintf("No device can be used now. %s lent to other programs, and taken back by itself.", devices(s.Released))
	case s.Offline > 0:
		return fmt.Sprintf("No device can be reached. %s known and offline: is it plugged in, and on? find_devices tells why.", devices(s.Offline))
	}
	return "No device is there. A person has to connect one: " + docs + "."
}

// devices says how many devices are.
func devices(n int) string {
	if n == 1 {
		return "1 device is"
	}
	return fmt.Sprintf("%d devices are", n)
}
