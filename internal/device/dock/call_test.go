package dock_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// slow makes a board take a second for each call, and records what it did.
func slow(b *board, did *[]string) {
	b.invoke = func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		time.Sleep(time.Second)
		*did = append(*did, call.Tool+" "+string(call.Args))
		return &ferrule.Result{Value: json.RawMessage("1")}, nil
	}
}

// later starts a call and returns a pointer to its error.
func (w *world) later(ctx context.Context, wg *sync.WaitGroup, role ferrule.Role, tool, args string, told *[]string) *error {
	var result error
	dev, m, _ := w.fleet.Lookup("robot")
	wg.Go(func() {
		_, result = w.send(ctx, &ferrule.Call{
			Device: "robot", Tool: tool, Args: json.RawMessage(args), Principal: ferrule.Principal{Role: role},
			Target:   ferrule.Target{Device: dev, Tool: m.Tool(tool)},
			Progress: func(p ferrule.Progress) { *told = append(*told, p.Message) },
		})
	})
	synctest.Wait()
	return &result
}

// TestLane checks that calls run one at a time in order of arrival, the gateway's
// own reads last, and that the queue is limited.
func TestLane(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		var did, told []string
		slow(b, &did)
		w.transport.see("g", named(b, "robot"))
		var wg sync.WaitGroup
		ctx := t.Context()
		w.later(ctx, &wg, ferrule.Agent, "move", "1", &told)
		w.later(ctx, &wg, ferrule.Gateway, "look", "2", &told)
		w.later(ctx, &wg, ferrule.Agent, "move", "3", &told)
		w.later(ctx, &wg, ferrule.Person, "move", "4", &told)
		refused := w.later(ctx, &wg, ferrule.Agent, "move", "5", &told)
		wg.Wait()
		if got := strings.Join(did, ", "); got != "move 1, move 3, move 4, look 2" {
			t.Errorf("did %s", got)
		}
		if e := ferrule.AsError(*refused); e.Code != ferrule.Busy || e.MayHaveRun() {
			t.Errorf("got %+v", e)
		}
		if got := strings.Join(told, ", "); got != "waiting for robot: 1 ahead, waiting for robot: 1 ahead, waiting for robot: 2 ahead" {
			t.Errorf("told %s", got)
		}
	})
}

// TestLaneCancelled checks that a caller that leaves the queue has sent nothing and
// is skipped.
func TestLaneCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		var did, told []string
		slow(b, &did)
		w.transport.see("g", named(b, "robot"))
		var wg sync.WaitGroup
		w.later(t.Context(), &wg, ferrule.Agent, "move", "1", &told)
		short, cancelShort := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancelShort()
		cancelled, cancel := context.WithCancel(t.Context())
		late := w.later(short, &wg, ferrule.Agent, "move", "2", &told)
		gone := w.later(cancelled, &wg, ferrule.Agent, "move", "3", &told)
		w.later(t.Context(), &wg, ferrule.Agent, "move", "4", &told)
		cancel()
		wg.Wait()
		if e := ferrule.AsError(*late); e.Code != ferrule.Busy || e.MayHaveRun() {
			t.Errorf("got %+v", e)
		}
		if e := ferrule.AsError(*gone); e.Code != ferrule.Cancelled || e.MayHaveRun() {
			t.Errorf("got %+v", e)
		}
		if got := strings.Join(did, ", "); got != "move 1, move 4" {
			t.Errorf("did %s", got)
		}
	})
}

// TestCancelledWhileReread checks that a caller that leaves while the device is being read
// again is told so, and that nothing was sent.
func TestCancelledWhileReread(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo", settled: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		var did, told []string
		slow(b, &did)
		w.transport.see("g", named(b, "robot"))
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		result := w.later(ctx, &wg, ferrule.Agent, "move", "1", &told)
		cancel()
		wg.Wait()
		if e := ferrule.AsError(*result); e.Code != ferrule.Cancelled || e.MayHaveRun() || len(did) > 0 {
			t.Errorf("got %+v, did %q", e, did)
		}
	})
}

