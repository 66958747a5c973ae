package fleet_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/fleet"
)

func device(id string, state ferrule.State) *ferrule.Device {
	return &ferrule.Device{ID: id, Kind: "k", State: state, Reason: "unplugged"}
}

// handle sends a call to the device that the fleet finds.
func handle(ctx context.Context, f *fleet.Fleet, call *ferrule.Call) (*ferrule.Result, error) {
	target, _ := f.Target(call.Device)
	call.Target.Handler = target.Handler
	return call.Target.Handle(ctx, call)
}

// replies returns a handler that answers with a name.
func replies(name string) ferrule.Handler {
	return func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		return &ferrule.Result{Value: []byte(name)}, nil
	}
}

func ids(devices []*ferrule.Device) []string {
	var all []string
	for _, d := range devices {
		all = append(all, d.ID)
	}
	return all
}

func TestFleet(t *testing.T) {
	f := fleet.New(nil)
	m := &ferrule.Manifest{Model: "m"}
	f.Put(device("robot", ferrule.StateOnline), m, replies("robot"))
	f.Put(device("arm", ferrule.StateOffline), nil, nil)
	f.PutBuiltin(device("gateway", ferrule.StateOnline), m, replies("gateway"))

	if got := ids(f.Devices()); !slices.Equal(got, []string{"arm", "robot"}) {
		t.Errorf("devices are %q", got)
	}
	for _, id := range []string{"robot", "gateway"} {
		dev, manifest, ok := f.Lookup(id)
		if !ok || dev.ID != id || manifest != m {
			t.Errorf("%s: %+v, %+v, %t", id, dev, manifest, ok)
		}
		result, err := handle(t.Context(), f, &ferrule.Call{Device: id, Target: ferrule.Target{Device: dev}})
		if err != nil || string(result.Value) != id {
			t.Errorf("%s: %v, %v", id, result, err)
		}
	}
	renamed := device("leg", ferrule.StateOnline)
	renamed.Aliases = []string{"foot", "robot"} // the ID of another device counts more
	f.Put(renamed, m, replies("leg"))
	if target, ok := f.Target("foot"); !ok || target.Device.ID != "leg" {
		t.Errorf("by an earlier ID: got %+v, %t", target, ok)
	}
	if target, ok := f.Target("robot"); !ok || target.Device.ID != "robot" {
		t.Errorf("got %+v, %t", target, ok)
	}
	f.Remove("leg")
	if _, ok := f.Target("foot"); ok {
		t.Error("a device that is gone is found by its earlier ID")
	}
	dev, _, _ := f.Lookup("arm")
	if _, err := handle(t.Context(), f, &ferrule.Call{Device: "arm", Target: ferrule.Target{Device: dev}}); ferrule.AsError(err).Code != ferrule.Offline {
		t.Errorf("got %v", err)
	}

	f.Put(device("robot", ferrule.StateOffline), m, nil)
	if dev, _, _ := f.Lookup("robot"); dev.State != ferrule.StateOffline {
		t.Errorf("got %+v", dev)
	}
	dev, _, _ = f.Lookup("robot")
	if _, err := handle(t.Context(), f, &ferrule.Call{Device: "robot", Target: ferrule.Target{Device: dev}}); err == nil || ferrule.AsError(err).Code != ferrule.Offline {
		t.Errorf("it can still be reached: %v", err)
	}
	f.Remove("robot")
	if _, _, ok := f.Lookup("robot"); ok {
		t.Error("robot was removed but is there")
	}
}

func TestFleetUnderChange(t *testing.T) {
	f := fleet.New(nil)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 500 {
				id := fmt.Sprintf("d%d-%d", w, i%10)
				f.Put(device(id, ferrule.StateOnline), nil, replies(id))
				if dev, _, ok := f.Lookup(id); !ok || dev.ID != id {
					t.Errorf("%s: %+v, %t", id, dev, ok)
				}
				if i%10 == 9 {
					f.Remove(id)
				}
				f.Devices()
			}
		})
	}
	wg.Wait()
	if n := len(f.Devices()); n != 8*9 {
		t.Errorf("%d devices are left", n)
	}
}

// recorder is a watcher that records its calls.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (d *recorder) Put(dev *ferrule.Device, effective *ferrule.Manifest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%s %s %t", dev.ID, dev.State, effective != nil))
}

func (d *recorder) Remove(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, id+" removed")
}

// TestWatchDevices checks that a watcher receives all devices and then every change
// in order.
func TestWatchDevices(t *testing.T) {
	f := fleet.New(nil)
	m := &ferrule.Manifest{Model: "m"}
	f.PutBuiltin(device("gateway", ferrule.StateOnline), m, replies("gateway"))
	f.Put(device("robot", ferrule.StateOnline), m, replies("robot"))
	f.Put(device("arm", ferrule.StateOffline), nil, nil)
	f.Put(device("gone", ferrule.StateOnline), m, nil)
	f.Remove("gone")
	var early, late recorder
	f.WatchDevices(&early)
	slices.Sort(early.lines) // the first ones come in no order
	if want := []string{"arm offline false", "gateway online true", "robot online true"}; !slices.Equal(early.lines, want) {
		t.Errorf("told %q", early.lines)
	}
	early.lines = nil
	f.Put(device("robot", ferrule.StateOffline), m, nil)
	f.Put(device("robot", ferrule.StateOnline), m, replies("robot"))
	f.Remove("arm")
	f.Put(device("arm", ferrule.StateReleased), m, nil)
	f.PutBuiltin(device("gateway", ferrule.StateOnline), m, replies("gateway"))
	f.Remove("robot")
	want := []string{"robot offline true", "robot online true", "arm removed", "arm released true", "gateway online true", "robot removed"}
	if !slices.Equal(early.lines, want) {
		t.Errorf("told %q", early.lines)
	}
	f.WatchDevices(&late)
	slices.Sort(late.lines)
	if want := []string{"arm released true", "gateway online true"}; !slices.Equal(late.lines, want) {
		t.Errorf("told %q", late.lines)
	}
	if n := len(early.lines); n != len(want) {
		t.Errorf("the first watcher received more: %q", early.lines)
	}
}

// mirror is a watcher that keeps the present devices.
type mirror struct {
	mu    sync.Mutex
	there map[string]*ferrule.Device
}

func (m *mirror) Put(dev *ferrule.Device, _ *ferrule.Manifest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.there[dev.ID] = dev
}

func (m *mirror) Remove(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.there, id)
}

// TestWatchUnderChange checks that watchers that start at any time end up with all
// devices.
func TestWatchUnderChange(t *testing.T) {
	f := fleet.New(nil)
	mirrors := make([]*mirror, 20)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 500 {
				// Two goroutines change each device.
				id := fmt.Sprintf("d%d-%d", w/2, i%10)
				if i%3 == 2 {
					f.Remove(id)
				} else {
					f.Put(device(id, ferrule.StateOnline), nil, nil)
				}
			}
		})
	}
	for i := range mirrors {
		mirrors[i] = &mirror{there: make(map[string]*ferrule.Device)}
		wg.Go(func() { f.WatchDevices(mirrors[i]) })
	}
	wg.Wait()
	all := f.Devices()
	for i, m := range mirrors {
		if len(m.there) != len(all) {
			t.Errorf("%d has %d devices of %d", i, len(m.there), len(all))
		}
		for _, dev := range all {
			if m.there[dev.ID] != dev {
				t.Errorf("%d has another %s", i, dev.ID)
			}
		}
	}
}
