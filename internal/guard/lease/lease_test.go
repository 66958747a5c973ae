package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// board is a device with pins that its tool write sets.
type board struct {
	mu    sync.Mutex
	pins  map[string]bool
	calls []string
	// fail returns the outcome of a call that switches off; it may be nil. The pin is set
	// only if that is nil or the call may have run.
	fail func() error
	took time.Duration // from the end of a lease until it is confirmed
}

func (b *board) set(args map[string]any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pins == nil {
		b.pins = make(map[string]bool)
	}
	b.pins[fmt.Sprint(args["pin"])] = args["value"] == true
	b.calls = append(b.calls, fmt.Sprint(args["pin"], args["value"]))
}

// handle is the pipeline for calls that end leases.
func (b *board) handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	if !call.Urgent || call.Principal != principal || call.Tool != "write" || call.Device != "robot" {
		return nil, ferrule.Errorf(ferrule.Internal, "wrong call %+v", call)
	}
	var err error
	if b.fail != nil {
		err = b.fail()
	}
	if err == nil || ferrule.AsError(err).MayHaveRun() {
		b.set(decodeArgs(call.Args))
	}
	time.Sleep(b.took)
	return &ferrule.Result{}, err
}

func (b *board) high(pin string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pins[pin]
}

func (b *board) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.calls)
}

var robot = &ferrule.Device{ID: "robot", Address: "10.0.0.1:1", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}

// leased is a manifest whose tool write is on for ten minutes.
func leased() *ferrule.Manifest {
	check := func(args map[string]any) []string {
		if _, ok := args["pin"].(json.Number); !ok {
			return []string{"pin must be a number"}
		}
		return nil
	}
	return &ferrule.Manifest{Tools: []ferrule.Tool{
		{Name: "write", Effect: ferrule.Changes, Check: check, Lease: &ferrule.Lease{
			For:  ferrule.Duration(10 * time.Minute),
			Then: ferrule.Undo{Tool: "write", Args: map[string]any{"pin": "$pin", "value": false}},
		}},
		{Name: "read", Effect: ferrule.Reads},
		{Name: "other", Effect: ferrule.Changes},
	}}
}

func callOf(t testing.TB, tool, args string) *ferrule.Call {
	t.Helper()
	m := leased()
	call := &ferrule.Call{Device: "robot", Tool: tool, Session: "boot-1", Target: ferrule.Target{Device: robot, Manifest: m, Tool: m.Tool(tool)}}
	if call.DecodedArgs = decodeArgs([]byte(args)); call.DecodedArgs == nil {
		t.Fatalf("invalid arguments %s", args)
	}
	return call
}

// node is a running keeper.
type node struct {
	*Keeper
	t    testing.TB
	stop func()
}

func start(t testing.TB, p Parts) *node {
	t.Helper()
	if p.Node == "" {
		p.Node = "a"
	}
	if p.Boot == "" {
		p.Boot = "boot"
	}
	if p.Log == nil {
		p.Log = quiet
	}
	k, err := Open(p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		k.Run(ctx)
		close(done)
	}()
	n := &node{Keeper: k, t: t}
	n.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		k.Close()
	})
	t.Cleanup(n.stop)
	return n
}

// kill ends a node as SIGKILL does: it ends no lease and writes nothing more.
func (n *node) kill() {
	n.Keeper.Close()
	n.mu.Lock()
	n.running = nil
	clear(n.leases)
	n.mu.Unlock()
}

// call makes a call of write whose outcome is err.
func (n *node) call(b *board, call *ferrule.Call, err error) error {
	if refused := n.Await(n.t.Context(), call); refused != nil {
		return refused
	}
	leave, refused := n.Enter(call, 0, "")
	if refused != nil {
		return refused
	}
	if err == nil || ferrule.AsError(err).MayHaveRun() {
		b.set(call.DecodedArgs)
	}
	leave(err)
	return err
}

