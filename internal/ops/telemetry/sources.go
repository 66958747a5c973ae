package telemetry

import (
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/histogram"
)

// Sources return the counters of other parts of the gateway. They are called on each
// scrape; those that are nil are skipped.
type Sources struct {
	// Devices calls fn with every device of this node.
	Devices func(fn func(dev *ferrule.Device))
	Lanes   func() Lanes
	Cache   func() Cache
	// Sessions returns the number of connected agents.
	Sessions func() int
	// Tasks returns the number of tasks of all nodes by status.
	Tasks   func() map[ferrule.TaskStatus]int
	Stop    func() Stop
	Cluster func() Cluster
	Journal func() Journal
	Poller  func() Poller
	History func() History
}

// Lanes describes the queues of devices.
type Lanes struct {
	Busy    int // devices serving a call
	Waiting int // calls waiting for a device
}

// Cache has the counters of the pipeline.
type Cache struct {
	Hits, Misses   uint64
	Entries, Bytes int
	Limited        uint64 // calls refused by the rate limit
}

// Cluster has the counters of this node's part in the cluster.
type Cluster struct {
	Mode, Tenant string
	Working      bool
	Nodes        int    // other nodes that are alive
	Records      int    // device records that have yet to be written
	Spooled      int    // events waiting to be stored
	Lost         uint64 // events dropped because the queue was full
	Sending      int    // calls to other nodes in progress
	Serving      int    // calls from other nodes in progress
}

// Journal has the counters of the journal.
type Journal struct {
	Records, Failures uint64
	Bytes             int64
	Healthy           bool
}

// Poller has the counters of the poller.
type Poller struct {
	Devices    int // that are polled
	Polls      int // that are active
	BackingOff int // polls that run less often because they failed
	Waiting    int // polls that are due
	Reads      uint64
	Failures   uint64
	Samples    uint64
	Dropped    uint64             // readings dropped because the queue was full
	Late       histogram.Snapshot // how late polls started
}

// History has the counters of the history.
type History struct {
	Signals   int
	Samples   uint64 // written
	Refused   uint64 // of signals beyond the limit
	Behind    uint64 // readings waiting to be written
	Bytes     int64
	Recording bool
}

// Stop is what is stopped.
type Stop struct {
	Everything bool
	Devices    int // stopped one by one
}
