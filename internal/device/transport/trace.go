package transport

import "fmt"

// Traceable is the ability of a Link to be traced. Transports get it by embedding a
// Tracer.
type Traceable interface {
	// Observe sets the function that receives each frame. It is called before the
	// link is used. fn is called from the goroutines that send and receive, and must
	// not block or keep the frame's data.
	Observe(fn func(Frame))
	// Note adds a remark to the trace.
	Note(text string)
}

// Frame is one entry of a trace.
type Frame struct {
	Direction Direction
	Message   Message
	// Note is a remark, such as why a message was dropped.
	Note string
}

// Direction is the direction of a Frame, seen from the gateway.
type Direction byte

const (
	In Direction = iota + 1
	Out
	Remark // a note without a message
)

// Tracer implements Traceable for a Link that embeds it.
type Tracer struct{ fn func(Frame) }

// Observe implements Traceable.
func (t *Tracer) Observe(fn func(Frame)) { t.fn = fn }

// Note implements Traceable.
func (t *Tracer) Note(text string) { t.Trace(Remark, Message{}, text) }

// Trace passes a frame to the observer, if there is one.
func (t *Tracer) Trace(direction Direction, m Message, note string) {
	if t.fn != nil {
		t.fn(Frame{direction, m, note})
	}
}

// Note adds a remark to the trace of a link, if it is Traceable.
func Note(link Link, format string, args ...any) {
	if t, ok := link.(Traceable); ok {
		t.Note(fmt.Sprintf(format, args...))
	}
}
