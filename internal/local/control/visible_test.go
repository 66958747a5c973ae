package control_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// hiding hides tools by name, and devices by ID, from agents other than "owner".
type hiding struct {
	mu      sync.Mutex
	names   []string
	changed chan struct{}
}

func (h *hiding) Of(who ferrule.Principal) ferrule.Visibility {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := h.names
	if strings.HasSuffix(who.Name, "owner") || who.Role != ferrule.Agent {
		return ferrule.Visibility{}
	}
	return ferrule.Visibility{Shows: func(dev *ferrule.Device, _ ferrule.Operation, tool *ferrule.Tool) bool {
		return !slices.Contains(names, dev.ID) && !slices.Contains(names, tool.Name)
	}}
}

func (h *hiding) Changed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}

func (h *hiding) hide(names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names = names
	close(h.changed)
	h.changed = make(chan struct{})
}

// toolRecorder records the tools of devices, and whether two devices share a manifest.
type toolRecorder struct {
	recorder
	last *ferrule.Manifest
}

func (v *toolRecorder) Put(dev *ferrule.Device, m *ferrule.Manifest) {
	text := dev.ID
	for _, t := range m.Tools {
		text += " " + t.Name
	}
	for _, r := range m.Resources {
		text += " " + r.URI
	}
	for _, p := range m.Prompts {
		text += " " + p.Name
	}
	if m == v.last {
		text += " shared"
	}
	v.last = m
	v.calls <- text
}

// TestWatchFleetAs checks that an agent is sent only what it is shown, nothing while it is
// not known who it is, and everything again when the policy has changed.
func TestWatchFleetAs(t *testing.T) {
	board := &ferrule.Manifest{
		Model: "board", Tools: []ferrule.Tool{{Name: "look"}, {Name: "move"}}, Operations: []ferrule.Operation{ferrule.ReadResource, ferrule.GetPrompt},
		Resources: []ferrule.Resource{{URI: "file:///log"}, {URI: "file:///key"}}, Prompts: []ferrule.Prompt{{Name: "greet"}},
	}
	h := &hiding{changed: make(chan struct{})}
	h.hide("move", "file:///key", "c")
	watchers := make(chan ferrule.DeviceWatcher, 10)
	client, _ := serve(t, &gateway{visibility: h, follow: func(f ferrule.DeviceWatcher) func() {
		for _, id := range []string{"a", "b", "c"} {
			f.Put(&ferrule.Device{ID: id, State: ferrule.StateOnline}, board)
		}
		watchers <- f
		return func() {}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := func(agent *ferrule.Client) *toolRecorder {
		v := &toolRecorder{recorder: recorder{make(chan string, 100)}}
		go client.WatchFleet(ctx, nil, agent, "", v)
		return v
	}
	owner := watch(&ferrule.Client{Name: "owner"})
	const all = " look move file:///log file:///key greet"
	owner.expect(t, "a"+all, "b"+all+" shared", "c"+all+" shared", "synced")
	nobody := watch(nil)
	nobody.expect(t, "synced")
	<-watchers
	agent := watch(&ferrule.Client{Name: "agent"})
	agent.expect(t, "a look file:///log greet", "b look file:///log greet shared", "gone c", "synced")
	f := <-watchers
	f.Put(&ferrule.Device{ID: "c", State: ferrule.StateOnline}, board)
	agent.expect(t, "gone c")
	h.hide("look", "a")
	const rest = " move file:///log file:///key greet"
	agent.expect(t, "gone a", "b"+rest, "c"+rest+" shared")
	owner.expect(t, "a"+all+" shared", "b"+all+" shared", "c"+all+" shared")
	if len(nobody.calls) > 0 {
		t.Errorf("somebody unknown was sent %s", <-nobody.calls)
	}
}

// TestWatchFleetMisses checks that no change is lost while the policy changes.
func TestWatchFleetMisses(t *testing.T) {
	board := &ferrule.Manifest{Model: "board", Tools: []ferrule.Tool{{Name: "look"}}}
	h := &hiding{changed: make(chan struct{})}
	var mu sync.Mutex
	following := make(map[ferrule.DeviceWatcher]bool)
	there := true
	client, _ := serve(t, &gateway{visibility: h, follow: func(f ferrule.DeviceWatcher) func() {
		mu.Lock()
		defer mu.Unlock()
		if there {
			f.Put(&ferrule.Device{ID: "a", State: ferrule.StateOnline}, board)
		}
		following[f] = true
		return func() {
			mu.Lock()
			defer mu.Unlock()
			if delete(following, f); there { // it goes as soon as one watcher has left
				there = false
				for f := range following {
					f.Remove("a")
				}
			}
		}
	}})
	v := &toolRecorder{recorder: recorder{make(chan string, 100)}}
	go client.WatchFleet(t.Context(), []control.DeviceRequest{}, &ferrule.Client{Name: "agent"}, "", v)
	v.expect(t, "a look", "synced")
	h.hide()
	for {
		select {
		case got := <-v.calls:
			if got == "gone a" {
				return
			}
		case <-time.After(wait.Ample):
			t.Fatal("the end of a device was missed")
		}
	}
}
