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
	Intent  Phase = "intent"
	Outcome Phase = "outcome"
	Gap     Phase = "gap"
)