// TestExpiry checks that a lease ends to the instant, that a renewal counts from its call,
// and that a call that switches off ends it without another call.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		n := start(t, Parts{File: filepath.Join(t.TempDir(), "leases"), Handle: b.handle})
		n.Put(robot, nil)
		on := callOf(t, "write", `{"pin":13,"value":true}`)
		n.call(b, on, nil)
		time.Sleep(5 * time.Minute)
		n.call(b, callOf(t, "write", `{"pin":13.0,"value":true}`), nil) // the same pin
		n.call(b, callOf(t, "write", `{"pin":9,"value":true}`), nil)
		if open, _ := n.Count(); open != 2 {
			t.Errorf("%d leases are open, want 2", open)
		}
		time.Sleep(10*time.Minute - 1)
		synctest.Wait()
		if !b.high("13.0") || b.count() != 3 {
			t.Errorf("it ended too early: %v", b.calls)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if b.high("13.0") || b.high("9") || b.count() != 5 {
			t.Errorf("it did not end: %v", b.calls)
		}
		n.call(b, on, nil)
		n.call(b, callOf(t, "write", `{"pin":13,"value":false}`), nil)
		if open, _ := n.Count(); open != 0 || b.high("13") {
			t.Errorf("%d leases are open after it was switched off", open)
		}
		time.Sleep(time.Hour)
		if b.count() != 7 {
			t.Errorf("there was another call: %v", b.calls)
		}
	})
}

// TestOutcomes checks what a call leaves behind, by its outcome.
func TestOutcomes(t *testing.T) {
	offline := ferrule.Errorf(ferrule.Offline, "offline")
	unanswered := ferrule.Errorf(ferrule.Unanswered, "unanswered")
	for name, test := range map[string]struct {
		calls []string
		errs  []error
		open  int
		ends  time.Duration // after the last call
	}{
		"did not run":             {[]string{`{"pin":1,"value":true}`}, []error{offline}, 0, 0},
		"may have run":            {[]string{`{"pin":1,"value":true}`}, []error{unanswered}, 1, 10 * time.Minute},
		"unknown error":           {[]string{`{"pin":1,"value":true}`}, []error{errors.New("?")}, 1, 10 * time.Minute},
		"renewal did not run":     {[]string{`{"pin":1,"value":true}`, `{"pin":1,"value":true}`}, []error{nil, offline}, 1, 9 * time.Minute},
		"off did not run":         {[]string{`{"pin":1,"value":true}`, `{"pin":1,"value":false}`}, []error{nil, offline}, 1, 9 * time.Minute},
		"off may have run":        {[]string{`{"pin":1,"value":true}`, `{"pin":1,"value":false}`}, []error{nil, unanswered}, 1, 9 * time.Minute},
		"off of another pin":      {[]string{`{"pin":1,"value":true}`, `{"pin":2,"value":false}`}, []error{nil, nil}, 1, 9 * time.Minute},
		"off":                     {[]string{`{"pin":1,"value":true}`, `{"pin":1,"value":false}`}, []error{nil, nil}, 0, 0},
		"an unusual value is on":  {[]string{`{"pin":1,"value":0}`}, []error{nil}, 1, 10 * time.Minute},
		"a missing value is on":   {[]string{`{"pin":1}`}, []error{nil}, 1, 10 * time.Minute},
		"nothing can be undone":   {[]string{`{"value":true}`}, []error{nil}, 0, 0},
		"undo would be malformed": {[]string{`{"pin":"x","value":true}`}, []error{nil}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &board{}
				path := filepath.Join(t.TempDir(), "leases")
				n := start(t, Parts{File: path, Handle: b.handle})
				n.Put(robot, nil)
				for i, args := range test.calls {
					if i > 0 {
						time.Sleep(time.Minute)
					}
					n.call(b, callOf(t, "write", args), test.errs[i])
				}
				if open, _ := n.Count(); open != test.open || len(n.file.All()) != test.open {
					t.Fatalf("%d leases are open and %d on disk, want %d", open, len(n.file.All()), test.open)
				}
				if test.open == 0 {
					return
				}
				time.Sleep(test.ends - 1)
				synctest.Wait()
				if open, _ := n.Count(); open != 1 {
					t.Error("it ended too early")
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if open, _ := n.Count(); open != 0 || b.high("1") {
					t.Error("it did not end")
				}
			})
		})
	}
}

