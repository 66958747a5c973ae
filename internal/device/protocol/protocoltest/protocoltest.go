// Package protocoltest is the conformance suite of protocols. It checks the contract of
// protocol.Protocol and protocol.Session, whatever the messages are.
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

// Tools are the tools of a device in the suite, by name. Arguments and results are JSON;
// an error means that the device tried and failed.
type Tools map[string]func(args json.RawMessage) (json.RawMessage, error)

// Subject is the protocol under test, and a device that speaks it.
type Subject struct {
	Protocol protocol.Protocol
	// Serve runs a device with these tools at the far end of a link, until the link is
	// closed. It must work in a synctest bubble.
	Serve func(far io.ReadWriteCloser, tools Tools)
}

// Run checks the contract. Time is simulated.
func Run(t *testing.T, s Subject) {
	for name, test := range map[string]func(*testing.T, *device){
		"a device is greeted":                    greeted,
		"a call is answered":                     answered,
		"an unknown tool is refused":             refused,
		"a failure may have run":                 failed,
		"a call without an answer may have run":  deadline,
		"a late answer is dropped":               late,
		"a cancelled call may have run":          cancelled,
		"a call on a breaking link may have run": broken,
		"a call after the link ended is offline": gone,
		"ending Run ends everything":             ended,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDevice(t, s)
				defer d.close()
				test(t, d)
			})
		})
	}
	for name, peer := range map[string]func(io.ReadWriteCloser){
		"a silent peer": func(far io.ReadWriteCloser) { io.Copy(io.Discard, far) },
		"a peer that sends garbage": func(far io.ReadWriteCloser) {
			go io.Copy(io.Discard, far)
			for range 1000 {
				if _, err := io.WriteString(far, "\x00\xff garbage {\"}\r\n"); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		},
		"a peer that echoes":      func(far io.ReadWriteCloser) { io.Copy(far, far) },
		"a peer that disconnects": func(far io.ReadWriteCloser) { far.Close() },
	} {
		t.Run(name+" is not greeted", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { foreign(t, s, peer) })
		})
	}
	t.Run("greeting ends with its context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { impatient(t, s) })
	})
}

// device is a greeted device whose session runs.
type device struct {
	t        *testing.T
	far      io.ReadWriteCloser
	manifest *ferrule.Manifest
	session  protocol.Session
	ran      chan error
	stop     context.CancelFunc
	release  chan struct{} // lets one call of hold return
}

func newDevice(t *testing.T, s Subject) *device {
	link, far := transporttest.Pipe(transport.Info{})
	d := &device{t: t, far: far, ran: make(chan error, 1), release: make(chan struct{}, 10)}
	go s.Serve(far, Tools{
		"echo": func(args json.RawMessage) (json.RawMessage, error) { return args, nil },
		"hold": func(json.RawMessage) (json.RawMessage, error) { <-d.release; return json.RawMessage(`"held"`), nil },
		"fail": func(json.RawMessage) (json.RawMessage, error) { return nil, errors.New("out of paper") },
	})
	session, manifest, err := s.Protocol.Greet(t.Context(), link)
	if err != nil {
		close(d.release)
		link.Close()
		t.Fatalf("greeting: %v", err)
	}
	d.session, d.manifest = session, manifest
	var ctx context.Context
	ctx, d.stop = context.WithCancel(context.Background())
	go func() { d.ran <- session.Run(ctx) }()
	return d
}

// close ends everything. The synctest bubble reports goroutines that are left.
func (d *device) close() {
	d.stop()
	close(d.release)
	d.far.Close()
}

func (d *device) call(ctx context.Context, tool, args string) (*ferrule.Result, error) {
	return d.session.Invoke(ctx, &ferrule.Call{Device: "device", Tool: tool, Args: json.RawMessage(args)})
}

// want checks the outcome of a call.
func (d *device) want(err error, code ferrule.Code, mayHaveRun bool) {
	d.t.Helper()
	var e *ferrule.Error
	if !errors.As(err, &e) || e.Code != code || e.MayHaveRun() != mayHaveRun {
		d.t.Errorf("got %#v, want %s, may have run: %t", err, code, mayHaveRun)
	}
}

func (d *device) echoes(text string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	result, err := d.call(ctx, "echo", `{"text":"`+text+`"}`)
	if err != nil {
		d.t.Fatalf("echo: %v", err)
	}
	var got struct{ Text string }
	if err := json.Unmarshal(result.Value, &got); err != nil || got.Text != text {
		d.t.Fatalf("echo returned %s, want the text %s", result.Value, text)
	}
}

func greeted(t *testing.T, d *device) {
	for _, name := range []string{"echo", "hold", "fail"} {
		if d.manifest.Tool(name) == nil {
			t.Errorf("%s is missing in the manifest", name)
		}
	}
	d.manifest.Bound()
	if _, err := d.manifest.Kind(); err != nil {
		t.Error(err)
	}
}

func answered(_ *testing.T, d *device) {
	d.echoes("one")
	d.echoes("two")
}

func refused(t *testing.T, d *device) {
	_, err := d.call(t.Context(), "nonsense", "{}")
	d.want(err, ferrule.Refused, false)
	d.echoes("after")
}

func failed(t *testing.T, d *device) {
	_, err := d.call(t.Context(), "fail", "{}")
	d.want(err, ferrule.Failed, true)
	d.echoes("after")
}

func deadline(t *testing.T, d *device) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	_, err := d.call(ctx, "hold", "{}")
	d.want(err, ferrule.Unanswered, true)
	if took := time.Since(start); took > time.Second {
		t.Errorf("it took %v", took)
	}
	d.release <- struct{}{}
	d.echoes("after")
}

func late(t *testing.T, d *device) {
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := d.call(ctx, "hold", "{}")
		cancel()
		d.want(err, ferrule.Unanswered, true)
		d.release <- struct{}{}
	}
	d.echoes("not held")
}

func cancelled(t *testing.T, d *device) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	_, err := d.call(ctx, "hold", "{}")
	d.want(err, ferrule.Cancelled, true)
	d.release <- struct{}{}
	d.echoes("after")
}

func broken(t *testing.T, d *device) {
	time.AfterFunc(time.Second, func() { d.far.Close() })
	_, err := d.call(t.Context(), "hold", "{}")
	d.want(err, ferrule.Unanswered, true)
	if err := <-d.ran; err == nil {
		t.Error("Run returned nil after the link broke")
	}
}

func gone(t *testing.T, d *device) {
	d.far.Close()
	<-d.ran
	_, err := d.call(t.Context(), "echo", "{}")
	d.want(err, ferrule.Offline, false)
}

func ended(t *testing.T, d *device) {
	time.AfterFunc(time.Second, d.stop)
	_, err := d.call(t.Context(), "hold", "{}")
	d.want(err, ferrule.Unanswered, true)
	if err := <-d.ran; err != nil {
		t.Errorf("Run returned %v, want nil when its context ends", err)
	}
	if _, err := d.far.Write([]byte("x")); err == nil {
		t.Error("the link was not closed")
	}
}

func foreign(t *testing.T, s Subject, peer func(io.ReadWriteCloser)) {
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
		t.Errorf("the greeting succeeded: %v", session)
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
		t.Error("a silent peer was greeted")
	}
	if took := time.Since(start); took > 100*time.Millisecond {
		t.Errorf("the greeting took %v", took)
	}
	link.Close()
	far.Close()
}
