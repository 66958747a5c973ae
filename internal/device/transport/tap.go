package transport

import "fmt"

// Tapped is the ability of a Link to be watched. Media have it by embedding a
// Tap.
type Traceable interface {
	// Observe sets who is told of each frame. It is called before the link is
	// used; fn is called from the goroutines that send and receive, and must
	// not block or keep the frame's data.
	Observe(fn func(Frame))
	// Note puts a remark between the frames.
	Note(text string)
}

// Frame is one thing that was seen on a Link.
type Frame struct {
	Direction Direction
	Message   Message
	// Note is a remark: why a frame was dropped, what was made of it.
	Note string
}

// Way is the direction of a Frame, seen from the gateway.
type Direction byte

// The ways.
const (
	In Direction = iota + 1
	Out
	Remark // a remark, not a frame
)

// Tap is the Tapped of a medium that embeds it.
type Tracer struct{ fn func(Frame) }

// Observe implements Tapped.
func (t *Tracer) Observe(fn func(Frame)) { t.fn = fn }

// Note implements Tapped.
func (t *Tracer) Note(text string) { t.Trace(Remark, Message{}, text) }

// Saw tells the watcher of a frame, if there is one.
func (t *Tracer) Trace(way Direction, m Message, note string) {
	if t.fn != nil {
		t.fn(Frame{way, m, note})
	}
}

// Note puts a remark about link where a watcher will see it.
func Note(link Link, format string, args ...any) {
	if t, ok := link.(Traceable); ok {
		t.Note(fmt.Sprintf(format, args...))
	}
}
