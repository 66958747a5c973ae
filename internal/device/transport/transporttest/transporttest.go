// Package transporttest is the test suite that every transport must pass, and a Link
// in memory for the tests of protocols.
//
// A transport that carries lines calls RunLines; any other calls Run.
package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// Peer is the peer's end of a link.
type Peer interface {
	Send(transport.Message) error
	Recv() (transport.Message, error)
	Close() error
}

// Open returns a new link and its far end. It registers cleanup with t.
type Open func(t *testing.T) (transport.Link, Peer)

// timeout bounds every wait of the suite.
const timeout = wait.Ample

// Run checks the contract of transport.Link on the links that open returns.
func Run(t *testing.T, open Open) {
	for name, test := range map[string]func(*testing.T, transport.Link, Peer){
		"messages arrive in order":            bothWays,
		"recv ends with its context":          recvEndsWithContext,
		"close ends recv and send":            closeEnds,
		"the peer closes":                     peerCloses,
		"a blocked send ends":                 sendBlocked,
		"a canceled context sends nothing":    sendAfterContext,
		"received data belongs to the caller": dataIsOwned,
		"a trace is complete":                 traced,
		"info is complete and constant":       info,
		"no goroutine is left":                noGoroutineLeft,
	} {
		t.Run(name, func(t *testing.T) {
			link, far := open(t)
			test(t, link, far)
		})
	}
}

func message(format string, args ...any) transport.Message {
	return transport.Message{Data: fmt.Appendf(nil, format, args...)}
}

func withTimeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

