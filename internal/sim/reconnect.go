package sim

import (
	"context"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// Dial opens a connection of a toy.
type Dial func(ctx context.Context) (xiaozhi.Conn, error)

// Delays of a toy's connection.
const (
	reconnectWebSocket = 5 * time.Second // until somebody speaks to it again
	reconnectMQTT      = 10 * time.Second
	reconnectStorm     = time.Millisecond
	silenceTimeout     = 120 * time.Second // without a message, it considers a WebSocket dead
	overlapDelay       = 3 * time.Second   // until it opens a second connection
	helloTimeout       = 10 * time.Second  // for the server's hello
)

// Reconnect dials, serves the connection, and dials again, until ctx ends. If first is set,
// the toy says hello first, as on a WebSocket.
func (t *Toy) Reconnect(ctx context.Context, dial Dial, first bool) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil {
		conn, err := dialApart(ctx, dial)
		if err == nil {
			t.event("connected", "")
			t.stay(ctx, &wg, t.newSession(conn), first)
		} else if ctx.Err() == nil {
			t.event("failed", err.Error())
		}
		if sleep(ctx, t.pause(first, err)) != nil {
			break
		}
	}
	return nil
}

// dialApart dials in its own goroutine. Dialing needs a large stack, which is freed that way;
// it matters for many idle toys.
func dialApart(ctx context.Context, dial Dial) (conn xiaozhi.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err = dial(ctx)
	}()
	<-done
	return conn, err
}

// event reports an event, if there is a receiver.
func (t *Toy) event(what, detail string) {
	if t.onEvent != nil {
		t.onEvent(what, detail)
	}
}

// stay serves a connection until it ends, or until the toy abandons it while it is open.
func (t *Toy) stay(ctx context.Context, wg *sync.WaitGroup, c *toySession, first bool) {
	talk := func() {
		err := c.run(ctx, first)
		if ctx.Err() == nil {
			t.event("ended", reason(err))
		}
	}
	if !t.behavior.overlaps && !t.behavior.impatient && !t.behavior.leaves {
		talk()
		return
	}
	over := make(chan struct{})
	wg.Go(func() {
		defer close(over)
		talk()
	})
	t.watch(ctx, over, c)
}

// watch waits until the session ends, or the toy abandons it.
func (t *Toy) watch(ctx context.Context, over <-chan struct{}, c *toySession) {
	var due <-chan time.Time
	for {
		switch {
		case t.behavior.overlaps:
			due = time.After(overlapDelay)
		case t.behavior.impatient:
			due = time.After(silenceTimeout)
		}
		select {
		case <-over:
			return
		case <-c.left:
			return
		case <-ctx.Done():
			return
		case <-due:
			if t.behavior.overlaps || time.Since(time.Unix(0, c.received.Load())) >= silenceTimeout {
				return
			}
		}
	}
}

// reason returns why a session ended.
func reason(err error) string {
	if err == nil {
		return "the server closed the connection"
	}
	return err.Error()
}

// pause returns how long the toy waits before it reconnects. Even in a storm it pauses if
// dialing fails.
func (t *Toy) pause(first bool, failed error) time.Duration {
	switch {
	case t.behavior.hurries && failed == nil:
		return reconnectStorm
	case t.behavior.hurries:
		return time.Second
	case first:
		return reconnectWebSocket
	}
	return reconnectMQTT
}
