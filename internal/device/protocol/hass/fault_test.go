package hass

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestFaults makes calls while everything fails in random order. Each message is published
// at most once, each call has one outcome, and none claims that nothing ran if something may
// have.
func TestFaults(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(1000) {
		bubble(t, several, nil, func(t *testing.T, r *rig) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			acted := 0 // messages that the device may have got
			r.link.onSend = func(ctx context.Context, m transport.Message) error {
				time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
				switch rnd.IntN(8) {
				case 0:
					return &transport.Undelivered{Reason: "no subscriber"}
				case 1:
					return &transport.Undelivered{Denied: true, Reason: "not authorized"}
				case 2:
					return fmt.Errorf("%w: queue is full", transport.ErrUnsent)
				case 3:
					acted++
					r.link.fail(errors.New("the broker is gone"))
					return errors.New("not confirmed")
				}
				acted++
				if rnd.IntN(3) > 0 {
					r.link.later(time.Duration(rnd.IntN(7000))*time.Millisecond, m.Channel[:len(m.Channel)-len("/set")], string(m.Data))
				}
				if rnd.IntN(4) == 0 {
					r.link.later(time.Duration(rnd.IntN(7000))*time.Millisecond, "l", "OFF")
				}
				return nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if rnd.IntN(3) == 0 {
				time.AfterFunc(time.Duration(rnd.IntN(6000))*time.Millisecond, cancel)
			}
			if rnd.IntN(5) == 0 {
				time.AfterFunc(time.Duration(rnd.IntN(6000))*time.Millisecond, r.stop)
			}
			result, err := r.call(ctx, "lamp", `{"on":true,"brightness":7}`)
			got := r.link.payloads()
			if want := []string{"l/bri/set 7", "l/set ON"}; len(got) > 2 || !slices.Equal(got, want[:len(got)]) {
				t.Fatalf("seed %d published %q", seed, got)
			}
			switch e := (*ferrule.Error)(nil); {
			case err == nil && acted == 0, result != nil && err != nil:
				t.Errorf("seed %d: result %s, error %v, though nothing was sent", seed, result.Value, err)
			case err == nil:
				outcomes["result"]++
			case !errors.As(err, &e):
				t.Errorf("seed %d: %v", seed, err)
			case acted > 0 && !(e.MayHaveRun() && e.Final):
				t.Errorf("seed %d: %d messages arrived, but the call returned %s: %v", seed, acted, e.Code, err)
			case acted == 0 && e.MayHaveRun():
				t.Errorf("seed %d: nothing arrived, but the call returned %s: %v", seed, e.Code, err)
			default:
				outcomes[string(e.Code)]++
			}
			time.Sleep(10 * time.Second)
		})
	}
	t.Log(outcomes)
	for _, code := range []ferrule.Code{"result", ferrule.Offline, ferrule.Denied, ferrule.Unanswered, ferrule.Cancelled} {
		if outcomes[string(code)] == 0 {
			t.Errorf("no call ended with %s", code)
		}
	}
}

// TestConcurrent reads states while they change and a call runs.
func TestConcurrent(t *testing.T) {
	bubble(t, plug, nil, func(t *testing.T, r *rig) {
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range 500 {
				r.link.hear("acme/1/power", fmt.Sprint(i))
				r.link.hear(relay, []string{"ON", "OFF"}[i%2])
			}
		})
		wg.Go(func() {
			for range 500 {
				if _, err := r.call(t.Context(), toolState, ""); err != nil {
					t.Error(err)
				}
			}
		})
		r.link.onSend = func(context.Context, transport.Message) error {
			_, err := r.call(t.Context(), "relay", `{"on":true}`)
			wantError(t, err, ferrule.Busy, false)
			return nil
		}
		r.result("relay", `{"on":true}`)
		wg.Wait()
	})
}

// TestForeign: what is not a link of a Hub is not greeted.
func TestForeign(t *testing.T) {
	greet := func(ctx context.Context, link transport.Link) error {
		session, _, err := New().Greet(ctx, link)
		if session != nil || err == nil {
			t.Error("it was greeted")
		}
		return err
	}
	synctest.Test(t, func(t *testing.T) {
		line, _ := transporttest.Pipe(transport.Info{})
		defer line.Close()
		if err := greet(t.Context(), line); !errors.Is(err, protocol.ErrNotMine) {
			t.Error(err)
		}
		silent := newLink(plug)
		silent.offer = nil
		start := time.Now()
		if err := greet(t.Context(), silent); !errors.Is(err, protocol.ErrNotMine) || time.Since(start) != offerWait {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := greet(ctx, silent); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		silent.hear("elsewhere", "hello")
		if err := greet(t.Context(), silent); !errors.Is(err, protocol.ErrNotMine) {
			t.Error(err)
		}
		silent.hear(channelDiscovery, "[")
		if err := greet(t.Context(), silent); !errors.Is(err, protocol.ErrNotMine) {
			t.Error(err)
		}
		silent.Close()
		if err := greet(t.Context(), silent); !errors.Is(err, transport.ErrClosed) {
			t.Error(err)
		}
	})
}
