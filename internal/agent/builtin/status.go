package builtin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// StatusInput has the arguments of status.
type StatusInput struct{}

// StatusOutput is the result of status.
type StatusOutput struct {
	Version string `json:"version"`
	Summary string `json:"summary" jsonschema:"devices in one sentence, and what to do if there are none"`
	Listen  string `json:"listen,omitempty" jsonschema:"address of the HTTP server"`
	// Numbers of devices.
	Online   int `json:"online"`
	Offline  int `json:"offline"`
	Released int `json:"released" jsonschema:"ports released to other programs"`
	Pending  int `json:"pending" jsonschema:"waiting for a person to adopt them"`
	Kinds    int `json:"kinds" jsonschema:"kinds of online devices"`
	// List is how tools/list shows device tools.
	List  string `json:"list" jsonschema:"plain: every tool of every device; folded: one tool per kind with a device argument; search: use find_tools"`
	Calls Calls  `json:"calls"`
	// Nodes is nil if there is only this gateway, and it works.
	Nodes *Nodes `json:"nodes,omitempty" jsonschema:"other gateways that share devices"`
	// Endpoints lists endpoints that are not connected, with the reason.
	Endpoints []string `json:"endpoints,omitempty"`
	// Brokers says what is wrong with MQTT brokers.
	Brokers []string `json:"brokers,omitempty"`
	// Homes says what is wrong with Home Assistants.
	Homes []string `json:"homes,omitempty"`
	// Hooks says which hooks fail. Agents do not see it.
	Hooks []string `json:"hooks,omitempty"`
	// Stopped says what is stopped, by whom and why; empty if nothing is.
	Stopped string `json:"stopped,omitempty"`
	// NotRecording is why measured values are not stored; empty if they are.
	NotRecording string `json:"not_recording,omitempty"`
}

// Nodes is the state of this gateway in its cluster. It has no descriptions because each
// would be part of every tools/list.
type Nodes struct {
	Node    string    `json:"node"`
	Tenant  string    `json:"tenant"`
	Others  []string  `json:"others,omitempty"` // that are alive
	Working bool      `json:"working"`
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason,omitempty"`
	// Waiting is the number of devices not yet published to the other nodes.
	Waiting int `json:"waiting,omitempty"`
}

// Calls has counters since the gateway started.
type Calls struct {
	CacheHits   uint64 `json:"cache_hits" jsonschema:"answered from the cache"`
	CacheMisses uint64 `json:"cache_misses"`
	CacheSize   int    `json:"cache_size" jsonschema:"cached results"`
	Limited     uint64 `json:"limited" jsonschema:"refused by the rate limit"`
}

// Status returns the tool status. Look returns all but version and summary, as a caller may
// know it.
func Status(version string, look func(who ferrule.Principal) StatusOutput) Tool {
	const text = "Returns the state of the gateway: numbers of devices, and what to do if there are none."
	return Typed("status", text, ferrule.Reads, func(_ context.Context, call *ferrule.Call, _ StatusInput) (StatusOutput, error) {
		out := look(call.Principal)
		out.Version = version
		out.Summary = strings.TrimSpace(out.Stopped + " " + out.summary())
		for _, problem := range slices.Concat(out.Brokers, out.Homes) {
			out.Summary += " A problem: " + problem + "."
		}
		return out, nil
	}).Undescribed()
}

func (s StatusOutput) summary() string {
	const docs = "run `ferrule up --serial auto` for a board on USB, `ferrule up --tcp HOST:PORT` for one on the network, or `ferrule sim mcpu` without a board"
	switch {
	case s.Online > 0 && s.Pending > 0:
		return fmt.Sprintf("%s online. %s pending: a person can check with `ferrule devices` and run `ferrule adopt`.", devices(s.Online), devices(s.Pending))
	case s.Online > 0:
		return devices(s.Online) + " online."
	case s.Pending > 0:
		return fmt.Sprintf("No device can be used. %s pending: a person can check with `ferrule devices` and run `ferrule adopt`.", devices(s.Pending))
	case s.Released > 0:
		return fmt.Sprintf("No device can be used now. %s released to other programs; Ferrule reconnects by itself.", devices(s.Released))
	case s.Offline > 0:
		return fmt.Sprintf("No device is online. %s offline: check cable and power. find_devices returns the reasons.", devices(s.Offline))
	}
	return "No devices. A person has to connect one: " + docs + "."
}

func devices(n int) string {
	if n == 1 {
		return "1 device is"
	}
	return fmt.Sprintf("%d devices are", n)
}