// TestUntilConfirmed checks that the end is repeated until the device confirms it, waits
// for a device that is away, and that other changes wait meanwhile.
func TestUntilConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := []error{
			ferrule.Errorf(ferrule.Unanswered, "unanswered"), ferrule.Errorf(ferrule.Failed, "failed"),
			ferrule.Errorf(ferrule.Busy, "busy"), ferrule.Errorf(ferrule.Refused, "refused"), errors.New("?"),
		}
		b := &board{}
		b.fail = func() error {
			if len(failures) == 0 {
				return nil
			}
			err := failures[0]
			failures = failures[1:]
			return err
		}
		n := start(t, Parts{File: filepath.Join(t.TempDir(), "leases"), Handle: b.handle})
		n.Put(robot, nil)
		n.call(b, callOf(t, "write", `{"pin":1,"value":true}`), nil)
		gone := *robot
		gone.State = ferrule.StateOffline
		n.Put(&gone, nil)
		time.Sleep(15 * time.Minute)
		if b.count() != 1 {
			t.Error("a device that is away was called")
		}
		waiting, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for tool, waits := range map[string]bool{"other": true, "read": false} {
			if err := n.Await(waiting, callOf(t, tool, `{}`)); (err != nil) != waits || err != nil && ferrule.AsError(err).Code != ferrule.Busy {
				t.Errorf("%s: %v", tool, err)
			}
		}
		if err := n.Await(waiting, callOf(t, "write", `{"pin":1,"value":false}`)); err != nil {
			t.Errorf("switching off waits: %v", err)
		}
		done := make(chan error)
		go func() { done <- n.Await(t.Context(), callOf(t, "write", `{"pin":2,"value":true}`)) }()
		n.Put(robot, nil)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if open, _ := n.Count(); open != 0 || len(failures) != 0 || b.high("1") {
			t.Errorf("%d open, %d failures left, %v", open, len(failures), b.calls)
		}
	})
}

// TestSession checks that a lease ends with the session of its caller, whenever that ends.
func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		n := start(t, Parts{File: filepath.Join(t.TempDir(), "leases"), Handle: b.handle})
		n.Put(robot, nil)
		on := callOf(t, "write", `{"pin":1,"value":true}`)
		n.call(b, on, nil)
		n.SessionEnded("boot-2")
		n.SessionEnded("")
		synctest.Wait()
		if !b.high("1") {
			t.Fatal("it ended with another session")
		}
		n.SessionEnded("boot-1")
		synctest.Wait()
		if b.high("1") {
			t.Fatal("it did not end with its session")
		}
		n.call(b, on, nil) // it was under way
		synctest.Wait()
		if b.high("1") {
			t.Error("a lease of a session that has ended stays")
		}
		on.Session = ""
		n.call(b, on, nil)
		n.SessionEnded("")
		time.Sleep(9 * time.Minute)
		if !b.high("1") {
			t.Error("a lease without a session ended early")
		}
	})
}

// TestInFlight checks that a call that may run after its lease was ended is undone again.
func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		n := start(t, Parts{File: filepath.Join(t.TempDir(), "leases"), Handle: b.handle})
		n.Put(robot, nil)
		call := callOf(t, "write", `{"pin":1,"value":true}`)
		leave, err := n.Enter(call, time.Second, "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if open, due := n.Count(); open != 1 || due != 1 || b.count() != 1 {
			t.Errorf("%d open, %d due, %d calls", open, due, b.count())
		}
		b.set(call.DecodedArgs) // it waited in a queue
		leave(nil)
		synctest.Wait()
		if open, _ := n.Count(); open != 0 || b.high("1") {
			t.Errorf("%d open, %v", open, b.calls)
		}

		b.took = time.Second // the call runs and ends while the end is not confirmed yet
		if leave, err = n.Enter(call, time.Second, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		b.set(call.DecodedArgs)
		leave(nil)
		time.Sleep(time.Minute)
		if open, _ := n.Count(); open != 0 || b.high("1") {
			t.Errorf("%d open, %v", open, b.calls)
		}
	})
}

