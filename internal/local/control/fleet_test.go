package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// recorder is a control.FleetWatcher that sends every call to a channel.
type recorder struct{ calls chan string }

func (v recorder) Put(dev *ferrule.Device, m *ferrule.Manifest) {
	model := "nothing"
	if m != nil {
		model = m.Model + string(m.Tools[0].Input)
	}
	v.calls <- fmt.Sprintf("%s %s %s", dev.ID, dev.State, model)
}
func (v recorder) Remove(id string) { v.calls <- "gone " + id }
func (v recorder) Requested(requests []control.DeviceRequest) {
	v.calls <- fmt.Sprint("requested ", requests)
}
func (v recorder) Refused(reason string) { v.calls <- "refused " + reason }
func (v recorder) Synced()               { v.calls <- "synced" }

func (v recorder) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-v.calls:
			if got != w {
				t.Errorf("got %q, want %q", got, w)
			}
		case <-time.After(wait.Ample):
			t.Fatalf("missing %q", w)
		}
	}
}

// TestWatchFleet checks that a watcher gets all devices, each change and all requested
// devices, until the gateway exits.
func TestWatchFleet(t *testing.T) {
	board := &ferrule.Manifest{Model: "board", Tools: []ferrule.Tool{{Name: "look", Input: json.RawMessage(`{}`)}}}
	watchers := make(chan ferrule.DeviceWatcher, 2)
	stopped := make(chan bool, 2)
	g := &gateway{follow: func(f ferrule.DeviceWatcher) func() {
		f.Put(&ferrule.Device{ID: "a", State: ferrule.StateOnline}, board)
		f.Put(&ferrule.Device{ID: "b", State: ferrule.StateOnline}, board)
		f.Put(&ferrule.Device{ID: "c", State: ferrule.StateOffline}, nil)
		watchers <- f
		return func() { stopped <- true }
	}}
	client, end := serve(t, g)
	v := recorder{make(chan string, 100)}
	over := make(chan error, 1)
	go func() {
		over <- client.WatchFleet(t.Context(), []control.DeviceRequest{{Transport: "tcp", Address: "x:1"}}, &ferrule.Client{Name: "test"}, "", v)
	}()
	v.expect(t, "a online board{}", "b online board{}", "c offline nothing", "requested [{tcp x:1  false 0 }]", "synced")

	f := <-watchers
	f.Put(&ferrule.Device{ID: "a", State: ferrule.StateOffline}, board)
	v.expect(t, "a offline board{}")
	f.Remove("a")
	v.expect(t, "gone a")
	if err := g.Add(t.Context(), []control.DeviceRequest{{Transport: "tcp", Address: "x:2"}}); err != nil {
		t.Fatal(err)
	}
	f.Put(&ferrule.Device{ID: "d", State: ferrule.StateOnline}, board)
	got := []string{<-v.calls, <-v.calls} // in either order
	slices.Sort(got)
	if got := strings.Join(got, ", "); got != "d online board{}, requested [{tcp x:1  false 0 } {tcp x:2  false 0 }]" {
		t.Errorf("got %s", got)
	}
	other := recorder{make(chan string, 100)}
	go client.WatchFleet(t.Context(), []control.DeviceRequest{{Address: "taken"}}, &ferrule.Client{Name: "test"}, "", other)
	other.expect(t, "refused in use", "a online board{}")
	end()
	if err := <-over; err == nil || !strings.Contains(err.Error(), "connection to the gateway lost") {
		t.Errorf("got %v", err)
	}
	select {
	case <-stopped:
	case <-time.After(wait.Ample):
		t.Error("the server still watches devices")
	}
	if err := client.WatchFleet(t.Context(), nil, &ferrule.Client{Name: "test"}, "", v); err == nil {
		t.Error("got no error after the gateway exited")
	}
}

// TestWatchFleetSlowReader checks that a slow reader gets the last change of a device,
// and that the fleet does not wait for it.
func TestWatchFleetSlowReader(t *testing.T) {
	const changes = 200_000
	begun := make(chan ferrule.DeviceWatcher, 1)
	client, _ := serve(t, &gateway{follow: func(f ferrule.DeviceWatcher) func() {
		begun <- f
		return func() {}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	v := recorder{make(chan string)}
	go client.WatchFleet(ctx, nil, &ferrule.Client{Name: "test"}, "", v)
	f := <-begun
	start := time.Now()
	for i := range changes {
		f.Put(&ferrule.Device{ID: "a", Reason: fmt.Sprint(i), State: ferrule.StateOffline}, nil)
	}
	f.Put(&ferrule.Device{ID: "a", State: ferrule.StateOnline}, nil)
	figure.AtMost(t, "200,000 changes with a slow reader", time.Since(start), 10*time.Second)
	for n := 0; ; n++ {
		select {
		case got := <-v.calls:
			if got == "a online nothing" {
				return
			}
		case <-time.After(wait.Ample):
			t.Fatalf("the last change is missing after %d changes", n)
		}
	}
}
