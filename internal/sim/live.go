package sim

import (
	"context"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// Dial opens a connection of a toy.
type Dial func(ctx context.Context) (xiaozhi.Conn, error)

// How a toy lives.
const (
	redial   = 5 * time.Second   // until somebody speaks to it again, on a WebSocket
	rejoin   = 10 * time.Second  // until it connects again, on MQTT
	hurry    = time.Millisecond  // until it connects again in a storm
	deaf     = 120 * time.Second // without a message, a WebSocket is dead to it
	overlaps = 3 * time.Second   // until a second socket is opened
)

// Live has the toy connect, talk, and connect again, until ctx ends. It is for
// media by which a toy calls the server; first tells that it says hello first, as on
// a WebSocket.
func (t *Toy) Live(ctx context.Context, dial Dial, first bool) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil {
		conn, err := apart(ctx, dial)
		if err == nil {
			t.note("connected", "")
			t.stay(ctx, &wg, t.newTalk(conn), first)
		} else if ctx.Err() == nil {
			t.note("failed", err.Error())
		}
		if sleep(ctx, t.pause(first, err)) != nil {
			break
		}
	}
	return nil
}

// apart dials in a goroutine of its own: what asking and connecting take of a stack
// is given back, while many toys wait for years.
func apart(ctx context.Context, dial Dial) (conn xiaozhi.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err = dial(ctx)
	}()
	<-done
	return conn, err
}

// note tells what has happened, if somebody wants to know.
func (t *Toy) note(what, detail string) {
	if t.tell != nil {
		t.tell(what, detail)
	}
}

// stay talks until it is time for another connection: this one is over, or the toy
// takes it for over while it is open. Who never does needs nobody to look after it.
func (t *Toy) stay(ctx context.Context, wg *sync.WaitGroup, c *talk, first bool) {
	talk := func() {
		err := c.run(ctx, first)
		if ctx.Err() == nil {
			t.note("ended", reason(err))
		}
	}
	if !t.behaviour.forgets && !t.behaviour.impatient && !t.behaviour.leaves {
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

// watch waits until the conversation is over, or the toy takes it for over.
func (t *Toy) watch(ctx context.Context, over <-chan struct{}, c *talk) {
	var due <-chan time.Time
	for {
		switch {
		case t.behaviour.forgets:
			due = time.After(overlaps)
		case t.behaviour.impatient:
			due = time.After(deaf)
		}
		select {
		case <-over:
			return
		case <-c.left:
			return
		case <-ctx.Done():
			return
		case <-due:
			if t.behaviour.forgets || time.Since(time.Unix(0, c.heard.Load())) >= deaf {
				return
			}
		}
	}
}

// reason is why a conversation ended.
func reason(err error) string {
	if err == nil {
		return "the server closed the connection"
	}
	return err.Error()
}

// pause is how long the toy waits before it connects again. Not even in a storm do
// toys dial all the time where nobody answers.
func (t *Toy) pause(first bool, failed error) time.Duration {
	switch {
	case t.behaviour.storms && failed == nil:
		return hurry
	case t.behaviour.storms:
		return time.Second
	case first:
		return redial
	}
	return rejoin
}
