// Package protocoltest is the suite that every grammar must pass: the contract of
// dialect.Dialect and dialect.Session, whatever is said on the wire.
package protocoltest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Tools is what a device in the suite can do, by name. Arguments and results are
// JSON; an error means that the device tried and failed.
type Tools map[string]func(args json.RawMessage) (json.RawMessage, error)

// Subject is a grammar and a device that speaks it.
type Subject struct {
	Protocol protocol.Protocol
	// Serve plays a device with these tools on the far end of a link, until that
	// is closed. It must work in a synctest bubble.
	Serve func(far io.ReadWriteCloser, tools Tools)
}

// Run checks the contract. Time in it is not real.
func Run(t *testing.T, s Subject) {
	for name, test := range map[string]func(*testing.T, *rig){
		"a device is greeted":                       greeted,
		"a call is answered":                        answered,
		"an unknown tool is refused":                refused,
		"a failure may have run":                    failed,
		"a deadline that passes may have run":       deadline,
		"a late answer reaches nobody":              late,
		"a call that is cancelled may have run":     cancelled,
		"a link that breaks in a call may have run": broken,
		"a link that is gone is offline":            gone,
		"ending run ends everything":                ended,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, s)
				defer r.close()
				test(t, r)
			})
		})
	}
	for name, peer := range map[string]func(io.ReadWriteCloser){
		"a peer that is silent": func(far io.ReadWriteCloser) { io.Copy(io.Discard, far) },
		"a peer that says rubbish": func(far io.ReadWriteCloser) {
			go io.Copy(io.Discard, far)
			for range 1000 {
				if _, err := io.WriteString(far, "\x00\xff rubbish {\"}\r\n"); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		},
		"a peer that says everything again": func(far io.ReadWriteCloser) { io.Copy(far, far) },
		"a peer that hangs up":              func(far io.ReadWriteCloser) { far.Close() },
	} {
		t.Run(name+" is not greeted", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { alien(t, s, peer) })
		})
	}
	t.Run("greeting ends with its context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { impatient(t, s) })
	})
}

// rig is a device that was greeted and whose session runs.
type rig struct {
	t        *testing.T
	far      io.ReadWriteCloser
	manifest *ferrule.Manifest
	session  protocol.Session
	ran      chan error
	stop     context.CancelFunc
	release  chan struct{} // lets one call of hold go on
}

func newRig(t *testing.T, s Subject) *rig {
	link, far := transporttest.Pipe(transport.Info{})
	r := &rig{t: t, far: far, ran: make(chan error, 1), release: make(chan struct{}, 10)}
	go s.Serve(far, Tools{
		"echo": func(args json.RawMessage) (json.RawMessage, error) { return args, nil },
		"hold": func(json.RawMessage) (json.RawMessage, error) { <-r.release; return json.RawMessage(`"held"`), nil },
		"fail": func(json.RawMessage) (json.RawMessage, error) { return nil, errors.New("out of paper") },
	})
	session, manifest, err := s.Protocol.Greet(t.Context(), link)
	if err != nil {
		close(r.release)
		link.Close()
		t.Fatalf("greeting: %v", err)
	}
	r.session, r.manifest = session, manifest
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	go func() { r.ran <- session.Run(ctx) }()
	return r
}

// close ends everything; the bubble reports what then still goes on.
func (r *rig) close() {
	r.stop()
	close(r.release)
	r.far.Close()
}

func (r *rig) call(ctx context.Context, tool, args string) (*ferrule.Result, error) {
	return r.session.Invoke(ctx, &ferrule.Call{Device: "device", Tool: tool, Args: json.RawMessage(args)})
}

// want checks an outcome.
func (r *rig) want(err error, code ferrule.Code, mayHaveRun bool) {
	r.t.Helper()
	var e *ferrule.Error
	if !errors.As(err, &e) || e.Code != code || e.MayHaveRun() != mayHaveRun {
		r.t.Errorf("got %#v, want %s, may have run: %t", err, code, mayHaveRun)
	}
}

