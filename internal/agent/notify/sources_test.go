package notify

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// sampler counts who samples each device. As in the cluster, stop waits for a callback
// to return.
type sampler struct {
	mu  sync.Mutex
	fns map[string]map[*func(ferrule.Reading)]bool // by device
}

func (s *sampler) Samples(device, _ string, fn func(ferrule.Reading)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fns[device] == nil {
		s.fns[device] = make(map[*func(ferrule.Reading)]bool)
	}
	s.fns[device][&fn] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.fns[device], &fn)
	}
}

func (s *sampler) sample(device string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for fn := range s.fns[device] {
		(*fn)(ferrule.Reading{Device: device})
	}
}

// TestSampledDevices: the number of sampled devices is limited, and none is sampled
// when all subscribers have left, however many come and go at the same time.
func TestSampledDevices(t *testing.T) {
	samples := &sampler{fns: make(map[string]map[*func(ferrule.Reading)]bool)}
	s := &sources{samples: samples, sampled: func(string, ferrule.Reading) {}, sampling: make(map[string]*sampledDevice)}
	for i := range maxSampledDevices + 1 {
		if err := s.acquireSamples(fmt.Sprint(i)); (err == nil) != (i < maxSampledDevices) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if err := s.acquireSamples("0"); err != nil {
		t.Errorf("a device that is sampled: %v", err)
	}
	s.releaseSamples("0")
	for i := range maxSampledDevices {
		s.releaseSamples(fmt.Sprint(i))
	}
	s.releaseSamples("0") // once too often
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for range 100 {
				device := fmt.Sprint(i % 3)
				if err := s.acquireSamples(device); err != nil {
					t.Error(err)
				}
				samples.sample(device)
				s.releaseSamples(device)
			}
		})
	}
	wg.Wait()
	for device, fns := range samples.fns {
		if len(fns) > 0 {
			t.Errorf("%s is sampled by %d", device, len(fns))
		}
	}
}

// TestResourceRace: however agents come and go at the same time, a device gets subscribe
// and unsubscribe calls in turns, and as many of both.
func TestResourceRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var state, calls atomic.Int64
		s := &sources{
			resources: make(map[Topic]*resourceSource), since: func(string) (int64, bool) { return 1, true }, changed: func(Topic) {},
			call: func(_ context.Context, call *ferrule.Call) error {
				calls.Add(1)
				time.Sleep(time.Millisecond)
				change := int64(1)
				if call.Operation == ferrule.Unsubscribe {
					change = -1
				}
				if now := state.Add(change); now < 0 || now > 1 {
					t.Errorf("subscribed %d times", now)
				}
				return nil
			},
		}
		topic := Topic{Device: "robot", URI: "a"}
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				for n := range 20 {
					time.Sleep(time.Duration(i*n%7) * time.Millisecond)
					if err := s.acquire(t.Context(), gatewayPrincipal, topic); err != nil {
						t.Error(err)
						return
					}
					s.renew()
					s.release(topic)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(s.resources) != 0 || state.Load() != 0 || calls.Load() < 2 {
			t.Errorf("%d resources are left after %d calls", len(s.resources), calls.Load())
		}
		s.call = func(context.Context, *ferrule.Call) error { return nil }
		for i := range maxDeviceResources + 1 {
			err := s.acquire(t.Context(), gatewayPrincipal, Topic{Device: "robot", URI: fmt.Sprint(i)})
			if (err == nil) != (i < maxDeviceResources) {
				t.Fatalf("%d: %v", i, err)
			}
		}
	})
}

// TestRenew: a subscription is renewed before it expires, even if that fails now and
// then. A change is assumed only if there was no subscription meanwhile.
func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, changes, since atomic.Int64
		var fails atomic.Bool
		since.Store(1)
		s := &sources{
			subscriber: "gateway", resources: make(map[Topic]*resourceSource),
			since:   func(string) (int64, bool) { return since.Load(), since.Load() > 0 },
			changed: func(Topic) { changes.Add(1) },
			call: func(_ context.Context, call *ferrule.Call) error {
				if call.Subscriber != "gateway" {
					t.Errorf("the subscriber is %q", call.Subscriber)
				}
				if calls.Add(1); fails.Load() {
					return ferrule.Errorf(ferrule.Busy, "not now")
				}
				return nil
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.keep(ctx)
		after := func(d time.Duration, wantCalls, wantChanges int64) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if c, h := calls.Swap(0), changes.Swap(0); c < wantCalls || c > wantCalls+1 || h != wantChanges {
				t.Errorf("got %d calls, want about %d, and %d changes, want %d", c, wantCalls, h, wantChanges)
			}
		}
		topic := Topic{Device: "robot", URI: "a"}
		if err := s.acquire(t.Context(), gatewayPrincipal, topic); err != nil {
			t.Fatal(err)
		}
		after(ferrule.SubscriptionTTL, 4, 0)
		fails.Store(true)
		after(ferrule.SubscriptionTTL/2, 2, 0)
		if !s.resources[topic].subscribed {
			t.Error("given up after one failure")
		}
		fails.Store(false)
		after(ferrule.SubscriptionTTL/2, 2, 0)
		since.Store(0)
		after(time.Hour, 0, 0)
		fails.Store(true)
		since.Store(2)
		after(10*retryInterval, 10, 0)
		fails.Store(false)
		after(2*retryInterval, 1, 1)
		s.release(topic)
		after(time.Hour, 1, 0)
		if len(s.resources) != 0 {
			t.Errorf("%d resources are left", len(s.resources))
		}
	})
}
