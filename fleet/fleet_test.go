package fleet_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/fleet"
)

func device(id string, state ferrule.State) *ferrule.Device {
	return &ferrule.Device{ID: id, Kind: "k", State: state, Reason: "unplugged"}
}

func way(name string) ferrule.Handler {
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
	f := fleet.New(fleet.NewMemoryRegistry())
	m := &ferrule.Manifest{Model: "m"}
	f.Put(device("robot", ferrule.StateOnline), m, way("robot"))
	f.Put(device("arm", ferrule.StateOffline), nil, nil)
	f.Own(device("gateway", ferrule.StateOnline), m, way("gateway"))

	if got := ids(f.Devices()); !slices.Equal(got, []string{"arm", "robot"}) {
		t.Errorf("devices are %q", got)
	}
	for _, id := range []string{"robot", "gateway"} {
		dev, manifest, ok := f.Lookup(id)
		if !ok || dev.ID != id || manifest != m {
			t.Errorf("%s: %+v, %+v, %t", id, dev, manifest, ok)
		}
		result, err := f.Handle(t.Context(), &ferrule.Call{Device: id, Target: ferrule.Target{Device: dev}})
		if err != nil || string(result.Value) != id {
			t.Errorf("%s: %v, %v", id, result, err)
		}
	}
	dev, _, _ := f.Lookup("arm")
	if _, err := f.Handle(t.Context(), &ferrule.Call{Device: "arm", Target: ferrule.Target{Device: dev}}); ferrule.AsError(err).Code != ferrule.Offline {
		t.Errorf("got %v", err)
	}

	f.Put(device("robot", ferrule.StateOffline), m, nil)
	if dev, _, _ := f.Lookup("robot"); dev.State != ferrule.StateOffline {
		t.Errorf("got %+v", dev)
	}
	dev, _, _ = f.Lookup("robot")
	if _, err := f.Handle(t.Context(), &ferrule.Call{Device: "robot", Target: ferrule.Target{Device: dev}}); err == nil || ferrule.AsError(err).Code != ferrule.Offline {
		t.Errorf("there is still a way to it: %v", err)
	}
	f.Remove("robot")
	if _, _, ok := f.Lookup("robot"); ok {
		t.Error("robot was removed, and is there")
	}
}

func TestFleetUnderChange(t *testing.T) {
	f := fleet.New(fleet.NewMemoryRegistry())
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 500 {
				id := fmt.Sprintf("d%d-%d", w, i%10)
				f.Put(device(id, ferrule.StateOnline), nil, way(id))
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
