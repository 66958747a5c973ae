package pipeline

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestCallersAreDropped checks that idle callers are dropped.
func TestCallersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, perMinute := range []int{0, 60} {
			c := newCallers(Config{InFlight: 2, PerMinute: perMinute})
			busy := origin{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "busy"}}
			if err := c.enter(busy); err != nil {
				t.Fatal(err)
			}
			most := 0
			for i := range 20_000 {
				who := origin{Principal: ferrule.Principal{Role: ferrule.Agent, Name: fmt.Sprint(i)}}
				if err := c.enter(who); err != nil {
					t.Fatal(err)
				}
				c.leave(who, false)
				most = max(most, len(c.known))
				time.Sleep(10 * time.Millisecond) // a call is forgotten after a second
			}
			if most > minSweep || c.known[busy].inFlight != 1 {
				t.Errorf("%d per minute: %d callers were known, and %+v", perMinute, most, c.known[busy])
			}
			if perMinute == 0 && len(c.known) != 1 {
				t.Errorf("%d callers are known", len(c.known))
			}
		}
	})
}
