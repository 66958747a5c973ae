package server

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestSubscribeToSignals: who has subscribed to a signal is told when it was measured, once
// a second at most, and of no other signal; a device is listened to once, and not when
// nobody wants to hear of it.
func TestSubscribeToSignals(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			f, m := withMeter(t)
			heat, speed := signalURI("robot", "heat"), signalURI("robot", "speed")
			here, told := subscriber(t, f, era)
			other, toldOther := subscriber(t, f, era)
			toldAlone := make(chan string, 1000)
			alone := connectAt(t, f.viewAt("robot"), era, &mcp.ClientOptions{
				ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) { toldAlone <- req.Params.URI },
			})
			if m.measure("robot", "heat") != 0 {
				t.Error("a device is listened to for nobody")
			}
			for session, uri := range map[*mcp.ClientSession]string{here: heat, alone: heat, other: speed} {
				if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
					t.Fatal(err)
				}
			}
			f.viewAt("").subscriptions.becomes(t, 2, 2)
			f.viewAt("robot").subscriptions.becomes(t, 1, 1)
			began := time.Now()
			for time.Since(began) < 2500*time.Millisecond {
				if n := m.measure("robot", "heat", "taste"); n != 1 {
					t.Fatalf("the device is listened to by %d", n)
				}
				m.measure("lamp", "heat")
				time.Sleep(5 * time.Millisecond)
			}
			took := time.Since(began)
			most := int(took/signalPause) + 1
			if n, m := len(told), len(toldAlone); n < 2 || n > most || m < 2 || m > most || len(toldOther) > 0 {
				t.Errorf("told %d and %d times within %v, and another %d times", n, m, took, len(toldOther))
			}
			for len(told) > 0 {
				if uri := <-told; uri != heat {
					t.Errorf("told of %s", uri)
				}
			}
			for session, uri := range map[*mcp.ClientSession]string{here: heat, alone: heat} {
				if err := session.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: uri}); err != nil {
					t.Fatal(err)
				}
			}
			f.viewAt("").subscriptions.becomes(t, 2, 1)
			f.viewAt("robot").subscriptions.becomes(t, 1, 0)
			for len(told) > 0 {
				<-told
			}
			for range 10 {
				if n := m.measure("robot", "heat"); n != 1 {
					t.Errorf("the device is listened to by %d", n)
				}
				time.Sleep(5 * time.Millisecond)
			}
			m.measure("robot", "speed")
			select {
			case uri := <-toldOther:
				if uri != speed {
					t.Errorf("told of %s", uri)
				}
			case <-time.After(5 * time.Second):
				t.Error("who has subscribed is told nothing")
			}
			time.Sleep(signalPause + 200*time.Millisecond)
			if len(told) > 0 {
				t.Errorf("told %d times of what it has heard enough of", len(told))
			}
			other.Close()
			f.viewAt("").subscriptions.becomes(t, 1, 0)
			if n := m.measure("robot", "speed"); n > 0 || m.begun != 1 {
				t.Errorf("the device is listened to by %d, and was %d times", n, m.begun)
			}
		})
	}
}

