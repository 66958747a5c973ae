package hass

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestStop checks that a blind has stopped only if it says something afterwards: it may be
// moving although the last thing that it said is a position.
func TestStop(t *testing.T) {
	bubble(t, blind, nil, func(t *testing.T, r *rig) {
		r.link.hear("b", `{"position":100}`)
		synctest.Wait()
		r.fails("blind_stop", `{}`, ferrule.Unanswered, true)
		r.published("b/set STOP")
	})
	bubble(t, blind, nil, func(t *testing.T, r *rig) {
		r.link.hear("b", `{"position":100}`)
		synctest.Wait()
		r.link.later(time.Second, "b", `{"position":42}`)
		if got := r.result("blind_stop", `{}`); !got.Confirmed || got.State["blind"] != 42.0 {
			t.Errorf("got %+v", got)
		}
	})
}
