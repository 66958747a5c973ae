package server

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// asked is what a device was asked, in order.
type asked struct {
	mu    sync.Mutex
	words []string
}

// handle serves a device that tells of its resources, but of no secret.
func (a *asked) handle(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.words = append(a.words, fmt.Sprintf("%s %s", call.Operation, call.Tool))
	if call.Tool == "file:///secret" {
		return nil, ferrule.Errorf(ferrule.Refused, "it is secret")
	}
	return &ferrule.Result{}, nil
}

// become waits until a device was asked so.
func (a *asked) become(t *testing.T, want ...string) {
	t.Helper()
	var got string
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		a.mu.Lock()
		got = fmt.Sprint(a.words)
		a.mu.Unlock()
		if got == fmt.Sprint(want) {
			return
		}
	}
	t.Fatalf("it was asked %s, want %s", got, want)
}

// says has a device say that a resource is another.
func says(f *Server, uri string) {
	params, _ := json.Marshal(map[string]string{"uri": uri})
	f.Hear(ferrule.Event{Type: ferrule.Notified, Device: "robot", Method: updatedMethod, Params: params})
}

// TestFollow: a device is asked once to tell of a resource, however many agents want
// to hear of it and wherever; those are told, and nobody else; it is asked anew when
// it comes back, and left alone when the last has gone.
func TestFollow(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			var a asked
			f := newFrontOf(t, a.handle, aServer())
			go f.Run(t.Context())
			const own, scopedLog = "file:///log", "ferrule://devices/robot/resources/file:///log"
			told := make(chan string, 100)
			options := &mcp.ClientOptions{
				ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) { told <- req.Params.URI },
			}
			hear := func(want ...string) {
				t.Helper()
				got := make(map[string]int)
				for range want {
					select {
					case uri := <-told:
						got[uri]++
					case <-time.After(5 * time.Second):
						t.Fatalf("told %v, want %v", got, want)
					}
				}
				for _, uri := range want {
					got[uri]--
				}
				for uri, n := range got {
					if n != 0 {
						t.Errorf("%s: %d too many", uri, n)
					}
				}
			}
			alone, all, other := connectAt(t, f.viewAt("robot"), era, options), connect(t, f, era, options), connect(t, f, era, options)
			for session, uri := range map[*mcp.ClientSession]string{alone: own, all: scopedLog, other: stateURI("robot")} {
				if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
					t.Fatal(err)
				}
			}
			f.viewAt("robot").subscriptions.becomes(t, 1, 1)
			f.viewAt("").subscriptions.becomes(t, 2, 2)
			a.become(t, "subscribe file:///log")
			says(f, own)
			hear(own, scopedLog, stateURI("robot"))
			says(f, "file:///other")
			hear(stateURI("robot"))
			back := &ferrule.Device{ID: "robot", Kind: "k", State: ferrule.StateOnline, Since: time.Now(), Trust: ferrule.TrustAdopted}
			f.parts.Catalog.Put(back, aServer())
			a.become(t, "subscribe file:///log", "subscribe file:///log")
			hear(own, scopedLog, stateURI("robot"))
			if err := alone.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: own}); err != nil {
				t.Fatal(err)
			}
			f.viewAt("robot").subscriptions.becomes(t, 1, 0)
			a.become(t, "subscribe file:///log", "subscribe file:///log")
			all.Close()
			a.become(t, "subscribe file:///log", "subscribe file:///log", "unsubscribe file:///log")
		})
	}
}

// TestUpdatesOfOthers: what a device says is told of itself, also where another has a
// resource of the same URI.
func TestUpdatesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFrontOf(t, nil, aServer())
		f.put("lamp", ferrule.StateOnline, ferrule.TrustAdopted)
		const own = "file:///log"
		params := json.RawMessage(`{"uri":"` + own + `"}`)
		subs := f.viewAt("robot").subscriptions
		var told atomic.Int32
		subs.update = func(string) { told.Add(1) }
		subs.add(nil, own, topic{device: "robot", uri: own})
		for device, want := range map[string]int32{"lamp": 0, "robot": 2} {
			told.Store(0)
			f.Hear(ferrule.Event{Type: ferrule.Notified, Device: device, Method: updatedMethod, Params: params})
			time.Sleep(time.Second)
			f.follows.heard(topic{device: device, uri: own})
			time.Sleep(time.Second)
			if n := told.Load(); n != want {
				t.Errorf("%s: told %d times, want %d", device, n, want)
			}
		}
	})
}