// TestSentOnce checks that after a broken link a call is sent again only if it is
// repeatable.
func TestSentOnce(t *testing.T) {
	for _, test := range []struct {
		role  ferrule.Role
		tool  string
		calls int // number of calls
		fails int // number of broken links
		code  ferrule.Code
	}{
		{ferrule.Agent, "look", 2, 1, ""},
		{ferrule.Agent, "set", 2, 1, ""},
		{ferrule.Agent, "move", 1, 1, ferrule.Unanswered},
		{ferrule.Agent, "look", 2, 5, ferrule.Unanswered},
		{ferrule.Gateway, "look", 2, 1, ""},
		{ferrule.Gateway, "set", 1, 1, ferrule.Unanswered},
		{ferrule.Gateway, "move", 1, 1, ferrule.Unanswered},
	} {
		bubble(t, func(t *testing.T, dir string) {
			w := open(t, dir)
			b := &board{address: "a1", model: "demo"}
			asked := 0
			b.invoke = func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
				if asked++; asked <= test.fails {
					b.hangUp()
					return nil, ferrule.Errorf(ferrule.Unanswered, "the link broke")
				}
				return &ferrule.Result{Value: json.RawMessage("1")}, nil
			}
			w.transport.see("g", named(b, "robot"))
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err := w.call(ctx, test.role, "robot", test.tool)
			if asked != test.calls {
				t.Errorf("%s of %s was sent %d times, want %d", test.tool, test.role, asked, test.calls)
			}
			if test.code == "" && err != nil || test.code != "" && ferrule.AsError(err).Code != test.code {
				t.Errorf("%s of %s: %v", test.tool, test.role, err)
			}
		})
	}
}

// TestAcceptedOnce checks that a call that the device has accepted is not sent again, even
// if its tool only reads: the device is still working on it.
func TestAcceptedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		asked := 0
		b := &board{address: "a1", model: "demo", invoke: func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			asked++
			return nil, &ferrule.Error{Code: ferrule.Unanswered, Message: "accepted", Final: true}
		}}
		w.transport.see("g", named(b, "robot"))
		if _, err := w.call(t.Context(), ferrule.Agent, "robot", "look"); ferrule.AsError(err).Message != "accepted" || asked != 1 {
			t.Errorf("sent %d times: %v", asked, err)
		}
	})
}

// TestFinalOnce checks that a call that a connected device did not get, because a broker
// says so, is not sent again.
func TestFinalOnce(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		asked := 0
		b := &board{address: "a1", model: "demo", invoke: func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			asked++
			return nil, ferrule.Errorf(ferrule.Offline, "no subscriber").Once()
		}}
		w.transport.see("g", named(b, "robot"))
		if _, err := w.call(t.Context(), ferrule.Agent, "robot", "look"); ferrule.AsError(err).Message != "no subscriber" || asked != 1 {
			t.Errorf("sent %d times: %v", asked, err)
		}
	})
}

// TestSentAndAnswered checks the times of a result; the wait in the lane is not part
// of them.
func TestSentAndAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		tries := 0
		b.invoke = func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			time.Sleep(time.Second)
			if tries++; tries == 2 {
				return nil, ferrule.Errorf(ferrule.Unanswered, "noise")
			}
			return &ferrule.Result{Value: json.RawMessage("1")}, nil
		}
		w.transport.see("g", named(b, "robot"))
		var wg sync.WaitGroup
		var told []string
		start := time.Now()
		w.later(t.Context(), &wg, ferrule.Agent, "move", "{}", &told)
		result, err := w.call(t.Context(), ferrule.Gateway, "robot", "look")
		wg.Wait()
		if err != nil || tries != 3 {
			t.Fatalf("%v after %d tries", err, tries)
		}
		const pause = 5 * time.Millisecond // before the retry
		if sent, came := result.Sent.Sub(start), result.Answered.Sub(start); sent != 2*time.Second+pause || came != 3*time.Second+pause {
			t.Errorf("sent after %v, and the answer came after %v", sent, came)
		}
	})
}

// TestRetryWaitsForReconnect checks that a read is retried after the reconnect, and
// not without one.
func TestRetryWaitsForReconnect(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		b.invoke = func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			b.set(func(b *board) { b.refuse = context.DeadlineExceeded })
			b.hangUp()
			return nil, ferrule.Errorf(ferrule.Unanswered, "the link broke")
		}
		w.transport.see("g", named(b, "robot"))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		_, err := w.call(ctx, ferrule.Agent, "robot", "look")
		if e := ferrule.AsError(err); e.Code != ferrule.Unanswered || e.Message != "the link broke" || time.Since(start) != 10*time.Second {
			t.Errorf("got %+v after %v", e, time.Since(start))
		}
	})
}

