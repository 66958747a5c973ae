// Package audit reads, filters, orders and verifies journals.
//
//	journal file, or the journals of all nodes through the gateway
//	    -> one record per call -> Filter -> order by time -> Show
//
// A call belongs where it began, also if it has no outcome because the gateway crashed. Only
// while new records are followed it is shown when it ends.
//
// If the gateway is part of a cluster and runs, Read and Verify use the copies of all
// nodes' journals, and the records of this node that were not copied yet. Otherwise they
// use the journal file of the data directory and need no gateway.
package audit

import (
	"cmp"
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
)

// Parts is what an audit is built from.
type Parts struct {
	Data string // data directory
	// Nodes reads the journals of all nodes: a *control.Client. A local audit needs none.
	Nodes Nodes
	// Show is called with each record, in order. Nodes says that there may be several.
	Show func(r Record, nodes bool) error
	// Flush is called when all records so far were shown.
	Flush func() error
	// Warn tells the user something besides the records.
	Warn func(text string)
}

// Nodes reads the journals of all nodes. The error is control.ErrSingleNode if the gateway is
// not part of a cluster, and control.ErrNoGateway if none is running.
type Nodes interface {
	Journal(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error
}

// Record is a record of a journal, with its node and chain. If records are joined, it is a
// call: its outcome, or its intent if it has no outcome.
type Record struct {
	Node  string `json:"node,omitempty"`
	Chain string `json:"chain,omitempty"`
	ferrule.Entry
	// Began is when the call was made.
	Began time.Time `json:"-"`
	// Hash is the hash of the record's line, if it was read by a CallLog.
	Hash string `json:"-"`
	// changes reports whether the call had an intent.
	changes bool
	// listed reports whether the call was returned without an outcome before.
	listed bool
	own    bool  // of this node's journal
	at     place // in the listing
}

// isLook reports whether the record is of a call that looked at something and succeeded. A
// call that may change something has an intent.
func (r *Record) isLook() bool {
	return r.Phase == ferrule.Outcome && r.Code == "" && !r.changes
}

// Outcome returns the outcome of a record in a few words.
func (r *Record) Outcome() string {
	outcome := cmp.Or(string(r.Code), "ok")
	switch r.Phase {
	case ferrule.Outcome:
	case ferrule.Intent:
		outcome = "no outcome"
	default:
		outcome = string(r.Phase)
	}
	if r.MayHaveRun {
		outcome += " (may have run)"
	}
	return outcome
}

// origin identifies a chain on a node: a data directory that was copied to another
// machine has the same chain.
type origin struct{ node, chain string }

// warnLocal warns that only the journal of this node is read, if there are others.
func (p Parts) warnLocal() {
	if datadir.Node(p.Data) != "" {
		p.Warn("only this node's journal: the gateway is not running")
	}
}