// TestRestart checks that a restarted node ends what an earlier run left behind before
// anything else changes, and that one that stops in order ends its leases first.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		p := Parts{File: filepath.Join(t.TempDir(), "leases"), Handle: b.handle}
		n := start(t, p)
		n.Put(robot, nil)
		n.call(b, callOf(t, "write", `{"pin":1,"value":true}`), nil)
		n.kill()
		n = start(t, p)
		synctest.Wait()
		if _, due := n.Count(); due != 1 || !b.high("1") {
			t.Fatal("the lease is not due")
		}
		go func() {
			time.Sleep(time.Second)
			n.Put(robot, nil)
		}()
		if err := n.Await(t.Context(), callOf(t, "other", `{}`)); err != nil || b.high("1") {
			t.Errorf("another change came first: %v", err)
		}
		n.call(b, callOf(t, "write", `{"pin":1,"value":true}`), nil)
		n.stop()
		if b.high("1") {
			t.Error("a lease was left open in order")
		}
		if n = start(t, p); len(n.leases) != 0 {
			t.Error("an ended lease is on disk")
		}
	})
}

// TestFullDisk checks that a call is refused if its lease cannot be recorded.
func TestFullDisk(t *testing.T) {
	b := &board{}
	n := start(t, Parts{File: filepath.Join(t.TempDir(), "leases"), Handle: b.handle})
	n.file.Close()
	err := n.call(b, callOf(t, "write", `{"pin":1,"value":true}`), nil)
	if err == nil || ferrule.AsError(err).Code != ferrule.Denied || b.count() != 0 {
		t.Errorf("got %v, %d calls", err, b.count())
	}
	if open, _ := n.Count(); open != 0 {
		t.Error("a refused call has a lease")
	}
}

// hung is a disk that hangs until it is released.
type hung struct {
	store
	waits    chan struct{} // receives something when the disk hangs
	released chan struct{}
}

func (h hung) wait() {
	h.waits <- struct{}{}
	<-h.released
}

func (h hung) Put(key string, value any) error {
	h.wait()
	return h.store.Put(key, value)
}

func (h hung) Delete(key string) error {
	h.wait()
	return h.store.Delete(key)
}

// TestHungDisk checks that a disk that hangs blocks neither calls without a lease, nor the
// fleet, nor the records of other nodes, whatever it hangs in.
func TestHungDisk(t *testing.T) {
	onCall, offCall := callOf(t, "write", `{"pin":1,"value":true}`), callOf(t, "write", `{"pin":1,"value":false}`)
	for name, hang := range map[string]func(n *node){
		"new lease": func(n *node) {
			if leave, err := n.Enter(callOf(t, "write", `{"pin":2,"value":true}`), 0, ""); err == nil {
				leave(nil)
			}
		},
		"switched off": func(n *node) {
			if leave, err := n.Enter(offCall, 0, ""); err == nil {
				leave(nil)
			}
		},
		"session ended": func(n *node) { n.SessionEnded("boot-1") },
		"forgotten":     func(n *node) { n.Forget("robot") },
	} {
		t.Run(name, func(t *testing.T) {
			b := &board{}
			h := hung{waits: make(chan struct{}, 9), released: make(chan struct{})}
			n := start(t, Parts{File: filepath.Join(t.TempDir(), "leases"), Handle: b.handle, SwitchedOff: func(string) { h.wait() }})
			n.Put(robot, nil)
			leave, err := n.Enter(onCall, 0, "output")
			if err != nil {
				t.Fatal(err)
			}
			leave(nil)
			n.writing.Lock()
			h.store = n.file
			n.file = h
			n.writing.Unlock()
			go hang(n)
			defer close(h.released)
			await(t, h.waits)
			done := make(chan struct{})
			go func() {
				defer close(done)
				other := callOf(t, "other", `{}`)
				other.Target.Device = &ferrule.Device{ID: "lamp", Address: "lamp"}
				if err := n.Await(t.Context(), other); err != nil {
					t.Error(err)
				}
				n.Put(other.Target.Device, nil)
				n.Remove("lamp")
				n.SessionEnded("boot-5")
				n.Count()
				r := record{ID: "1", Node: "a", Device: "robot", Undo: "write", Args: []byte(`{}`), Ended: true}
				value, _ := json.Marshal(r)
				n.heard(leasePrefix+r.key(), value)
			}()
			await(t, done)
		})
	}
}

func await(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(wait.Ample):
		t.Fatal("it hangs")
	}
}