// TestRetryKeepsFirstError checks that an unanswered call is reported as such if the
// retry fails before it is sent.
func TestRetryKeepsFirstError(t *testing.T) {
	for _, second := range []ferrule.Code{ferrule.Busy, ferrule.Refused, ferrule.Invalid} {
		bubble(t, func(t *testing.T, dir string) {
			w := open(t, dir)
			b := &board{address: "a1", model: "demo"}
			asked := 0
			b.invoke = func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
				if asked++; asked == 1 {
					b.hangUp()
					return nil, ferrule.Errorf(ferrule.Unanswered, "the link broke")
				}
				return nil, ferrule.Errorf(second, "not this time")
			}
			w.transport.see("g", named(b, "robot"))
			_, err := w.call(t.Context(), ferrule.Agent, "robot", "set")
			if e := ferrule.AsError(err); e.Code != ferrule.Unanswered || !e.MayHaveRun() || asked != 2 {
				t.Errorf("got %+v after %d attempts", e, asked)
			}
		})
	}
}

// TestDeviceChangedWhileWaiting checks that a call is refused if the device changed
// after it was resolved.
func TestDeviceChangedWhileWaiting(t *testing.T) {
	for name, change := range map[string]func(w *world, b *board){
		"another Kind": func(_ *world, b *board) {
			m := usual("demo")
			m.Tools[0].Effect = ferrule.Endangers
			b.set(func(b *board) { b.manifest = m })
			b.hangUp()
		},
		"forgotten": func(w *world, _ *board) { w.dock.Forget("robot") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				w := open(t, dir)
				b := &board{address: "a1", model: "robot"}
				var did []string
				b.invoke = func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
					if did = append(did, call.Tool); len(did) == 1 {
						time.Sleep(time.Second)
						return nil, ferrule.Errorf(ferrule.Unanswered, "the link broke")
					}
					return &ferrule.Result{Value: json.RawMessage("1")}, nil
				}
				w.transport.see("g", found(b))
				if err := w.dock.Adopt("robot"); err != nil {
					t.Fatal(err)
				}
				var wg sync.WaitGroup
				var told []string
				repeated := w.later(t.Context(), &wg, ferrule.Agent, "look", "{}", &told)
				waiting := w.later(t.Context(), &wg, ferrule.Agent, "move", "{}", &told)
				change(w, b)
				wg.Wait()
				if e := ferrule.AsError(*repeated); e.Code != ferrule.Unanswered || !e.MayHaveRun() {
					t.Errorf("the call that was sent: %+v", e)
				}
				if e := ferrule.AsError(*waiting); e.MayHaveRun() {
					t.Errorf("the call that waited: %+v", e)
				}
				if len(did) != 1 {
					t.Errorf("the board did %q", did)
				}
			})
		})
	}
}

// TestUrgent checks that an urgent call passes a full queue.
func TestUrgent(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		var did, told []string
		slow(b, &did)
		w.transport.see("g", named(b, "robot"))
		var wg sync.WaitGroup
		ctx := t.Context()
		for _, args := range []string{"1", "2", "3", "4"} {
			w.later(ctx, &wg, ferrule.Agent, "move", args, &told)
		}
		if err := w.later(ctx, &wg, ferrule.Agent, "move", "5", &told); ferrule.AsError(*err).Code != ferrule.Busy {
			t.Fatalf("the queue is not full: %v", *err)
		}
		dev, m, _ := w.fleet.Lookup("robot")
		for range 2 {
			wg.Go(func() {
				_, err := w.send(ctx, &ferrule.Call{
					Device: "robot", Tool: "move", Args: json.RawMessage("0"), Principal: ferrule.Principal{Role: ferrule.Gateway}, Urgent: true,
					Target: ferrule.Target{Device: dev, Tool: m.Tool("move")},
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := strings.Join(did, ", "); got != "move 1, move 0, move 0, move 2, move 3, move 4" {
			t.Errorf("did %s", got)
		}
	})
}

// TestMaySend checks that a call which was stopped while it waited is not sent, even if
// its context has not ended.
func TestMaySend(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		var did, told []string
		slow(b, &did)
		w.transport.see("g", named(b, "robot"))
		var wg sync.WaitGroup
		stopped := ferrule.Errorf(ferrule.Denied, "stopped")
		asked := 0
		ctx := ferrule.WithSend(t.Context(), func() error {
			if asked++; asked > 1 {
				return stopped
			}
			return nil
		})
		first := w.later(ctx, &wg, ferrule.Agent, "move", "1", &told)
		second := w.later(ctx, &wg, ferrule.Agent, "move", "2", &told)
		wg.Wait()
		if *first != nil || *second != error(stopped) || strings.Join(did, ", ") != "move 1" {
			t.Errorf("did %v: %v, %v", did, *first, *second)
		}
	})
}
