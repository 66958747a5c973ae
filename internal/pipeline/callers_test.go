package pipeline

import (
	"context"
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

// TestInventedNames checks that agents that name themselves share one limit for each way of
// authentication and user, whatever they call themselves, and that their names take no
// memory. A caller with a proven name has its own limit.
func TestInventedNames(t *testing.T) {
	for name, cfg := range map[string]Config{
		"calls":         {InFlight: 10_000, PerMinute: 3},
		"refused calls": {InFlight: 10_000, RefusedPerMinute: 3},
		"in flight":     {InFlight: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newCallers(cfg)
				proceed := make(chan struct{})
				handle := limit(all)(func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
					if cfg.PerMinute == 0 && cfg.RefusedPerMinute == 0 {
						<-proceed
					}
					return nil, ferrule.Errorf(ferrule.NotFound, "no such device")
				})
				admitted := func(who ferrule.Principal, via string) (n int) {
					ended := make(chan bool, 500)
					for i := range 500 {
						call := &ferrule.Call{Principal: who, Via: via}
						call.Principal.Name = fmt.Sprintf(who.Name, i)
						go func() {
							_, err := handle(context.WithValue(t.Context(), progressKey{}, &progress{}), call)
							ended <- ferrule.AsError(err).Code == ferrule.Limited
						}()
						synctest.Wait()
					}
					n = 500
					for len(ended) > 0 {
						if <-ended {
							n--
						}
					}
					return n
				}
				for _, who := range []ferrule.Principal{
					{Role: ferrule.Agent, Name: "local/agent-%d", Auth: ferrule.AuthLoopback},
					{Role: ferrule.Agent, Name: "local/agent-%d", Auth: ferrule.AuthStdio, User: "anna"},
					{Role: ferrule.Agent, Name: "ben/local/agent-%d", Auth: ferrule.AuthStdio, User: "ben"},
				} {
					for _, via := range []string{"", "other"} {
						if n := admitted(who, via); n != 3 {
							t.Errorf("%+v via %q: %d calls were admitted", who, via, n)
						}
					}
				}
				if n := len(all.known); n != 6 {
					t.Errorf("%d callers are known", n)
				}
				if n := admitted(ferrule.Principal{Role: ferrule.Agent, Name: "token-%d", Auth: ferrule.AuthToken}, ""); n != 500 {
					t.Errorf("%d calls with a proven name were admitted", n)
				}
				close(proceed)
			})
		})
	}
}
