package dock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// lookingTransport is a transport with a first look.
type lookingTransport struct {
	testTransport
	transport.FirstLook
}

// TestSettled checks that Settled waits until every connector has looked and every device that
// it found is online or has failed, and not longer; and that a search takes its time.
func TestSettled(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		const looking, greeting, calm = 200 * time.Millisecond, 300 * time.Millisecond, 80 * time.Millisecond
		look := transport.NewFirstLook()
		w := open(t, dir, func(p *dock.Parts) {
			p.Connectors[0] = lookingTransport{p.Connectors[0].(testTransport), look}
		})
		start := time.Now()
		settled := func(calm time.Duration) time.Duration {
			w.dock.Settled(t.Context(), calm)
			return time.Since(start)
		}
		go func() {
			time.Sleep(looking)
			w.transport.updates <- func(update func(string, []transport.Sighting)) {
				update("g", []transport.Sighting{
					named(&board{address: "a1", model: "demo", listing: func(context.Context) { time.Sleep(greeting) }}, "slow"),
					named(&board{address: "a2", refuse: errors.New("connection refused")}, "broken"),
				})
				look.EndLook()
			}
		}()
		if took := settled(0); took != looking+greeting {
			t.Errorf("settled after %v, want %v", took, looking+greeting)
		}
		w.wantIDs("broken:offline slow:online")
		w.stop()
		start = time.Now()
		if took := settled(0); took != 0 {
			t.Errorf("with nothing to wait for: %v", took)
		}
		if took := settled(calm); took != calm {
			t.Errorf("a search took %v", took)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		w.dock.Settled(ended, time.Hour)
	})
}