// TestOtherHardware checks that a lease is ended at the hardware that it is for, and that
// it goes with a device that is forgotten.
func TestOtherHardware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		var log strings.Builder
		n := start(t, Parts{File: filepath.Join(t.TempDir(), "leases"), Handle: b.handle, Log: slog.New(slog.NewTextHandler(&log, nil))})
		n.Put(robot, nil)
		on := callOf(t, "write", `{"pin":1,"value":true}`)
		n.call(b, on, nil)
		other := *robot
		other.Address = "10.0.0.2:1"
		n.Put(&other, nil)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if b.count() != 1 || !strings.Contains(log.String(), "output of the earlier hardware may still be on") {
			t.Errorf("other hardware was called: %v, %s", b.calls, log.String())
		}
		call := callOf(t, "other", `{}`)
		call.Target.Device = &other
		if err := n.Await(t.Context(), call); err != nil {
			t.Errorf("other hardware waits: %v", err)
		}
		n.Put(robot, nil)
		synctest.Wait()
		if open, _ := n.Count(); open != 0 || b.high("1") {
			t.Errorf("%d leases are open, %v", open, b.calls)
		}

		n.call(b, on, nil)
		n.Remove("robot")
		n.Forget("arm")
		if open, _ := n.Count(); open != 1 {
			t.Error("the lease of another device was forgotten")
		}
		n.Forget("arm", "robot")
		if open, _ := n.Count(); open != 0 || len(n.file.All()) != 0 || !strings.Contains(log.String(), "forgotten, so its lease is not ended: the output may still be on") {
			t.Errorf("%d leases are open; the log is %s", open, log.String())
		}
	})
}

// TestAwaitErrors checks what a call that waits for a due lease is told.
func TestAwaitErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{fail: func() error {
			return ferrule.Errorf(ferrule.Denied, "its tools changed").WithHint("run `ferrule diff robot`")
		}}
		n := start(t, Parts{File: filepath.Join(t.TempDir(), "leases"), Handle: b.handle})
		n.Put(robot, nil)
		n.call(b, callOf(t, "write", `{"pin":1,"value":true}`), nil)
		n.SessionEnded("boot-1")
		synctest.Wait()
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e := ferrule.AsError(n.Await(late, callOf(t, "other", `{}`)))
		if e.Code != ferrule.Busy || !strings.HasSuffix(e.Message, "not confirmed yet: its tools changed") || !strings.Contains(e.Hint, "ferrule diff") {
			t.Errorf("got %s: %s; %s", e.Code, e.Message, e.Hint)
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if e := ferrule.AsError(n.Await(stopped, callOf(t, "other", `{}`))); e.Code != ferrule.Cancelled || e.MayHaveRun() {
			t.Errorf("after a stop: %s: %s", e.Code, e.Message)
		}
	})
}

// TestRefusedUndo: a device that refuses to undo a call is not locked for other changes for
// ever, and callers cannot make any number of leases.
func TestRefusedUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{fail: func() error { return ferrule.Errorf(ferrule.Failed, "there is no pin 999") }}
		n := start(t, Parts{File: filepath.Join(t.TempDir(), "leases"), Handle: b.handle})
		n.Put(robot, nil)
		n.call(b, callOf(t, "write", `{"pin":999,"value":true}`), nil)
		n.SessionEnded("boot-1")
		synctest.Wait()
		late, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := n.Await(late, callOf(t, "other", `{}`)); err != nil {
			t.Errorf("other changes wait for ever: %v", err)
		}
		for pin := range maxOfDevice + 10 {
			n.call(b, callOf(t, "write", fmt.Sprintf(`{"pin":%d,"value":true}`, pin)), nil)
		}
		if open, _ := n.Count(); open != maxOfDevice {
			t.Errorf("%d leases are open", open)
		}
	})
}

// TestRefusals checks that a call is refused if it could not be undone, or if other nodes
// could not know how, unless it switches off.
func TestRefusals(t *testing.T) {
	b := &board{}
	n := start(t, Parts{File: filepath.Join(t.TempDir(), "leases"), Handle: b.handle})
	on, off := callOf(t, "write", `{"pin":1,"value":true}`), callOf(t, "write", `{"pin":1,"value":false}`)
	for _, call := range []*ferrule.Call{on, off} {
		call.Target.Manifest = leased()
		call.Target.Manifest.Tool("write").Quarantine = "it changed"
	}
	if err := n.call(b, on, nil); err == nil || ferrule.AsError(err).Code != ferrule.Denied {
		t.Errorf("a call that cannot be undone: %v", err)
	}
	if err := n.call(b, off, nil); err != nil {
		t.Errorf("switching off: %v", err)
	}
	off = callOf(t, "write", `{"value":false}`)
	off.Target.Tool.Lease.Off = map[string]any{"value": false}
	if err := n.call(b, off, nil); err != nil {
		t.Errorf("switching off something unknown: %v", err)
	}
	long := callOf(t, "write", `{"pin":1`+strings.Repeat("0", 4000)+`,"value":true}`)
	if err := n.call(b, long, nil); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("arguments that cannot be shared: %v", err)
	}
	if open, _ := n.Count(); open != 0 {
		t.Errorf("%d leases are open", open)
	}
}

