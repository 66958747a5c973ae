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
)

// visitor writes down what it is told.
type visitor struct{ told chan string }

func (v visitor) Put(dev *ferrule.Device, m *ferrule.Manifest) {
	model := "nothing"
	if m != nil {
		model = m.Model + string(m.Tools[0].Input)
	}
	v.told <- fmt.Sprintf("%s %s %s", dev.ID, dev.State, model)
}
func (v visitor) Remove(id string)                      { v.told <- "gone " + id }
func (v visitor) Wished(wishes []control.DeviceRequest) { v.told <- fmt.Sprint("wished ", wishes) }
func (v visitor) Refused(reason string)                 { v.told <- "refused " + reason }
func (v visitor) Synced()                               { v.told <- "synced" }

func (v visitor) hears(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-v.told:
			if got != w {
				t.Errorf("told %q, want %q", got, w)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("never told %q", w)
		}
	}
}

// TestFollow: a visitor is told of all that there is, of each change, and of what
// is asked for, until the gateway goes away.
func TestFollow(t *testing.T) {
	board := &ferrule.Manifest{Model: "board", Tools: []ferrule.Tool{{Name: "look", Input: json.RawMessage(`{}`)}}}
	followers := make(chan ferrule.DeviceWatcher, 2)
	stopped := make(chan bool, 2)
	g := &gateway{follow: func(f ferrule.DeviceWatcher) func() {
		f.Put(&ferrule.Device{ID: "a", State: ferrule.StateOnline}, board)
		f.Put(&ferrule.Device{ID: "b", State: ferrule.StateOnline}, board)
		f.Put(&ferrule.Device{ID: "c", State: ferrule.StateOffline}, nil)
		followers <- f
		return func() { stopped <- true }
	}}
	client, end := serve(t, g)
	v := visitor{make(chan string, 100)}
	over := make(chan error, 1)
	go func() {
		over <- client.Follow(t.Context(), []control.DeviceRequest{{Transport: "tcp", Address: "x:1"}}, v)
	}()
	v.hears(t, "a online board{}", "b online board{}", "c offline nothing", "wished [{tcp x:1  false 0 }]", "synced")

	f := <-followers
	f.Put(&ferrule.Device{ID: "a", State: ferrule.StateOffline}, board)
	v.hears(t, "a offline board{}")
	f.Remove("a")
	v.hears(t, "gone a")
	if err := g.Wish(t.Context(), []control.DeviceRequest{{Transport: "tcp", Address: "x:2"}}); err != nil {
		t.Fatal(err)
	}
	f.Put(&ferrule.Device{ID: "d", State: ferrule.StateOnline}, board)
	told := []string{<-v.told, <-v.told} // in either order: somebody may just have looked
	slices.Sort(told)
	if got := strings.Join(told, ", "); got != "d online board{}, wished [{tcp x:1  false 0 } {tcp x:2  false 0 }]" {
		t.Errorf("told %s", got)
	}
	other := visitor{make(chan string, 100)}
	go client.Follow(t.Context(), []control.DeviceRequest{{Address: "taken"}}, other)
	other.hears(t, "refused somebody has it", "a online board{}")
	end()
	if err := <-over; err == nil || !strings.Contains(err.Error(), "the gateway went away") {
		t.Errorf("got %v", err)
	}
	select {
	case <-stopped:
	case <-time.After(5 * time.Second):
		t.Error("it is told of devices still")
	}
	if err := client.Follow(t.Context(), nil, v); err == nil {
		t.Error("a gateway that has gone was followed")
	}
}

// TestFollowSlowly: of a device that changes faster than it is read, the last word
// is told, and nobody waits.
func TestFollowSlowly(t *testing.T) {
	const changes = 200_000
	begun := make(chan ferrule.DeviceWatcher, 1)
	client, _ := serve(t, &gateway{follow: func(f ferrule.DeviceWatcher) func() {
		begun <- f
		return func() {}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	v := visitor{make(chan string)}
	go client.Follow(ctx, nil, v)
	f := <-begun
	start := time.Now()
	for i := range changes {
		f.Put(&ferrule.Device{ID: "a", Reason: fmt.Sprint(i), State: ferrule.StateOffline}, nil)
	}
	f.Put(&ferrule.Device{ID: "a", State: ferrule.StateOnline}, nil)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("telling took %v", took)
	}
	for told := 0; ; told++ {
		select {
		case got := <-v.told:
			if got == "a online nothing" {
				return
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("the last word was never told, after %d", told)
		}
	}
}
