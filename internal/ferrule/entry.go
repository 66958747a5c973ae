package ferrule

import (
	"encoding/json"
	"time"
)

// Entry is one record of the journal.
type Entry struct {
	// Seq counts from 1 on each node. The journal sets it.
	Seq       uint64          `json:"seq"`
	Time      time.Time       `json:"time"`
	Call      string          `json:"call"`
	Phase     Phase           `json:"phase"`
	Principal Principal       `json:"principal"`
	Device    string          `json:"device"`
	Operation Operation       `json:"operation,omitempty"`
	Tool      string          `json:"tool"`
	Args      json.RawMessage `json:"args,omitempty"`
	// What follows is of an outcome only.
	Code       Code     `json:"code,omitempty"` // empty: it succeeded
	Message    string   `json:"message,omitempty"`
	MayHaveRun bool     `json:"may_have_run,omitempty"`
	Took       Duration `json:"took,omitempty"`
}

// Phase tells which moment of a call an Entry records.
type Phase string

// The phases. Intent is written before the device is touched, for whatever may
// change the world; Outcome is written for every call; Gap tells in its message
// that records are missing, because the disk did not take them.
const (
	Intent     Phase = "intent"
	Outcome    Phase = "outcome"
	JournalGap Phase = "gap"
)

// JournalLines is records of one chain that follow each other, as the lines that
// stand in its file: each with its hash and its end. A chain is a journal from its
// first record on; it is known by the first 16 digits of the hash of that.
type JournalLines struct {
	// Node is the node whose journal it is; empty where that is not known.
	Node  string `json:"node,omitempty"`
	Chain string `json:"chain"`
	// First and Last are the numbers of the records.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	Lines []byte `json:"lines"`
}

// MaxJournalLines is how many bytes of lines are handed on together, at most.
const MaxJournalLines = 1 << 20

// JournalQuery tells what is wanted of the journals of all nodes.
type JournalQuery struct {
	// Node is the one that is meant; all are if it is empty.
	Node string
	// Since leaves out what was copied before, unless it is zero.
	Since time.Time
	// Follow tells to go on with what comes.
	Follow bool
}
