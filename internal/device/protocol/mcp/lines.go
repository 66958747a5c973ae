package mcp

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// lines brings messages over a link that carries them.
type lines struct {
	session *session
	link    transport.Link
	sending chan struct{} // holds one while somebody sends

	mu      sync.Mutex
	flights map[string]chan outcome // by id: requests that wait for their answers
}

// outcome is an answer, or why none will come.
type outcome struct {
	answer message
	err    error
}

func newLines(s *session) *lines {
	return &lines{session: s, link: s.link, sending: make(chan struct{}, 1), flights: make(map[string]chan outcome)}
}

// send sends one message; whoever else sends is waited for.
func (l *lines) send(ctx context.Context, data []byte) error {
	select {
	case l.sending <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", transport.ErrUnsent, ctx.Err())
	}
	defer func() { <-l.sending }()
	return l.link.Send(ctx, transport.Message{Data: data})
}

// ask implements courier. In the greeting, whoever asks reads the link.
func (l *lines) ask(ctx context.Context, r request) (message, error) {
	landed := make(chan outcome, 1)
	l.mu.Lock()
	l.flights[r.id] = landed
	l.mu.Unlock()
	defer l.forget(r.id)
	if err := l.send(ctx, r.body); err != nil {
		return message{}, &trouble{sent: !errors.Is(err, transport.ErrUnsent), err: err}
	}
	for !l.session.greeted && len(landed) == 0 && ctx.Err() == nil {
		if err := l.read(ctx); err != nil && ctx.Err() == nil {
			return message{}, &trouble{sent: true, err: err}
		}
	}
	select {
	case o := <-landed:
		return o.answer, o.err
	case <-ctx.Done():
	}
	l.forget(r.id)
	select {
	case o := <-landed: // it came at the last moment
		return o.answer, o.err
	default:
		return message{}, &trouble{sent: true, silent: true, err: fmt.Errorf("no answer to %s", r.method)}
	}
}

// forget takes a request out of flight. If its answer comes yet, it is dropped.
func (l *lines) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.flights, id)
}

// tell implements courier.
func (l *lines) tell(ctx context.Context, body []byte) error { return l.send(ctx, body) }

// cancels implements courier.
func (l *lines) cancels() bool { return true }

// frugal implements courier.
func (l *lines) frugal() bool { return false }

// farewell implements courier: the end of the link is enough.
func (l *lines) farewell(context.Context) {}

// run implements courier.
func (l *lines) run(ctx context.Context) error {
	for {
		err := l.read(ctx)
		if err == nil {
			continue
		}
		l.landAll(err)
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
}

// read reads one message and hands it over.
func (l *lines) read(ctx context.Context) error {
	m, err := l.link.Recv(ctx)
	if errors.Is(err, transport.ErrTooLong) {
		l.landAll(fmt.Errorf("its answer was dropped: %w", err))
		return nil
	}
	if err != nil {
		return err
	}
	all := decode(m.Data)
	if len(all) == 0 {
		l.session.note("noise: no message in this")
	}
	for _, said := range all {
		if !said.isAnswer() || !l.land(said) {
			l.session.hear(ctx, said)
		}
	}
	return nil
}

// land gives a request its answer. An error without an id is that of the one request
// that waits, if there is just one: which message could not be read, is not told.
func (l *lines) land(m message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := outcome{answer: m}
	id := m.id
	if id == "" && m.err != nil && len(l.flights) == 1 {
		for only := range l.flights {
			id = only
		}
		o = outcome{err: &trouble{sent: true, err: fmt.Errorf("it could not read a message, probably this one: %w", m.err)}}
	}
	landed := l.flights[id]
	if landed == nil {
		return false
	}
	delete(l.flights, id)
	landed <- o
	return true
}

// landAll ends every request without its answer.
func (l *lines) landAll(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, landed := range l.flights {
		delete(l.flights, id)
		landed <- outcome{err: &trouble{sent: true, err: err}}
	}
}