// memory is a Shared in memory. Each node has a view of it.
type memory struct {
	mu       sync.Mutex
	values   map[string][]byte
	watchers map[*view]func(key string, value []byte)
}

type view struct {
	*memory
	cut atomic.Bool
}

func (m *memory) change(key string, value []byte) error {
	m.mu.Lock()
	if value == nil {
		delete(m.values, key)
	} else {
		m.values[key] = value
	}
	watchers := maps.Clone(m.watchers)
	m.mu.Unlock()
	for v, fn := range watchers {
		if !v.cut.Load() {
			fn(key, value)
		}
	}
	return nil
}

func (v *view) Put(key string, value []byte) error {
	if v.cut.Load() {
		return errors.New("cut off")
	}
	return v.change(key, value)
}
func (v *view) Delete(key string) error { return v.Put(key, nil) }
func (v *view) Watch(fn func(key string, value []byte)) {
	v.mu.Lock()
	v.watchers[v] = fn
	values := maps.Clone(v.values)
	v.mu.Unlock()
	for key, value := range values {
		fn(key, value)
	}
}

// TestOtherNode checks what other nodes do: one that gets the device of a dead node ends
// its leases, and one whose caller is gone says so.
func TestOtherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		shared := &memory{values: make(map[string][]byte), watchers: make(map[*view]func(string, []byte))}
		alive := map[string]bool{"a": true, "b": true}
		var mu sync.Mutex
		on := func(name, boot, file string) (*node, *view) {
			v := &view{memory: shared}
			return start(t, Parts{File: file, Node: name, Boot: boot, Handle: b.handle, Shared: v, Alive: func(node string) bool {
				mu.Lock()
				defer mu.Unlock()
				return alive[node]
			}}), v
		}
		dir := t.TempDir()
		fileA := filepath.Join(dir, "a")
		a, viewA := on("a", "boot", fileA)
		other, _ := on("b", "twin", filepath.Join(dir, "b"))
		a.Put(robot, nil)

		switchOn := func(n *node, session, via string) {
			t.Helper()
			call := callOf(t, "write", `{"pin":1,"value":true}`)
			call.Session, call.Via = session, via
			if err := n.call(b, call, nil); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if !b.high("1") {
				t.Fatal("it is off")
			}
		}
		isOff := func(why string) {
			t.Helper()
			synctest.Wait()
			if open, _ := a.Count(); open != 0 || b.high("1") || len(shared.values) != 0 {
				t.Fatalf("%s: %d leases are open, high is %t, %d records are shared", why, open, b.high("1"), len(shared.values))
			}
		}

		switchOn(a, "twin-7", "b")
		other.SessionEnded("twin-7")
		isOff("the caller's session on another node ended")

		switchOn(a, "twin-8", "b")
		mu.Lock()
		alive["b"] = false
		mu.Unlock()
		time.Sleep(nodeCheck)
		isOff("the caller's node ended")
		mu.Lock()
		alive["b"] = true
		mu.Unlock()

		call := callOf(t, "write", `{"pin":1,"value":true}`)
		call.Session, call.Via = "twin of another run-1", "b"
		a.call(b, call, nil)
		isOff("the caller's node was restarted")

		switchOn(a, "boot-1", "")
		local := *robot
		local.Local = true
		other.Put(&local, nil)
		elsewhere := *robot
		elsewhere.Address = "other hardware"
		other.Put(&elsewhere, nil)
		synctest.Wait()
		if !b.high("1") {
			t.Fatal("the lease of other hardware was ended")
		}
		slow := callOf(t, "write", `{"pin":3,"value":true}`)
		leave, err := a.Enter(slow, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		if len(shared.values) != 2 {
			t.Error("a call may be sent before other nodes know its lease")
		}
		leave(ferrule.Errorf(ferrule.Offline, "offline"))
		viewA.cut.Store(true)
		began := time.Now()
		if leave, err = a.Enter(slow, 0, ""); err != nil || time.Since(began) > time.Second {
			t.Errorf("without other nodes, a call waits for %v: %v", time.Since(began), err)
		}
		leave(ferrule.Errorf(ferrule.Offline, "offline"))
		a.kill()
		other.Put(robot, nil)
		synctest.Wait()
		if open, _ := other.Count(); b.high("1") || open != 0 {
			t.Fatal("the other node did not end the lease")
		}
		calls := b.count()
		switchOnB := callOf(t, "write", `{"pin":2,"value":true}`)
		switchOnB.Session = "twin-9"
		other.call(b, switchOnB, nil)
		a, _ = on("a", "again", fileA)
		synctest.Wait()
		if open, _ := a.Count(); open != 0 {
			t.Error("the first node does not know that its lease was ended")
		}
		if b.count() != calls+1 || !b.high("2") {
			t.Errorf("unexpected calls: %v", b.calls[calls:])
		}
		other.stop()
		isOff("the other node stopped")
	})
}

