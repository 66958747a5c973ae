package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Limits of a record's values in bytes. An encoded byte of text takes at most six bytes, so
// a record is always shorter than maxLine.
const (
	maxWord = 1 << 10
	maxText = 8 << 10
	maxArgs = 128 << 10
)

// limit shortens values that are too long.
func limit(e *ferrule.Entry) {
	for _, word := range []*string{&e.Call, &e.Principal.Name, &e.Principal.User, &e.Principal.Devices, &e.Principal.Groups, &e.Principal.TokenID, &e.From, &e.Client.Name, &e.Client.Version, &e.Client.Protocol, &e.Device, &e.Tool, &e.Rule} {
		*word = truncate(*word, maxWord)
	}
	e.Principal.Role = ferrule.Role(truncate(string(e.Principal.Role), maxWord))
	e.Principal.Auth = ferrule.Auth(truncate(string(e.Principal.Auth), maxWord))
	e.Kind = ferrule.Kind(truncate(string(e.Kind), maxWord))
	e.Verdict = ferrule.Ruling(truncate(string(e.Verdict), maxWord))
	e.Operation = ferrule.Operation(truncate(string(e.Operation), maxWord))
	e.Message = truncate(e.Message, maxText)
	if n := len(e.Args); n > maxArgs {
		e.Args = ferrule.AppendString(nil, fmt.Sprintf("%d bytes, shortened: %.1000s", n, e.Args))
	}
}

func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}

// encoder encodes records as lines. It reuses its buffers, up to maxKept.
type encoder struct{ lines, hashed []byte }

const maxKept = 128 << 10

// encode returns the lines of a batch, chained to head, and the new head. The lines are
// valid until the next call.
func (n *encoder) encode(batch []pending, head link) ([]byte, link) {
	if cap(n.lines) > maxKept {
		*n = encoder{}
	}
	n.lines = n.lines[:0]
	for i := range batch {
		e := &batch[i].Entry
		head.seq++
		e.Seq = head.seq
		n.hashed = appendEntry(append(n.hashed[:0], head.hash[:]...), e) // as in chain
		head.hash = sha256.Sum256(n.hashed)
		n.lines = hex.AppendEncode(n.lines, head.hash[:])
		n.lines = append(n.lines, ' ')
		n.lines = append(n.lines, n.hashed[sha256.Size:]...)
		n.lines = append(n.lines, '\n')
	}
	return n.lines, head
}

// chain returns the hash of a record that follows the one with hash prev.
func chain(prev [sha256.Size]byte, body []byte) [sha256.Size]byte {
	return sha256.Sum256(append(prev[:], body...))
}

// appendEntry encodes a record as json.Marshal does, but several times faster: each call
// waits for it twice.
func appendEntry(b []byte, e *ferrule.Entry) []byte {
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, e.Seq, 10)
	b = append(b, `,"time":"`...)
	b = e.Time.AppendFormat(b, time.RFC3339Nano)
	b = appendField(append(b, '"'), "call", e.Call)
	b = appendField(b, "phase", string(e.Phase))
	b = append(b, `,"principal":{"role":`...)
	b = ferrule.AppendString(b, string(e.Principal.Role))
	b = appendField(b, "name", e.Principal.Name)
	if e.Principal.Auth != "" {
		b = appendField(b, "auth", string(e.Principal.Auth))
	}
	if e.Principal.User != "" {
		b = appendField(b, "user", e.Principal.User)
	}
	if e.Principal.Scopes != 0 {
		scopes, _ := e.Principal.Scopes.MarshalText() // it never fails
		b = appendField(b, "scopes", string(scopes))
	}
	if e.Principal.Devices != "" {
		b = appendField(b, "devices", e.Principal.Devices)
	}
	if e.Principal.Groups != "" {
		b = appendField(b, "groups", e.Principal.Groups)
	}
	if e.Principal.TokenID != "" {
		b = appendField(b, "token_id", e.Principal.TokenID)
	}
	b = append(b, '}')
	if e.Via != "" {
		b = appendField(b, "via", e.Via)
	}
	if e.From != "" {
		b = appendField(b, "from", e.From)
	}
	b = appendClient(b, &e.Client)
	b = appendField(b, "device", e.Device)
	if e.Kind != "" {
		b = appendField(b, "kind", string(e.Kind))
	}
	if e.Operation != "" {
		b = appendField(b, "operation", string(e.Operation))
	}
	b = appendField(b, "tool", e.Tool)
	if len(e.Args) > 0 {
		b = append(b, `,"args":`...)
		b = append(b, oneLine(e.Args)...)
	}
	if e.Verdict != "" {
		b = appendField(b, "verdict", string(e.Verdict))
	}
	if e.Rule != "" {
		b = appendField(b, "rule", e.Rule)
	}
	if e.Code != "" {
		b = appendField(b, "code", string(e.Code))
	}
	if e.Message != "" {
		b = appendField(b, "message", e.Message)
	}
	if e.MayHaveRun {
		b = append(b, `,"may_have_run":true`...)
	}
	if e.Took != 0 {
		b = appendField(b, "took", e.Took.String())
	}
	if e.Checkpoint != nil {
		b = appendCheckpoint(b, e.Checkpoint)
	}
	return append(b, '}')
}

func appendClient(b []byte, c *ferrule.Client) []byte {
	if *c == (ferrule.Client{}) {
		return b
	}
	b = append(b, `,"client":{`...)
	start := len(b)
	for _, f := range [][2]string{{"name", c.Name}, {"version", c.Version}, {"protocol", c.Protocol}} {
		if f[1] != "" {
			b = appendField(b, f[0], f[1])
		}
	}
	b = append(b[:start], b[start+1:]...) // no comma before the first
	return append(b, '}')
}

// appendCheckpoint encodes a checkpoint. They are rare.
func appendCheckpoint(b []byte, c *ferrule.Checkpoint) []byte {
	text, err := json.Marshal(c)
	if err != nil { // a time without a text; the journal makes none
		return b
	}
	return append(append(b, `,"checkpoint":`...), text...)
}

func appendField(b []byte, name, value string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return ferrule.AppendString(b, value)
}

// oneLine returns the arguments as compact JSON. Arguments that are not JSON become a string.
func oneLine(args json.RawMessage) json.RawMessage {
	if !json.Valid(args) {
		return ferrule.AppendString(nil, fmt.Sprintf("%.1000s", args))
	}
	if !bytes.ContainsAny(args, " \t\r\n") {
		return args
	}
	var compact bytes.Buffer
	json.Compact(&compact, args) // cannot fail: args are valid
	return compact.Bytes()
}
