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

// The bounds of what a record holds, in bytes. A record is shorter than maxLine
// whatever a caller put into the call: each byte of a text takes six at most.
const (
	maxWord = 1 << 10
	maxText = 8 << 10
	maxArgs = 128 << 10
)

// bound cuts what is too long.
func bound(e *ferrule.Entry) {
	for _, word := range []*string{&e.Call, &e.Principal.Name, &e.Device, &e.Tool} {
		*word = cut(*word, maxWord)
	}
	e.Operation = ferrule.Operation(cut(string(e.Operation), maxWord))
	e.Message = cut(e.Message, maxText)
	if n := len(e.Args); n > maxArgs {
		e.Args = ferrule.AppendString(nil, fmt.Sprintf("%d bytes, too long to be recorded: %.1000s", n, e.Args))
	}
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// encoder makes lines of records. It keeps its space, within maxKept, for the
// next ones.
type encoder struct{ lines, hashed []byte }

const maxKept = 64 << 10

// encode makes the lines of a batch, chained to the one at head. They are valid
// until the next call.
func (n *encoder) encode(batch []pending, head mark) ([]byte, mark) {
	if cap(n.lines) > maxKept {
		*n = encoder{}
	}
	n.lines = n.lines[:0]
	for i := range batch {
		e := &batch[i].Entry
		head.seq++
		e.Seq = head.seq
		n.hashed = appendEntry(append(n.hashed[:0], head.hash[:]...), e) // as chain does
		head.hash = sha256.Sum256(n.hashed)
		n.lines = hex.AppendEncode(n.lines, head.hash[:])
		n.lines = append(n.lines, ' ')
		n.lines = append(n.lines, n.hashed[sha256.Size:]...)
		n.lines = append(n.lines, '\n')
	}
	return n.lines, head
}

// chain is the hash of a record that follows the one with hash prev.
func chain(prev [sha256.Size]byte, body []byte) [sha256.Size]byte {
	return sha256.Sum256(append(prev[:], body...))
}

// appendEntry writes a record as json.Marshal would, several times as fast: it
// stands between a caller and the device twice.
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
	b = appendField(append(b, '}'), "device", e.Device)
	if e.Operation != "" {
		b = appendField(b, "operation", string(e.Operation))
	}
	b = appendField(b, "tool", e.Tool)
	if len(e.Args) > 0 {
		b = append(b, `,"args":`...)
		b = append(b, oneLine(e.Args)...)
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
	return append(b, '}')
}

func appendField(b []byte, name, value string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return ferrule.AppendString(b, value)
}

// oneLine is the arguments without space between their parts. Arguments that
// are no JSON are recorded as the text that they are.
func oneLine(args json.RawMessage) json.RawMessage {
	if !json.Valid(args) {
		return ferrule.AppendString(nil, fmt.Sprintf("%.1000s", args))
	}
	if !bytes.ContainsAny(args, " \t\r\n") {
		return args
	}
	var compact bytes.Buffer
	json.Compact(&compact, args) // it is valid
	return compact.Bytes()
}