// TestSubscribeToNoSignal: what nobody measures cannot be subscribed to, and leaves
// nobody listening; what agents may no longer know of is not told.
func TestSubscribeToNoSignal(t *testing.T) {
	f, m := withMeter(t)
	f.put("stranger", ferrule.StateOnline, ferrule.TrustPending)
	f.put("away", ferrule.StateOnline, ferrule.TrustAdopted)
	m.signals["stranger"] = []string{"heat"}
	session, told := subscriber(t, f, eras[0])
	for uri, want := range map[string]string{
		"robot/signals/taste":   "not found",
		"stranger/signals/heat": "not found",
		"nobody/signals/heat":   "not found",
		"gateway/signals/heat":  "not found",
		"away/signals/heat":     "cannot be reached",
		"robot/signals/a.b":     signalURI("robot", "temperature"),
		"robot/signals/":        signalURI("robot", "temperature"),
		"%72obot/signals/heat":  "not found",
	} {
		if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: devicesURI + "/" + uri}); err == nil || !strings.Contains(strings.ToLower(err.Error()), want) {
			t.Errorf("%s: %v", uri, err)
		}
	}
	for server := range f.viewAt("").server.Sessions() {
		if got := f.viewAt("").agreed(t.Context(), server, []string{signalURI("robot", "taste"), signalURI("robot", "heat")}); fmt.Sprint(got) != "["+signalURI("robot", "heat")+"]" {
			t.Errorf("agreed on %q", got)
		}
	}
	if n := m.measure("robot", "heat"); n != 1 || m.begun != 1 {
		t.Errorf("robot is listened to by %d, and %d in all", n, m.begun)
	}
	if _, err := f.viewAt("robot").topicOf(signalURI("lamp", "heat")); err == nil {
		t.Error("who looks at one device can subscribe to another")
	}
	if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: signalURI("lamp", "heat")}); err != nil {
		t.Fatal(err)
	}
	f.put("lamp", ferrule.StateOnline, ferrule.TrustPending)
	m.measure("lamp", "heat")
	time.Sleep(50 * time.Millisecond)
	if len(told) > 0 {
		t.Errorf("told of %s, which agents may not know of", <-told)
	}
}

// TestManyEars: so many devices are listened to and no more, and however agents come and
// go at once, none is in the end.
func TestManyEars(t *testing.T) {
	m := newMeter()
	e := &ears{samples: m, heard: func(string, ferrule.Reading) {}, all: make(map[string]*ear)}
	for i := range maxHeard + 1 {
		if err := e.begin(fmt.Sprint(i)); (err == nil) != (i < maxHeard) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if err := e.begin("0"); err != nil {
		t.Errorf("one that is listened to: %v", err)
	}
	e.end("0")
	for i := range maxHeard {
		e.end(fmt.Sprint(i))
	}
	e.end("0") // one too many
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for range 100 {
				device := fmt.Sprint(i % 3)
				if err := e.begin(device); err != nil {
					t.Error(err)
				}
				m.measure(device, "heat")
				e.end(device)
			}
		})
	}
	wg.Wait()
	for device, fns := range m.heard {
		if len(fns) > 0 {
			t.Errorf("%s is listened to by %d", device, len(fns))
		}
	}
}

// TestLastWord: when it is answered that an agent has heard enough of a resource, it is
// told no more of it, however slowly it has read what it was told.
func TestLastWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		teller := newTeller(nil)
		session := &mcp.ServerSession{}
		s := newSubscriptions(nil, func(string) glance { return glance{} }, func(topic) {})
		s.add(session, "heat", topic{device: "robot", signal: "heat"})
		var told []time.Duration
		start := time.Now()
		send := teller.to(s.has)(func(context.Context, string, mcp.Request) (mcp.Result, error) {
			time.Sleep(300 * time.Millisecond)
			told = append(told, time.Since(start))
			return nil, nil
		})
		update := func() {
			req := &mcp.ServerRequest[*mcp.ResourceUpdatedNotificationParams]{Session: session, Params: &mcp.ResourceUpdatedNotificationParams{URI: "heat"}}
			send(t.Context(), updatedMethod, req)
		}
		update()
		time.Sleep(100 * time.Millisecond)
		update() // it is told once more
		v := &view{front: &Server{teller: teller}, subscriptions: s}
		v.forget(session, []string{"heat", "taste"})
		if took := time.Since(start); took != 300*time.Millisecond {
			t.Errorf("it was answered after %v", took)
		}
		update() // the SDK does not know yet
		time.Sleep(time.Second)
		synctest.Wait()
		if fmt.Sprint(told) != "[300ms]" || len(teller.telling) > 0 {
			t.Errorf("told after %v", told)
		}
	})
}