// TestRandom runs random callers against a keeper that is killed and restarted, with a device
// that does not always confirm, and checks that every output is off in the end.
func TestRandom(t *testing.T) {
	for round := range 40 {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(3, uint64(round)))
			b := &board{}
			var mu sync.Mutex
			luck := rand.New(rand.NewPCG(5, uint64(round)))
			b.fail = func() error {
				mu.Lock()
				defer mu.Unlock()
				switch luck.IntN(6) {
				case 0:
					return ferrule.Errorf(ferrule.Unanswered, "unanswered")
				case 1:
					return ferrule.Errorf(ferrule.Offline, "offline")
				}
				return nil
			}
			p := Parts{File: filepath.Join(t.TempDir(), "leases"), Handle: b.handle}
			n := start(t, p)
			for range 3 {
				n.Put(robot, nil)
				var wg sync.WaitGroup
				for caller := range 3 {
					seed := random.Uint64()
					wg.Go(func() {
						own := rand.New(rand.NewPCG(4, seed))
						for range 4 {
							time.Sleep(time.Duration(own.IntN(600)) * time.Second)
							call := callOf(t, "write", fmt.Sprintf(`{"pin":%d,"value":%t}`, own.IntN(2), own.IntN(3) > 0))
							call.Session = fmt.Sprint("boot-", caller)
							outcome := []error{nil, nil, ferrule.Errorf(ferrule.Unanswered, ""), ferrule.Errorf(ferrule.Offline, "")}[own.IntN(4)]
							n.call(b, call, outcome)
							if own.IntN(5) == 0 {
								n.SessionEnded(call.Session)
							}
						}
					})
				}
				wg.Wait()
				if random.IntN(2) == 0 {
					n.kill()
					n = start(t, p)
				}
			}
			n.Put(robot, nil)
			time.Sleep(11 * time.Minute)
			synctest.Wait()
			if open, _ := n.Count(); open != 0 || b.high("0") || b.high("1") {
				t.Fatalf("round %d: %d leases are open, %v", round, open, b.pins)
			}
		})
	}
}

// FuzzRecord checks that any record of a file or of another node is rejected or usable.
func FuzzRecord(f *testing.F) {
	f.Add("lease.0", []byte(`{"id":"1","node":"b","device":"robot","address":"x","undo":"write","args":{"pin":1e999},"until":"2026-01-01T00:00:00Z"}`))
	f.Add("gone.0", []byte(`{"session":"s","via":"b"}`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		if r, ok := parseRecord(value); ok {
			if r.ID == "" || r.Undo == "" || len(r.key()) != 32 || ferrule.CheckID(r.Device) != nil {
				t.Errorf("%+v", r)
			}
			if strings.HasPrefix(key, leasePrefix) {
				key = leasePrefix + r.key()
			}
		}
		k, err := Open(Parts{File: filepath.Join(t.TempDir(), "leases"), Node: "a", Boot: "boot", Log: quiet, Shared: &view{memory: &memory{}}})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		k.Put(robot, nil)
		k.heard(key, value)
		k.heard(key, nil)
	})
}
