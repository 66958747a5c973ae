package calls

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	fastjson "github.com/segmentio/encoding/json"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The verbs of requests to a node.
const (
	verbCall   = "call"   // serve this call
	verbCancel = "cancel" // its caller is gone
	verbAsk    = "ask"    // what is the state of the call?
	verbAnswer = "answer" // to a question of the device
)

// request is a call on its way to the node that holds its device.
type request struct {
	Call ferrule.Call `json:"call"`
	// Kind, Epoch and Effect are what the caller's node knows about the device and the
	// tool. The holder rejects the call if they differ; then nothing has run.
	Kind   ferrule.Kind   `json:"kind"`
	Epoch  uint64         `json:"epoch"`
	Effect ferrule.Effect `json:"effect"`
	// Asks means that the caller can answer questions, Reports that it wants progress.
	Asks    bool `json:"asks,omitempty"`
	Reports bool `json:"reports,omitempty"`
	// Ask means that the policy of the caller's node requires the approval of a person. The
	// holder asks, even if its own policy does not require it.
	Ask bool `json:"ask,omitempty"`
	// Deadline is how long the caller's node waits. It is longer than the call's Timeout if
	// the call may wait for the approval of a person first.
	Deadline ferrule.Duration `json:"deadline,omitempty"`
	// Values means that the caller's node knows the frame of a value.
	Values bool `json:"values,omitempty"`
}

// parseRequest decodes a call of another node. The standard library takes twice as long. It
// limits how deep JSON may be nested and the faster library does not, so it checks the text
// first. They differ in numbers that are too large and in names with unusual letters, which no
// node sends. A panic in the library becomes an error.
func parseRequest(data []byte) (req *request, err error) {
	defer func() {
		if r := recover(); r != nil {
			req, err = nil, fmt.Errorf("decoding failed: %v", r)
		}
	}()
	if !json.Valid(data) {
		return nil, errors.New("it is not JSON")
	}
	req = &request{}
	return req, fastjson.Unmarshal(data, req)
}

// Frames that a holder sends back. The first byte of a message is the type; JSON
// follows for some.
const (
	frameResult   = 'R' // ferrule.Result; final
	frameValue    = 'V' // the Value of a ferrule.Result that has nothing else; final
	frameError    = 'E' // ferrule.Error; final
	framePart     = 'P' // part of a final frame that is too long for one message
	frameProgress = 'G' // ferrule.Progress
	frameQuestion = 'Q' // question
	frameMoved    = 'M' // this node does not hold the device under this epoch; final
	frameRunning  = 'A' // to ask: the call is running
	frameUnknown  = 'U' // to ask: the call has not arrived and will not be served; its age follows
	frameForgot   = 'F' // to ask: the outcome is unknown
)

// question is a ferrule.Question with a number that its answer repeats.
type question struct {
	Number int `json:"number"`
	ferrule.Question
}

// answer is the caller's answer to a question, or why there is none.
type answer struct {
	Number int `json:"number"`
	ferrule.Answer
	Error string `json:"error,omitempty"`
}

// maxAnswer limits the size of a frame that comes in parts.
const maxAnswer = 64 << 20

// frame encodes one message.
func frame(kind byte, v any) []byte {
	out := []byte{kind}
	if v == nil {
		return out
	}
	data, err := json.Marshal(v)
	if err != nil { // a result that no protocol makes
		e := ferrule.Errorf(ferrule.Internal, "encoding the result failed: %w", err).AfterSend()
		return frame(frameError, e)
	}
	return append(out, data...)
}

// resultFrame encodes the result of a call. Most have only a value, which is JSON already.
func (req *request) resultFrame(r *ferrule.Result) []byte {
	if req.Values && r != nil && len(r.Value) > 0 && r.Age == 0 && r.Content == nil && r.Text == "" && r.Job == nil {
		return append([]byte{frameValue}, r.Value...)
	}
	return frame(frameResult, r)
}

// partHead is the largest header of a part: its index and the number of parts.
const partHead = 1 + 2*binary.MaxVarintLen32

// split cuts a frame into parts of at most limit bytes, if it is longer. Each part has
// its index: if one is lost, all are sent again.
func split(data []byte, limit int) [][]byte {
	if len(data) <= limit {
		return [][]byte{data}
	}
	parts := slices.Collect(slices.Chunk(data, limit-partHead))
	for i, part := range parts {
		head := binary.AppendUvarint([]byte{framePart}, uint64(i))
		head = binary.AppendUvarint(head, uint64(len(parts)))
		parts[i] = append(head, part...)
	}
	return parts
}

// parts reassembles a split frame from parts in any order, with duplicates.
type parts struct {
	all  [][]byte
	have int
	size int
}

// add adds a part, and returns the whole frame once all parts are there.
func (p *parts) add(data []byte) []byte {
	index, n := binary.Uvarint(data[1:])
	if n <= 0 {
		return nil
	}
	count, m := binary.Uvarint(data[1+n:])
	if m <= 0 || index >= count || count > maxAnswer/1024 {
		return nil
	}
	if p.all == nil {
		p.all = make([][]byte, count)
	}
	part := data[1+n+m:]
	if int(count) != len(p.all) || p.all[index] != nil || p.size+len(part) > maxAnswer {
		return nil
	}
	p.all[index] = part
	p.size += len(part)
	if p.have++; p.have < len(p.all) {
		return nil
	}
	return slices.Concat(p.all...)
}

// parseFinal decodes a result, a value or an error.
func parseFinal(kind byte, data []byte) (*ferrule.Result, error) {
	switch kind {
	case frameValue:
		if !json.Valid(data) {
			return nil, malformed(errors.New("the value is not JSON"))
		}
		return &ferrule.Result{Value: data}, nil
	case frameError:
		e := &ferrule.Error{}
		if err := json.Unmarshal(data, e); err != nil {
			return nil, malformed(err)
		}
		return nil, e
	}
	r := &ferrule.Result{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, malformed(err)
	}
	return r, nil
}

func malformed(err error) error {
	return ferrule.Errorf(ferrule.Internal, "malformed answer from the other node: %w", err).AfterSend()
}

// severity orders effects. Where nodes disagree about one, the more careful wins.
func severity(e ferrule.Effect) int {
	switch e {
	case ferrule.Reads:
		return 0
	case ferrule.Endangers:
		return 2
	}
	return 1
}
