package catalog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestGrace checks that the tools of a device that is away for a moment stay in the list,
// and can be called, and that those of a device that stays away or was released do not.
func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := catalog.New(catalog.DefaultConfig())
		c.Put(gateway())
		m := manifest("board", "read")
		robot := online("robot", m)
		away := func(state ferrule.State) *ferrule.Device {
			dev := as(robot, state, ferrule.TrustAdopted)
			dev.Since = time.Now()
			return dev
		}
		const listed, gone = "plain: __status robot__read", "plain: __status"
		want := func(want string) {
			t.Helper()
			if got := names(c); got != want {
				t.Errorf("the list is %q, want %q", got, want)
			}
			if c.Listed("robot") != (want == listed) {
				t.Errorf("Listed returns %t", c.Listed("robot"))
			}
		}
		c.Put(robot, m)
		want(listed)
		for range 3 {
			c.Put(away(ferrule.StateOffline), m)
			time.Sleep(29 * time.Second)
			want(listed)
			if n := c.Counts(); n.Offline != 1 || n.Online != 0 {
				t.Errorf("got %+v", n)
			}
			if _, err := c.All().Offer("robot__read"); err != nil {
				t.Error(err)
			}
			c.Put(robot, m)
			time.Sleep(time.Minute)
			want(listed)
		}
		other := named(robot, "other")
		c.Put(other, m)
		gone2 := *away(ferrule.StateOffline)
		gone2.ID = "other"
		c.Put(&gone2, m)
		time.Sleep(20 * time.Second)
		c.Put(away(ferrule.StateOffline), m)
		time.Sleep(12 * time.Second) // other has expired, robot has not
		want(listed)
		time.Sleep(20 * time.Second)
		want(gone)
		if _, err := c.All().Offer("robot__read"); code(err) != ferrule.Offline {
			t.Errorf("got %v", err)
		}
		c.Put(robot, m)
		c.Put(away(ferrule.StateReleased), m)
		want(gone)
		c.Put(robot, m)
		c.Put(away(ferrule.StateOffline), m)
		c.Remove("robot")
		time.Sleep(time.Minute)
		want(gone)
	})
}