func bothWays(t *testing.T, link transport.Link, far Peer) {
	const n = 100
	ctx := withTimeout(t)
	sent := make(chan error, 2)
	go func() {
		for i := range n {
			if err := link.Send(ctx, message(`{"down":%d}`, i)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	got := make(chan string, n)
	go func() {
		for range n {
			m, err := far.Recv()
			if err != nil {
				break
			}
			got <- string(m.Data)
		}
		close(got)
	}()
	go func() {
		for i := range n {
			if err := far.Send(message(`{"up":%d}`, i)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := range n {
		m, err := link.Recv(ctx)
		if err != nil {
			t.Fatalf("message %d up: %v", i, err)
		}
		if want := fmt.Sprintf(`{"up":%d}`, i); string(m.Data) != want {
			t.Fatalf("message %d up is %q, want %q", i, m.Data, want)
		}
	}
	i := 0
	for data := range got {
		if want := fmt.Sprintf(`{"down":%d}`, i); data != want {
			t.Fatalf("message %d down is %q, want %q", i, data, want)
		}
		i++
	}
	if i != n {
		t.Fatalf("the peer received %d of %d messages", i, n)
	}
	for range 2 {
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	}
}

func recvEndsWithContext(t *testing.T, link transport.Link, far Peer) {
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := link.Recv(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Recv returned %v, want the context's error", err)
		}
	}
	go far.Send(message("still here"))
	if m, err := link.Recv(withTimeout(t)); err != nil || string(m.Data) != "still here" {
		t.Fatalf("the link is broken after a canceled Recv: %q, %v", m.Data, err)
	}
}

func closeEnds(t *testing.T, link transport.Link, _ Peer) {
	got := make(chan error, 1)
	go func() {
		_, err := link.Recv(context.Background())
		got <- err
	}()
	time.Sleep(10 * time.Millisecond)
	if err := link.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		if !errors.Is(err, transport.ErrClosed) {
			t.Errorf("Recv returned %v, want ErrClosed", err)
		}
	case <-time.After(timeout):
		t.Fatal("Recv blocks on a closed link")
	}
	if err := link.Close(); err != nil {
		t.Errorf("the second Close returned %v", err)
	}
	if err := link.Send(withTimeout(t), message("too late")); !errors.Is(err, transport.ErrUnsent) {
		t.Errorf("Send on a closed link returned %v, want ErrUnsent", err)
	}
}

func peerCloses(t *testing.T, link transport.Link, far Peer) {
	go far.Close()
	_, err := link.Recv(withTimeout(t))
	if err == nil || errors.Is(err, transport.ErrClosed) || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Recv returned %v, want an error for a lost peer", err)
	}
}

func sendBlocked(t *testing.T, link transport.Link, _ Peer) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	big := transport.Message{Data: bytes.Repeat([]byte("x"), 64<<10)}
	var err error
	start := time.Now()
	for range 1024 {
		if err = link.Send(ctx, big); err != nil {
			break
		}
	}
	if err == nil {
		t.Skip("this transport buffers 64 MB")
	}
	figure.AtMost(t, "a blocked Send ends", time.Since(start), 5*time.Second)
	if !errors.Is(err, transport.ErrUnsent) {
		if err := link.Send(withTimeout(t), message("after")); !errors.Is(err, transport.ErrUnsent) {
			t.Errorf("after a partial message, Send returned %v, want ErrUnsent", err)
		}
	}
}

func sendAfterContext(t *testing.T, link transport.Link, far Peer) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := link.Send(ctx, message("never")); !errors.Is(err, transport.ErrUnsent) {
		t.Fatalf("Send returned %v, want ErrUnsent", err)
	}
	go link.Send(t.Context(), message("first"))
	if m, err := far.Recv(); err != nil || string(m.Data) != "first" {
		t.Fatalf("the peer got %q, %v, want the first message", m.Data, err)
	}
}

func dataIsOwned(t *testing.T, link transport.Link, far Peer) {
	go func() {
		far.Send(message("one"))
		far.Send(message("two"))
	}()
	ctx := withTimeout(t)
	one, err := link.Recv(ctx)
	if err != nil {
		t.Fatal(err)
	}
	two, err := link.Recv(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if string(one.Data) != "one" || string(two.Data) != "two" {
		t.Errorf("got %q and %q", one.Data, two.Data)
	}
}

func traced(t *testing.T, link transport.Link, far Peer) {
	traceable, ok := link.(transport.Traceable)
	if !ok {
		t.Fatalf("%T is not traceable: embed a transport.Tracer", link)
	}
	seen := make(chan string, 4)
	traceable.Observe(func(f transport.Frame) { seen <- fmt.Sprintf("%d %s%s", f.Direction, f.Message.Data, f.Note) })
	go far.Send(message("up"))
	if _, err := link.Recv(withTimeout(t)); err != nil {
		t.Fatal(err)
	}
	transport.Note(link, "a %s", "remark")
	go func() { // the peer answers at once
		far.Recv()
		far.Send(message("answer"))
	}()
	received := make(chan error, 1)
	go func() {
		_, err := link.Recv(withTimeout(t))
		received <- err
	}()
	if err := link.Send(withTimeout(t), message("down")); err != nil {
		t.Fatal(err)
	}
	if err := <-received; err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 up", "3 a remark", "2 down", "1 answer"} {
		if got := <-seen; got != want {
			t.Errorf("traced %q, want %q", got, want)
		}
	}
}

func info(t *testing.T, link transport.Link, _ Peer) {
	got := link.Info()
	if got.Transport == "" || got.Address == "" {
		t.Errorf("%+v lacks a transport or an address", got)
	}
	link.Close()
	if link.Info() != got {
		t.Errorf("Info changed from %+v to %+v", got, link.Info())
	}
}

func noGoroutineLeft(t *testing.T, link transport.Link, far Peer) {
	before := runtime.NumGoroutine() // the link is open: an idle link may have no goroutine
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		link.Recv(ctx)
		close(ended)
	}()
	time.Sleep(10 * time.Millisecond)
	cancel()
	<-ended
	link.Close()
	far.Close()
	for deadline := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		if n := runtime.NumGoroutine(); n <= before {
			return
		} else if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before:\n%s", n, before, buf[:runtime.Stack(buf, true)])
		}
	}
}

// linePeer is the Peer of a transport that carries lines.
type linePeer struct {
	io.ReadWriteCloser
	lines *transport.Lines
}

func (f linePeer) Send(m transport.Message) error {
	_, err := f.Write(append(bytes.Clone(m.Data), '\r', '\n'))
	return err
}

func (f linePeer) Recv() (transport.Message, error) {
	line, err := f.lines.Next()
	return transport.Message{Data: line}, err
}
