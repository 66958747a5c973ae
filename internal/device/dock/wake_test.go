package dock_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// waits lets calls wait for a device.
func waits(p *dock.Parts) { p.Config.Wait = dock.DefaultConfig().Wait }

// powerOff breaks the link of a board, and refuses others.
func (b *board) powerOff() {
	b.set(func(b *board) { b.refuse = errors.New("no route to host") })
	b.hangUp()
}

func (b *board) powerOn() { b.set(func(b *board) { b.refuse = nil }) }

// TestFirstCallAfterPowerCut checks that the first call after a power cut succeeds,
// however long the back-off is by then, and that each call is sent once.
func TestFirstCallAfterPowerCut(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir, waits)
		sent := 0
		b := &board{address: "a1", model: "demo", invoke: func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			sent++
			return &ferrule.Result{Value: json.RawMessage(`1`)}, nil
		}}
		w.transport.see("g", named(b, "robot"))
		for round := range 100 {
			b.powerOff()
			time.Sleep(3 * time.Second)
			if w.device("robot").State != ferrule.StateOffline {
				t.Fatal("it is online without power")
			}
			b.powerOn()
			begun := time.Now()
			if _, err := w.call(t.Context(), ferrule.Agent, "robot", "move"); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if took := time.Since(begun); took > dock.DefaultConfig().RetryMin+10*time.Millisecond {
				t.Errorf("round %d: the call took %v", round, took)
			}
			if sent != round+1 {
				t.Fatalf("round %d: %d calls were sent", round, sent)
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestCallWaits checks how long a call waits for a device that is away, and how often the
// dock tries to connect it meanwhile.
func TestCallWaits(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir, waits)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", named(b, "robot"))
		call := func(role ferrule.Role, want ferrule.Code, waited time.Duration) (attempts int) {
			t.Helper()
			before, begun := b.get(&b.opened), time.Now()
			_, err := w.call(t.Context(), role, "robot", "move")
			if took := time.Since(begun).Round(100 * time.Millisecond); err == nil != (want == "") || err != nil && ferrule.AsError(err).Code != want || took != waited {
				t.Errorf("got %v after %v", err, took)
			}
			return b.get(&b.opened) - before
		}
		b.powerOff()
		time.Sleep(20 * time.Second)
		if n := call(ferrule.Agent, ferrule.Offline, 5*time.Second); n < 10 || n > 25 { // every 250 ms
			t.Errorf("%d attempts to connect", n)
		}
		call(ferrule.Gateway, ferrule.Offline, 0)
		time.AfterFunc(2*time.Second, b.powerOn)
		before := time.Now()
		if _, err := w.call(t.Context(), ferrule.Agent, "robot", "move"); err != nil || time.Since(before) > 2300*time.Millisecond {
			t.Errorf("got %v after %v", err, time.Since(before))
		}
		// After the grace period, one attempt is enough.
		b.powerOff()
		time.Sleep(time.Hour)
		if n := call(ferrule.Agent, ferrule.Offline, 0); n != 1 {
			t.Errorf("%d attempts to connect", n)
		}
		b.powerOn()
		time.Sleep(time.Second)
		call(ferrule.Agent, "", 0)
		// A caller may leave.
		b.powerOff()
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := w.call(ctx, ferrule.Agent, "robot", "move"); ferrule.AsError(err).Code != ferrule.Cancelled || ferrule.AsError(err).MayHaveRun() {
			t.Errorf("got %v", err)
		}
	})
}

// TestCallWaitsForReplug checks that a call waits for a board that is out of sight for a
// moment, and not for one that is gone.
func TestCallWaitsForReplug(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir, waits)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", named(b, "robot"))
		w.transport.see("g")
		w.wantIDs("robot:offline")
		again := named(b, "robot")
		again.Instance = 2
		time.AfterFunc(3*time.Second, func() {
			w.transport.updates <- func(update func(string, []transport.Sighting)) { update("g", []transport.Sighting{again}) }
		})
		if _, err := w.call(t.Context(), ferrule.Agent, "robot", "move"); err != nil {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		w.transport.see("g")
		begun := time.Now()
		if _, err := w.call(t.Context(), ferrule.Agent, "robot", "move"); ferrule.AsError(err).Code != ferrule.Offline || time.Since(begun) != 5*time.Second {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
		time.Sleep(time.Minute)
		begun = time.Now()
		if _, err := w.call(t.Context(), ferrule.Agent, "robot", "move"); ferrule.AsError(err).Code != ferrule.Offline || time.Since(begun) > 100*time.Millisecond {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
	})
}

// TestCallWaitsForPort checks that a call also waits for a configured port: while it is
// unplugged, it is reported as absent.
func TestCallWaitsForPort(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir, waits)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", named(b, "robot"))
		unplugged := named(b, "robot")
		unplugged.Instance, unplugged.Absent = 2, "unplugged: the port does not exist"
		w.transport.see("g", unplugged)
		w.wantIDs("robot:offline")
		again := named(b, "robot")
		again.Instance = 3
		time.AfterFunc(3*time.Second, func() {
			w.transport.updates <- func(update func(string, []transport.Sighting)) { update("g", []transport.Sighting{again}) }
		})
		if _, err := w.call(t.Context(), ferrule.Agent, "robot", "move"); err != nil {
			t.Errorf("got %v", err)
		}
	})
}

// TestSentCallDoesNotWait checks that a call which was sent is not sent again when the
// device is back.
func TestSentCallDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir, waits)
		sent := 0
		var b *board
		b = &board{address: "a1", model: "demo", invoke: func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			sent++
			b.hangUp()
			return nil, ferrule.Errorf(ferrule.Unanswered, "no answer")
		}}
		w.transport.see("g", named(b, "robot"))
		if _, err := w.call(t.Context(), ferrule.Agent, "robot", "move"); ferrule.AsError(err).Code != ferrule.Unanswered || sent != 1 {
			t.Errorf("got %v, and it was sent %d times", err, sent)
		}
	})
}

// TestRetry checks that a device is connected at once, or that the reason is returned.
func TestRetry(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", named(b, "robot"))
		retry := func(id, want string) {
			t.Helper()
			begun := time.Now()
			err := w.dock.Retry(t.Context(), id)
			if err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) || time.Since(begun) > time.Second {
				t.Errorf("got %v after %v", err, time.Since(begun))
			}
		}
		retry("robot", "")
		if n := b.get(&b.opened); n != 1 {
			t.Errorf("a device that is online was opened %d times", n)
		}
		b.powerOff()
		time.Sleep(time.Hour)
		retry("robot", "no route to host")
		b.powerOn()
		retry("robot", "")
		w.wantIDs("robot:online")
		retry("nobody", "there is no device")
		if err := w.dock.Release(t.Context(), "robot", time.Minute); err != nil {
			t.Fatal(err)
		}
		retry("robot", "is released for other programs")
		w.transport.see("g")
		retry("robot", "no longer in reach")
	})
}
