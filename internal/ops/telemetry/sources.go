package telemetry

import (
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Sources are asked when metrics are fetched. What is nil is not told of.
type Sources struct {
	// Devices calls fn with every device of this node.
	Devices func(fn func(dev *ferrule.Device))
	Lanes   func() Lanes
	Cache   func() Cache
	// Sessions is how many agents are connected.
	Sessions func() int
	Bus      func() Cluster
	Journal  func() Journal
	Sense    func() Poller
	History  func() History
}

// Lanes is what the ways into devices are like now.
type Lanes struct {
	Busy    int // devices that are at a call
	Waiting int // calls that wait for one
}

// Cache is what the road counts.
type Cache struct {
	Hits, Misses   uint64
	Entries, Bytes int
	// Limited counts the calls of those who called too much.
	Limited uint64
}

// Bus is how this node stands to others.
type Cluster struct {
	Mode, Tenant string
	Working      bool
	Nodes        int    // others that live
	Records      int    // of own devices that have yet to be written
	Spooled      int    // events that wait to be kept
	Lost         uint64 // events that there was no room for
	Sending      int    // calls to other nodes that are under way
	Serving      int    // calls of other nodes that are
}

// Journal is what the journal counts.
type Journal struct {
	Records, Failures uint64
	Bytes             int64
	Healthy           bool
}

// Sense is what is counted about readings that the gateway takes by itself.
type Poller struct {
	Devices    int // that are asked
	Probes     int // with which they are asked in turn
	BackingOff int // of them, for devices that struggle
	Waiting    int // of them, that are due
	Reads      uint64
	Failures   uint64
	Samples    uint64
	Dropped    uint64 // readings that there was no room for
	// Late is how much later than planned reads were: how many were no later than each
	// bound, and later than the one before it; the last, how many were later than all.
	LateBounds []time.Duration
	LateCounts []uint64
	LateSum    time.Duration
}

// History is how what was measured is kept.
type History struct {
	Signals   int
	Samples   uint64 // that were written
	Refused   uint64 // of more signals than are kept
	Behind    uint64 // readings that wait to be written
	Bytes     int64
	Recording bool
}
