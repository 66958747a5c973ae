package dock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// watch is a Meter that records durations.
type watch struct {
	part string
	mu   *sync.Mutex
	all  *[]string
}

func (w watch) Begin(ctx context.Context, _ *ferrule.Call) (context.Context, ferrule.Span) {
	return ctx, ferrule.Span{Tracked: time.Now()}
}

func (w watch) End(span ferrule.Span, call *ferrule.Call, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := fmt.Sprintf("%s %s %v", call.Tool, w.part, time.Since(span.Tracked.(time.Time)))
	if err != nil {
		line += " " + string(ferrule.AsError(err).Code)
	}
	*w.all = append(*w.all, line)
}

// TestMeters checks that the wait for a lane and the time of a device are measured.
func TestMeters(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		var mu sync.Mutex
		var all, did, told []string
		w := open(t, dir, func(p *dock.Parts) {
			p.Meters = func(part string) ferrule.Meter { return watch{part, &mu, &all} }
		})
		b := &board{address: "a1", model: "demo"}
		slow(b, &did)
		w.transport.see("g", named(b, "robot"))
		if s := w.dock.Stats(); s != (dock.Stats{}) {
			t.Errorf("before: %+v", s)
		}
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		w.later(t.Context(), &wg, ferrule.Agent, "move", "1", &told)
		w.later(t.Context(), &wg, ferrule.Gateway, "look", "2", &told)
		w.later(ctx, &wg, ferrule.Agent, "move", "3", &told)
		if s := w.dock.Stats(); s != (dock.Stats{Busy: 1, Waiting: 2}) {
			t.Errorf("meanwhile: %+v", s)
		}
		time.Sleep(time.Second / 2)
		cancel()
		synctest.Wait()
		if s := w.dock.Stats(); s != (dock.Stats{Busy: 1, Waiting: 1}) {
			t.Errorf("when one has left: %+v", s)
		}
		wg.Wait()
		if s := w.dock.Stats(); s != (dock.Stats{}) {
			t.Errorf("after: %+v", s)
		}
		const want = "move lane 0s, move lane 500ms cancelled, move device 1s, look lane 1s, look device 1s"
		if got := strings.Join(all, ", "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
