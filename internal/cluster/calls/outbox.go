package calls

import (
	"crypto/rand"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// outbox has the calls that wait for an answer, by token.
type outbox struct {
	boot string // makes tokens differ between runs

	mu    sync.Mutex
	calls map[string]*pending
	last  uint64
}

// pending is a call that waits for an answer.
type pending struct {
	final  chan []byte   // the final frame, complete
	frames chan []byte   // frames before it; some may be lost
	nobody chan struct{} // a message found no subscriber
	poke   chan struct{} // an answer may have been lost
	holder run           // who answers
	parts  parts         // of a final frame; used by receive only
}

func newOutbox(boot string) *outbox { return &outbox{boot: boot, calls: make(map[string]*pending)} }

func (o *outbox) open(holder run) (token string, p *pending) {
	p = &pending{holder: holder, final: make(chan []byte, 1), frames: make(chan []byte, 16), nobody: make(chan struct{}, 4), poke: make(chan struct{}, 1)}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	token = newToken(o.boot, o.last, strings.ToLower(rand.Text()[:16]))
	o.calls[token] = p
	return token, p
}

func (o *outbox) close(token string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.calls, token)
}

func (o *outbox) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.calls)
}

func (o *outbox) pokeAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.calls {
		select {
		case p.poke <- struct{}{}:
		default:
		}
	}
}

// receive takes a message from a holder. It never blocks.
func (o *outbox) receive(keys *keys, msg *nats.Msg) {
	token := msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:]
	o.mu.Lock()
	p := o.calls[token]
	o.mu.Unlock()
	switch {
	case p == nil: // the caller no longer waits
	case len(msg.Data) == 0:
		if msg.Header.Get("Status") == "503" {
			select {
			case p.nobody <- struct{}{}:
			default:
			}
		}
	default:
		if data, err := keys.open(p.holder, msg.Subject, msg.Data); err == nil && len(data) > 0 {
			p.receive(data)
		}
	}
}

func (p *pending) receive(data []byte) {
	to := p.frames
	switch data[0] {
	case framePart:
		if data = p.parts.add(data); len(data) == 0 {
			return
		}
		to = p.final
	case frameResult, frameValue, frameError, frameMoved, frameUnknown, frameForgot:
		to = p.final
	}
	select {
	case to <- data:
	default:
	}
}