func (r *rig) echoes(text string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	result, err := r.call(ctx, "echo", `{"text":"`+text+`"}`)
	if err != nil {
		r.t.Fatalf("echo: %v", err)
	}
	var got struct{ Text string }
	if err := json.Unmarshal(result.Value, &got); err != nil || got.Text != text {
		r.t.Fatalf("echo returned %s, want the text %s", result.Value, text)
	}
}

func greeted(t *testing.T, r *rig) {
	for _, name := range []string{"echo", "hold", "fail"} {
		if r.manifest.Tool(name) == nil {
			t.Errorf("%s is not in the manifest", name)
		}
	}
	r.manifest.Bound()
	if _, err := r.manifest.Kind(); err != nil {
		t.Error(err)
	}
}

func answered(_ *testing.T, r *rig) {
	r.echoes("one")
	r.echoes("two")
}

func refused(t *testing.T, r *rig) {
	_, err := r.call(t.Context(), "nonsense", "{}")
	r.want(err, ferrule.Refused, false)
	r.echoes("after")
}

func failed(t *testing.T, r *rig) {
	_, err := r.call(t.Context(), "fail", "{}")
	r.want(err, ferrule.Failed, true)
	r.echoes("after")
}

func deadline(t *testing.T, r *rig) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	_, err := r.call(ctx, "hold", "{}")
	r.want(err, ferrule.Unanswered, true)
	if took := time.Since(start); took > time.Second {
		t.Errorf("it took %v", took)
	}
	r.release <- struct{}{}
	r.echoes("after")
}

func late(t *testing.T, r *rig) {
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := r.call(ctx, "hold", "{}")
		cancel()
		r.want(err, ferrule.Unanswered, true)
		r.release <- struct{}{}
	}
	r.echoes("not held")
}

func cancelled(t *testing.T, r *rig) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	_, err := r.call(ctx, "hold", "{}")
	r.want(err, ferrule.Cancelled, true)
	r.release <- struct{}{}
	r.echoes("after")
}

func broken(t *testing.T, r *rig) {
	time.AfterFunc(time.Second, func() { r.far.Close() })
	_, err := r.call(t.Context(), "hold", "{}")
	r.want(err, ferrule.Unanswered, true)
	if err := <-r.ran; err == nil {
		t.Error("Run returned nil, and the link was broken")
	}
}

func gone(t *testing.T, r *rig) {
	r.far.Close()
	<-r.ran
	_, err := r.call(t.Context(), "echo", "{}")
	r.want(err, ferrule.Offline, false)
}

func ended(t *testing.T, r *rig) {
	time.AfterFunc(time.Second, r.stop)
	_, err := r.call(t.Context(), "hold", "{}")
	r.want(err, ferrule.Unanswered, true)
	if err := <-r.ran; err != nil {
		t.Errorf("Run returned %v, want nil when its context ends", err)
	}
	if _, err := r.far.Write([]byte("x")); err == nil {
		t.Error("the link was not closed")
	}
}

func alien(t *testing.T, s Subject, peer func(io.ReadWriteCloser)) {
	link, far := transporttest.Pipe(transport.Info{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		peer(far)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	session, _, err := s.Protocol.Greet(ctx, link)
	if err == nil || session != nil {
		t.Errorf("it was greeted: %v", session)
	}
	if ctx.Err() != nil {
		t.Error("the greeting did not end by itself")
	}
	link.Close()
	far.Close()
	<-ended
}

func impatient(t *testing.T, s Subject) {
	link, far := transporttest.Pipe(transport.Info{})
	go io.Copy(io.Discard, far)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, _, err := s.Protocol.Greet(ctx, link); err == nil {
		t.Error("silence was greeted")
	}
	if took := time.Since(start); took > 100*time.Millisecond {
		t.Errorf("it went on for %v", took)
	}
	link.Close()
	far.Close()
}
