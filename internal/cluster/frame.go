package cluster

import (
	"encoding/binary"
	"encoding/json"
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// request is a call on its way to the node that holds its device.
type request struct {
	Call ferrule.Call `json:"call"`
	// Kind, Epoch and Effect are what the caller's node took the device and the
	// tool for. The holder refuses if they are not, and nothing has happened.
	Kind   ferrule.Kind   `json:"kind"`
	Epoch  uint64         `json:"epoch"`
	Effect ferrule.Effect `json:"effect"`
	// Asks tells that the caller can be asked something, and Reports that it
	// wants to know how the call gets on.
	Asks    bool `json:"asks,omitempty"`
	Reports bool `json:"reports,omitempty"`
}

// What a holder sends back: the first byte of a message tells which, and JSON
// follows, if anything does.
const (
	frameResult   = 'R' // ferrule.Result; the end
	frameError    = 'E' // ferrule.Error; the end
	framePart     = 'P' // part of an end that is too long for one message
	frameProgress = 'G' // ferrule.Progress
	frameQuestion = 'Q' // question
	frameMoved    = 'M' // this node does not hold the device so; the end
	frameRunning  = 'A' // to an ask: the call is under way
	frameUnknown  = 'U' // to an ask: the call has not come, and will not be served; its age follows
	frameForgot   = 'F' // to an ask: nobody can tell any more
)

// question is a ferrule.Question with a number, so that answers find their way.
type question struct {
	Number int `json:"number"`
	ferrule.Question
}

// answer is what the caller says to a question.
type answer struct {
	Number int `json:"number"`
	ferrule.Answer
	Error string `json:"error,omitempty"`
}

// maxAnswer bounds what is put together of parts.
const maxAnswer = 64 << 20

// frame writes one message.
func frame(kind byte, v any) []byte {
	out := []byte{kind}
	if v == nil {
		return out
	}
	data, err := json.Marshal(v)
	if err != nil { // of a result that no dialect makes
		e := ferrule.Errorf(ferrule.Internal, "the answer cannot be written: %w", err).AfterSend()
		return frame(frameError, e)
	}
	return append(out, data...)
}

// partHead is the most that stands before the bytes of a part: which it is, and of
// how many.
const partHead = 1 + 2*binary.MaxVarintLen32

// split cuts a message into as many as are needed, if it is too long for one. Each
// tells its place: what was lost is sent again, all of it.
func split(data []byte, most int) [][]byte {
	if len(data) <= most {
		return [][]byte{data}
	}
	parts := slices.Collect(slices.Chunk(data, most-partHead))
	for i, part := range parts {
		head := binary.AppendUvarint([]byte{framePart}, uint64(i))
		head = binary.AppendUvarint(head, uint64(len(parts)))
		parts[i] = append(head, part...)
	}
	return parts
}

// parts puts together what split has cut, in whatever order and however often the
// parts come.
type parts struct {
	all  [][]byte
	have int
	size int
}

// take takes one in, and returns the whole with the last of them.
func (p *parts) take(data []byte) []byte {
	place, n := binary.Uvarint(data[1:])
	if n <= 0 {
		return nil
	}
	count, m := binary.Uvarint(data[1+n:])
	if m <= 0 || place >= count || count > maxAnswer/1024 {
		return nil
	}
	if p.all == nil {
		p.all = make([][]byte, count)
	}
	part := data[1+n+m:]
	if int(count) != len(p.all) || p.all[place] != nil || p.size+len(part) > maxAnswer {
		return nil
	}
	p.all[place] = part
	p.size += len(part)
	if p.have++; p.have < len(p.all) {
		return nil
	}
	return slices.Concat(p.all...)
}

// ending reads the end of a call.
func ending(kind byte, data []byte) (*ferrule.Result, error) {
	if kind == frameError {
		e := &ferrule.Error{}
		if err := json.Unmarshal(data, e); err != nil {
			return nil, garbled(err)
		}
		return nil, e
	}
	r := &ferrule.Result{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, garbled(err)
	}
	return r, nil
}

func garbled(err error) error {
	return ferrule.Errorf(ferrule.Internal, "what the other node answered makes no sense: %w", err).AfterSend()
}

// severity orders effects, so that nodes which disagree about one err on the side
// of care.
func severity(e ferrule.Effect) int {
	switch e {
	case ferrule.Reads:
		return 0
	case ferrule.Endangers:
		return 2
	}
	return 1
}
