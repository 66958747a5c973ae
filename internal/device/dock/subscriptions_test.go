package dock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// resourceBoard is a board with resources. It records subscriptions.
type resourceBoard struct {
	*world
	t     *testing.T
	board *board

	mu    sync.Mutex
	asked []string
	fails error
}

// newResourceBoard connects one as toy.
func newResourceBoard(t *testing.T, dir string) *resourceBoard {
	m := usual("toy")
	m.Operations = []ferrule.Operation{ferrule.ReadResource, ferrule.Subscribe, ferrule.Unsubscribe}
	w := &resourceBoard{world: open(t, dir), t: t, board: &board{address: "a", model: "toy", manifest: m}}
	w.board.invoke = func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked = append(w.asked, fmt.Sprintf("%s %s", call.Operation, call.Tool))
		return &ferrule.Result{}, w.fails
	}
	w.transport.see("g", named(w.board, "toy"))
	synctest.Wait()
	return w
}

// subscribe sends a Subscribe or Unsubscribe.
func (w *resourceBoard) subscribe(act ferrule.Operation, uri, listener string) error {
	w.t.Helper()
	dev, m, _ := w.fleet.Lookup("toy")
	_, err := w.send(context.Background(), &ferrule.Call{
		Device: "toy", Operation: act, Tool: uri, Subscriber: listener, Target: ferrule.Target{Device: dev, Manifest: m, Tool: m.ToolFor(act, uri)},
	})
	synctest.Wait()
	return err
}

// fail makes the board fail.
func (w *resourceBoard) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails = err
}

// was checks the subscriptions since the last check.
func (w *resourceBoard) was(want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := strings.Join(w.asked, ", "); got != strings.Join(want, ", ") {
		w.t.Errorf("it was asked %q, want %q", got, want)
	}
	w.asked = nil
}

// TestSubscriptions checks that a device gets one subscription per resource, and one
// unsubscription at the end.
func TestSubscriptions(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := newResourceBoard(t, dir)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(w.subscribe(ferrule.Subscribe, "log", "a"))
		must(w.subscribe(ferrule.Subscribe, "log", "b"))
		must(w.subscribe(ferrule.Subscribe, "log", "b"))
		must(w.subscribe(ferrule.Subscribe, "door", "b"))
		w.was("subscribe log", "subscribe door")
		must(w.subscribe(ferrule.Unsubscribe, "log", "b"))
		must(w.subscribe(ferrule.Unsubscribe, "log", "b")) // already unsubscribed
		must(w.subscribe(ferrule.Unsubscribe, "log", "c")) // never subscribed
		w.was()
		must(w.subscribe(ferrule.Unsubscribe, "log", "a"))
		w.was("unsubscribe log")
		must(w.subscribe(ferrule.Unsubscribe, "log", "a")) // without subscribers; the device may be told twice
		w.was("unsubscribe log")

		w.fail(ferrule.Errorf(ferrule.Refused, "it is secret"))
		if err := w.subscribe(ferrule.Subscribe, "secret", "a"); ferrule.AsError(err).Code != ferrule.Refused {
			t.Errorf("got %v", err)
		}
		if err := w.subscribe(ferrule.Subscribe, "secret", "b"); ferrule.AsError(err).Code != ferrule.Refused {
			t.Errorf("nobody listens, and it was not asked: %v", err)
		}
		w.was("subscribe secret", "subscribe secret")
		w.fail(nil)

		w.board.cut()
		time.Sleep(time.Minute)
		must(w.subscribe(ferrule.Subscribe, "door", "b"))
		w.was("subscribe door")
	})
}

// TestSubscriptionExpiry checks that subscribers that disappeared expire.
func TestSubscriptionExpiry(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := newResourceBoard(t, dir)
		for _, listener := range []string{"a", "b"} {
			if err := w.subscribe(ferrule.Subscribe, "log", listener); err != nil {
				t.Fatal(err)
			}
		}
		w.was("subscribe log")
		for range 10 {
			time.Sleep(ferrule.SubscriptionTTL / 2)
			if err := w.subscribe(ferrule.Subscribe, "log", "a"); err != nil {
				t.Fatal(err)
			}
		}
		w.was()
		w.subscribe(ferrule.Subscribe, "log", "b")
		time.Sleep(ferrule.SubscriptionTTL - time.Second)
		w.was()
		time.Sleep(ferrule.SubscriptionTTL)
		w.was("unsubscribe log")
		time.Sleep(10 * ferrule.SubscriptionTTL)
		w.was()
	})
}

// TestMaxSubscribers checks the maximum number of subscribers.
func TestMaxSubscribers(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := newResourceBoard(t, dir)
		var err error
		n := 0
		for ; err == nil && n < 5000; n++ {
			err = w.subscribe(ferrule.Subscribe, fmt.Sprint(n%100), fmt.Sprint(n))
		}
		if ferrule.AsError(err).Code != ferrule.Limited || n != 1025 {
			t.Errorf("%d listen: %v", n, err)
		}
		if err := w.subscribe(ferrule.Subscribe, "0", "0"); err != nil {
			t.Errorf("one that listens already: %v", err)
		}
		if err := w.subscribe(ferrule.Unsubscribe, "0", "0"); err != nil {
			t.Error(err)
		}
		if err := w.subscribe(ferrule.Subscribe, "0", strings.Repeat("x", 1000)); ferrule.AsError(err).Code != ferrule.Limited {
			t.Errorf("a very long name: %v", err)
		}
		if err := w.subscribe(ferrule.Subscribe, "0", "another"); err != nil {
			t.Errorf("there is room again: %v", err)
		}
	})
}
