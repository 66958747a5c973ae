package fleet_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/fleet"
)

// on returns a device of a node with a state since a time in seconds.
func on(node string, state ferrule.State, since int) *ferrule.Device {
	dev := device("robot", state)
	dev.Node, dev.Since = node, time.Unix(int64(since), 0)
	return dev
}

// TestCurrent checks which of two records counts, for all readers.
func TestCurrent(t *testing.T) {
	const online, offline, released = ferrule.StateOnline, ferrule.StateOffline, ferrule.StateReleased
	for name, test := range map[string]struct {
		own, other *ferrule.Device
		want       string
	}{
		"own only":                          {on("here", offline, 1), nil, "here"},
		"remote only":                       {nil, on("there", offline, 1), "there"},
		"online here":                       {on("here", online, 1), on("there", offline, 2), "here"},
		"online at both":                    {on("here", online, 1), on("there", online, 2), "here"},
		"online there":                      {on("here", offline, 2), on("there", online, 1), "there"},
		"online there, released here":       {on("here", released, 2), on("there", online, 1), "there"},
		"released here":                     {on("here", released, 1), on("there", offline, 2), "here"},
		"released here and later there":     {on("here", released, 1), on("there", released, 2), "here"},
		"offline, later here":               {on("here", offline, 2), on("there", offline, 1), "here"},
		"offline, later there":              {on("here", offline, 1), on("there", offline, 2), "there"},
		"offline here, released there":      {on("here", offline, 1), on("there", released, 2), "there"},
		"offline here, released there once": {on("here", offline, 2), on("there", released, 1), "here"},
		"offline at the same moment":        {on("here", offline, 1), on("there", offline, 1), "here"},
	} {
		for _, ownFirst := range []bool{true, false} {
			f := fleet.New(nil)
			told := &mirror{there: make(map[string]*ferrule.Device)}
			f.WatchDevices(told)
			manifests := map[string]*ferrule.Manifest{"here": {Model: "here"}, "there": {Model: "there"}}
			puts := []func(){
				func() {
					if test.own != nil {
						f.Put(test.own, manifests["here"], replies("here"))
					}
				},
				func() {
					if test.other != nil {
						f.PutRemote(test.other, manifests["there"], replies("there"))
					}
				},
			}
			if !ownFirst {
				slices.Reverse(puts)
			}
			for _, put := range puts {
				put()
			}
			dev, m, ok := f.Lookup("robot")
			if !ok || dev.Node != test.want || m != manifests[test.want] {
				t.Errorf("%s: found %+v, %+v, %t", name, dev, m, ok)
			}
			if result, err := handle(t.Context(), f, &ferrule.Call{Device: "robot"}); err != nil || string(result.Value) != test.want {
				t.Errorf("%s: called %v, %v", name, result, err)
			}
			if all := f.Devices(); len(all) != 1 || all[0] != dev {
				t.Errorf("%s: listed %+v", name, all)
			}
			late := &mirror{there: make(map[string]*ferrule.Device)}
			f.WatchDevices(late)
			if told.there["robot"] != dev || late.there["robot"] != dev {
				t.Errorf("%s: told %+v, and later %+v", name, told.there["robot"], late.there["robot"])
			}
		}
	}
}

// TestWatchBoth checks that watchers receive changes of the current record only, and
// that watchers of own devices receive only these.
func TestWatchBoth(t *testing.T) {
	f := fleet.New(nil)
	f.Put(on("here", ferrule.StateOnline, 1), nil, nil)
	f.PutRemote(device("arm", ferrule.StateOnline), nil, nil)
	f.PutBuiltin(device("gateway", ferrule.StateOnline), nil, replies("gateway"))
	var seen, own recorder
	stop := f.WatchDevices(&seen)
	stopOwn := f.WatchOwn(&own)
	if want := []string{"robot online false"}; !slices.Equal(own.lines, want) {
		t.Errorf("own devices at first: %q", own.lines)
	}
	var each []string
	f.EachOwn(func(dev *ferrule.Device) { each = append(each, dev.ID) })
	if !slices.Equal(each, []string{"robot"}) {
		t.Errorf("own devices are %q", each)
	}
	seen.lines, own.lines = nil, nil
	for _, step := range []struct {
		do        func()
		seen, own []string
	}{
		{func() { f.PutRemote(on("there", ferrule.StateOnline, 2), nil, nil) }, nil, nil},
		{func() { f.Put(on("here", ferrule.StateOffline, 3), nil, nil) }, []string{"robot online false"}, []string{"robot offline false"}},
		{func() { f.Put(on("here", ferrule.StateReleased, 4), nil, nil) }, nil, []string{"robot released false"}},
		{func() { f.PutRemote(on("there", ferrule.StateOffline, 5), nil, nil) }, []string{"robot released false"}, nil},
		{func() { f.Remove("robot") }, []string{"robot offline false"}, []string{"robot removed"}},
		{func() { f.Remove("robot") }, nil, nil},
		{func() { f.Remove("arm") }, nil, nil},
		{func() { f.Put(on("here", ferrule.StateOnline, 6), nil, nil) }, []string{"robot online false"}, []string{"robot online false"}},
		{func() { f.RemoveRemote("robot") }, nil, nil},
		{func() { f.RemoveRemote("robot") }, nil, nil},
		{func() { f.RemoveRemote("arm") }, []string{"arm removed"}, nil},
		{func() { f.PutBuiltin(device("gateway", ferrule.StateOnline), nil, nil) }, []string{"gateway online false"}, nil},
		{func() { f.Remove("robot") }, []string{"robot removed"}, []string{"robot removed"}},
		{func() { stop(); stopOwn(); f.Put(on("here", ferrule.StateOnline, 7), nil, nil) }, nil, nil},
	} {
		seen.lines, own.lines = nil, nil
		step.do()
		if !slices.Equal(seen.lines, step.seen) || !slices.Equal(own.lines, step.own) {
			t.Errorf("told %q and %q, want %q and %q", seen.lines, own.lines, step.seen, step.own)
		}
	}
}

