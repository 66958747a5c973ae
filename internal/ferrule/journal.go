package ferrule

import (
	"encoding/json"
	"strings"
	"time"
)

// Entry is a record of the journal.
type Entry struct {
	// Seq counts from 1 on each node. The journal sets it.
	Seq       uint64    `json:"seq"`
	Time      time.Time `json:"time"`
	Call      string    `json:"call"`
	Phase     Phase     `json:"phase"`
	Principal Principal `json:"principal"`
	// Via is the node that vouched for the principal; empty if it called here.
	Via string `json:"via,omitempty"`
	// From is the network address that an Access came from; empty if it is not known.
	From      string          `json:"from,omitempty"`
	Client    Client          `json:"client,omitzero"`
	Device    string          `json:"device"`
	Kind      Kind            `json:"kind,omitempty"` // of the device; empty if it was not found
	Operation Operation       `json:"operation,omitempty"`
	Tool      string          `json:"tool"`
	Args      json.RawMessage `json:"args,omitempty"`
	Verdict   Ruling          `json:"verdict,omitempty"` // of the policy; empty if it was not asked
	Rule      string          `json:"rule,omitempty"`    // that decided; empty if none did
	// The following fields belong to an Outcome.
	Code       Code     `json:"code,omitempty"` // empty on success
	Message    string   `json:"message,omitempty"`
	MayHaveRun bool     `json:"may_have_run,omitempty"`
	Took       Duration `json:"took,omitempty"`
	// Checkpoint belongs to a record of that phase.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
}

// WatchClient is the Client of calls that watches make. Its version is the ID of the watch.
const WatchClient = "ferrule watch"

// WatchOf returns the ID of the watch that made a call; empty if it was not a watch. The name
// of a client is what a program says, but the gateway chooses the ID of a call.
func WatchOf(call string, client Client) string {
	if client.Name != WatchClient || client.Version == "" || !strings.HasPrefix(call, "watch-"+client.Version+"-") {
		return ""
	}
	return client.Version
}

// Phase is the moment of a call that an Entry records.
type Phase string

// The phases. Intent is written before a call that may change the world is sent.
// Outcome is written for every call. Those with the name of the journal are written by the
// journal itself.
const (
	Intent  Phase = "intent"
	Outcome Phase = "outcome"
	// JournalGap means that records are missing, because the disk did not take them or
	// because they were too many. Its message says how many.
	JournalGap Phase = "gap"
	// JournalCut means that the gateway found its journal shorter than it had signed.
	JournalCut Phase = "cut"
	// JournalCheckpoint signs all records before it.
	JournalCheckpoint Phase = "checkpoint"
	// Stopped and Resumed record that changes were stopped or resumed. Device is the
	// device, or empty for all.
	Stopped Phase = "stop"
	Resumed Phase = "resume"
	// Asked is a question of the device to the caller; Args has the question.
	Asked Phase = "question"
	// ApprovalStep is a step on the way to an approval: requested, allowed, denied, expired
	// or used. Its message has the ID of the request.
	ApprovalStep Phase = "approval"
	// Access records who was let in, and who was not: a login, a consent, a credential that
	// was added, first used, refused or revoked. Tool is the AccessEvent.
	Access Phase = "access"
	// Registration records that a plugin, or a part of the program, has more or fewer tools.
	Registration Phase = "registration"
)

// AccessEvent is what an Access records.
type AccessEvent string

// The events. A login, consent or token that was refused has a Code.
const (
	AccessLogin         AccessEvent = "login"
	AccessLogout        AccessEvent = "logout"
	AccessConsent       AccessEvent = "consent"       // a person let an agent in
	AccessClientAdded   AccessEvent = "client_added"  // an agent's program was registered
	AccessTokenAdded    AccessEvent = "token_added"   // a token was made, or one was issued
	AccessTokenUsed     AccessEvent = "token_used"    // for the first time, or from another address
	AccessTokenRotated  AccessEvent = "token_rotated" // replaced by a new one
	AccessTokenRevoked  AccessEvent = "token_revoked" // by a person, or because it was stolen
	AccessPersonAdded   AccessEvent = "person_added"  // or another role
	AccessPersonRemoved AccessEvent = "person_removed"
)

// Checkpoint says that a chain had a record with this number and hash at this time.
// Its signature covers all records up to that one, because each hash covers the hash
// before it.
type Checkpoint struct {
	Chain string    `json:"chain"`
	Seq   uint64    `json:"seq"`
	Hash  string    `json:"hash"`
	Time  time.Time `json:"time"`
	// Key is the public key of the node, and Signature is made with its private key.
	Key       string `json:"key"`
	Signature []byte `json:"signature"`
}

// JournalLines is a run of consecutive records of one chain, as lines of its
// file. Each line ends with the record's hash. A chain is identified by the first
// 16 digits of the hash of its first record.
type JournalLines struct {
	// Node is the node that wrote the journal; empty if it is unknown.
	Node  string `json:"node,omitempty"`
	Chain string `json:"chain"`
	// First and Last are the numbers of the records.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	Lines []byte `json:"lines"`
	// Forgery is set if no node wrote the message. Then there are no lines, Node and Chain are
	// what its subject says, and Message is its number in the stream.
	Forgery Forgery `json:"forgery,omitempty"`
	Message uint64  `json:"message,omitempty"`
}

// Forgery is why a message among the copies of journals does not count.
type Forgery string

// The forgeries. A message that was written before copies were sealed, or with an earlier
// secret of the tenant, is Unsealed too.
const (
	Unsealed Forgery = "unsealed"
	Replayed Forgery = "replayed" // a copy of a sealed message
)

// MaxJournalLines is the maximum number of bytes in one JournalLines.
const MaxJournalLines = 1 << 20

// JournalQuery selects records of the journals of all nodes.
type JournalQuery struct {
	// Node selects one node; empty selects all.
	Node string
	// Since skips lines that were copied before; zero skips none.
	Since time.Time
	// Follow continues with new records as they arrive.
	Follow bool
	// Forged also selects messages that no node wrote.
	Forged bool
}