// TestFollowRefused: what a device will not tell of is refused, or left out of what
// was agreed on; the rest is told.
func TestFollowRefused(t *testing.T) {
	var a asked
	f := newFrontOf(t, a.handle, aServer())
	legacy, _ := subscriber(t, f, eras[0])
	for _, uri := range []string{"file:///secret", "a b", "", "%zz \u0007"} {
		if err := legacy.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "ferrule://devices/robot/resources/" + uri}); err == nil {
			t.Errorf("%q was subscribed to", uri)
		}
	}
	v := f.viewAt("robot")
	connectAt(t, v, eras[0], nil)
	for session := range v.server.Sessions() {
		if got := v.agreed(t.Context(), session, []string{"file:///secret", "file:///log"}); fmt.Sprint(got) != "[file:///log]" {
			t.Errorf("agreed on %q", got)
		}
	}
	a.become(t, "subscribe file:///secret", "subscribe file:///secret", "subscribe file:///log")
	many := make([]string, 1000)
	for i := range many {
		many[i] = "file:///secret"
	}
	for session := range v.server.Sessions() {
		if got := v.agreed(t.Context(), session, many); got != nil {
			t.Errorf("agreed on %q", got)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.words) != 3+maxSubscriptions {
		t.Errorf("the device was asked %d times", len(a.words))
	}
	if n := len(f.follows.all); n != 1 {
		t.Errorf("%d are followed", n)
	}
}

// TestFollowsRace: however agents come and go at once, a device is asked and left in
// turns, and in the end as often left as asked.
func TestFollowsRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var state, calls atomic.Int64
		f := &follows{
			all: make(map[topic]*follow), since: func(string) (int64, bool) { return 1, true }, heard: func(topic) {},
			handle: func(call *ferrule.Call) error {
				calls.Add(1)
				time.Sleep(time.Millisecond)
				change := int64(1)
				if call.Operation == ferrule.Unsubscribe {
					change = -1
				}
				if now := state.Add(change); now < 0 || now > 1 {
					t.Errorf("it is followed %d times", now)
				}
				return nil
			},
		}
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				for n := range 20 {
					time.Sleep(time.Duration(i*n%7) * time.Millisecond)
					if err := f.begin(t.Context(), ourselves, topic{device: "robot", uri: "a"}); err != nil {
						t.Error(err)
						return
					}
					f.again()
					f.end(topic{device: "robot", uri: "a"})
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(f.all) != 0 || state.Load() != 0 || calls.Load() < 2 {
			t.Errorf("%d are followed after %d calls", len(f.all), calls.Load())
		}
		f.handle = func(*ferrule.Call) error { return nil }
		for i := range maxFollowedOf + 1 {
			err := f.begin(t.Context(), ourselves, topic{device: "robot", uri: fmt.Sprint(i)})
			if (err == nil) != (i < maxFollowedOf) {
				t.Fatalf("%d: %v", i, err)
			}
		}
	})
}

// TestFollowsKeep: who follows says so again before it is forgotten, also if that fails now
// and then; agents are told that a resource may be another only if it was not followed
// meanwhile.
func TestFollowsKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, heard, since atomic.Int64
		var fails atomic.Bool
		since.Store(1)
		f := &follows{
			listener: "front", all: make(map[topic]*follow), since: func(string) (int64, bool) { return since.Load(), since.Load() > 0 }, heard: func(topic) { heard.Add(1) },
			handle: func(call *ferrule.Call) error {
				if call.Subscriber != "front" {
					t.Errorf("%q listens", call.Subscriber)
				}
				if calls.Add(1); fails.Load() {
					return ferrule.Errorf(ferrule.Busy, "not now")
				}
				return nil
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go f.keep(ctx)
		after := func(d time.Duration, wantCalls, wantHeard int64) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if c, h := calls.Swap(0), heard.Swap(0); c < wantCalls || c > wantCalls+1 || h != wantHeard {
				t.Errorf("there were %d calls, want about %d, and it was told %d times, want %d", c, wantCalls, h, wantHeard)
			}
		}
		robot := topic{device: "robot", uri: "a"}
		if err := f.begin(t.Context(), ourselves, robot); err != nil {
			t.Fatal(err)
		}
		after(ferrule.SubscriptionTTL, 4, 0)
		fails.Store(true)
		after(ferrule.SubscriptionTTL/2, 2, 0)
		if !f.all[robot].followed {
			t.Error("it is given up at once")
		}
		fails.Store(false)
		after(ferrule.SubscriptionTTL/2, 2, 0)
		since.Store(0)
		after(time.Hour, 0, 0)
		fails.Store(true)
		since.Store(2)
		after(10*retryTime, 10, 0)
		fails.Store(false)
		after(2*retryTime, 1, 1)
		f.end(robot)
		after(time.Hour, 1, 0)
		if len(f.all) != 0 {
			t.Errorf("%d are followed", len(f.all))
		}
	})
}