// TestFinder checks that the Finder is asked for unknown devices only, without a
// lock held.
func TestFinder(t *testing.T) {
	var f *fleet.Fleet
	var asked []string
	f = fleet.New(func(id string) (fleet.Record, bool) {
		asked = append(asked, id)
		f.PutRemote(device("meanwhile", ferrule.StateOnline), nil, nil) // deadlocks if a lock is held
		if id != "far" {
			return fleet.Record{}, false
		}
		return fleet.Record{Device: device("far", ferrule.StateOnline), Manifest: &ferrule.Manifest{}, Handler: replies("far")}, true
	})
	f.PutBuiltin(device("gateway", ferrule.StateOnline), nil, replies("gateway"))
	f.Put(device("arm", ferrule.StateOffline), nil, nil)
	dev, m, ok := f.Lookup("far")
	if !ok || dev.ID != "far" || m == nil {
		t.Errorf("found %+v, %+v, %t", dev, m, ok)
	}
	if result, err := handle(t.Context(), f, &ferrule.Call{Device: "far"}); err != nil || string(result.Value) != "far" {
		t.Errorf("called %v, %v", result, err)
	}
	if dev, _, ok := f.Lookup("nowhere"); ok || dev != nil {
		t.Errorf("found %+v", dev)
	}
	gone := ferrule.Target{Device: device("gone", ferrule.StateOffline)}
	if _, err := handle(t.Context(), f, &ferrule.Call{Device: "gone", Target: gone}); ferrule.AsError(err).Code != ferrule.Offline {
		t.Errorf("got %v", err)
	}
	for _, id := range []string{"arm", "gateway"} {
		if _, _, ok := f.Lookup(id); !ok {
			t.Errorf("there is no %s", id)
		}
	}
	arm := ferrule.Target{Device: device("arm", ferrule.StateOffline)}
	if _, err := handle(t.Context(), f, &ferrule.Call{Device: "arm", Target: arm}); ferrule.AsError(err).Code != ferrule.Offline {
		t.Errorf("got %v", err)
	}
	if want := []string{"far", "far", "nowhere", "gone"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q", asked)
	}
}

// TestRemoteUnderChange changes own and remote records concurrently and checks that
// watchers end up with the current ones.
func TestRemoteUnderChange(t *testing.T) {
	f := fleet.New(func(string) (fleet.Record, bool) { return fleet.Record{}, false })
	states := []ferrule.State{ferrule.StateOnline, ferrule.StateOffline, ferrule.StateReleased}
	seen, own := &mirror{there: make(map[string]*ferrule.Device)}, &mirror{there: make(map[string]*ferrule.Device)}
	f.WatchDevices(seen)
	f.WatchOwn(own)
	var lastOwn [10]atomic.Pointer[ferrule.Device]
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				n := i % 10
				dev := device(fmt.Sprint("d", n), states[i%3])
				dev.Since = time.Unix(int64(i%7), 0)
				switch {
				case w == 0 && i%5 == 4:
					f.Remove(dev.ID)
					lastOwn[n].Store(nil)
				case w == 0:
					f.Put(dev, nil, replies("here"))
					lastOwn[n].Store(dev)
				case i%4 == 3:
					f.RemoveRemote(dev.ID)
				default:
					f.PutRemote(dev, nil, replies("there"))
				}
			}
		})
		wg.Go(func() {
			for i := range 1000 {
				id := fmt.Sprint("d", i%10)
				if dev, _, ok := f.Lookup(id); ok {
					handle(t.Context(), f, &ferrule.Call{Device: id, Target: ferrule.Target{Device: dev}})
				}
				if i%100 == 0 {
					f.Devices()
				}
			}
		})
	}
	wg.Wait()
	all := f.Devices()
	if len(seen.there) != len(all) {
		t.Errorf("%d devices, but the watcher has %d", len(all), len(seen.there))
	}
	for _, dev := range all {
		if seen.there[dev.ID] != dev {
			t.Errorf("device is %+v, but the watcher has %+v", dev, seen.there[dev.ID])
		}
	}
	for n := range lastOwn {
		if dev := own.there[fmt.Sprint("d", n)]; dev != lastOwn[n].Load() {
			t.Errorf("own device is %+v, want %+v", dev, lastOwn[n].Load())
		}
	}
}

// TestLookupAllocations checks that a lookup, which every call does, does not
// allocate.
func TestLookupAllocations(t *testing.T) {
	f := fleet.New(nil)
	f.Put(on("here", ferrule.StateOffline, 1), nil, nil)
	f.PutRemote(on("there", ferrule.StateOnline, 1), nil, nil)
	if n := testing.AllocsPerRun(100, func() { f.Lookup("robot"); f.Target("robot") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
