package condition

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func ptr(v float64) *float64 { return &v }

// dev returns an online device with labels such as room=kitchen.
func dev(id string, labels ...string) *ferrule.Device {
	d := &ferrule.Device{ID: id, State: ferrule.StateOnline}
	for _, l := range labels {
		if d.Labels == nil {
			d.Labels = make(map[string]string)
		}
		key, value, _ := strings.Cut(l, "=")
		d.Labels[key] = value
	}
	return d
}

// reading returns a reading of one signal with values at times.
func reading(device, signal string, state bool, samples ...ferrule.Sample) ferrule.Reading {
	return ferrule.Reading{Device: device, Node: "n", Poll: "p", Batches: []ferrule.SampleBatch{{Signal: signal, State: state, Samples: samples}}}
}

// hits collects hits as "id device value".
type hits struct {
	mu  sync.Mutex
	all []string
}

func (h *hits) of(id string) func(Hit) {
	return func(hit Hit) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = append(h.all, fmt.Sprintf("%s %s %v", id, hit.Device, hit.Value))
	}
}

func (h *hits) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := strings.Join(h.all, ", ")
	h.all = nil
	return text
}

func add(t *testing.T, x *Index, h *hits, id string, c Condition) {
	t.Helper()
	if err := x.Add(Entry{ID: id, Condition: c, Hit: h.of(id)}); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, h *hits, want string) {
	t.Helper()
	if got := h.take(); got != want {
		t.Errorf("hits are %q, want %q", got, want)
	}
}

// TestIndexSelects checks that conditions reach devices by ID, earlier ID, pattern and label,
// whichever comes first, and that a change of labels counts.
func TestIndexSelects(t *testing.T) {
	x, h := NewIndex(Parts{}), &hits{}
	add(t, x, h, "id", Condition{Device: "kitchen-1", Signal: "t", Above: ptr(5)})
	add(t, x, h, "later", Condition{Device: "old", Signal: "t", Above: ptr(5)})
	x.Devices().Put(dev("kitchen-1", "room=kitchen"), nil)
	x.Devices().Put(dev("hall-1", "room=hall"), nil)
	add(t, x, h, "label", Condition{Device: "room=kitchen", Signal: "t", Above: ptr(5)})
	add(t, x, h, "pattern", Condition{Device: "hall-*", Signal: "t", Above: ptr(5)})
	at := time.Now()
	send := func(id string, v float64) {
		at = at.Add(time.Second)
		x.Reading(reading(id, "t", false, ferrule.Sample{Time: at, Value: v}))
	}
	send("kitchen-1", 6)
	expect(t, h, "id kitchen-1 6, label kitchen-1 6")
	send("hall-1", 7)
	expect(t, h, "pattern hall-1 7")
	send("kitchen-1", 6.5)
	expect(t, h, "") // it is still true
	x.Devices().Put(dev("hall-1", "room=kitchen"), nil)
	send("hall-1", 8)
	expect(t, h, "label hall-1 8")
	x.Devices().Put(dev("hall-1", "room=hall"), nil)
	send("hall-1", 1)
	send("hall-1", 9)
	expect(t, h, "pattern hall-1 9")
	renamed := dev("new")
	renamed.Aliases = []string{"old"}
	x.Devices().Put(renamed, nil)
	send("new", 6)
	expect(t, h, "later new 6")
	x.Devices().Remove("kitchen-1")
	send("kitchen-1", 1)
	send("kitchen-1", 9)
	expect(t, h, "id kitchen-1 9") // a device that is named need not be in the fleet
	for _, id := range []string{"id", "later", "label", "pattern", "unknown"} {
		x.Remove(id)
	}
	send("hall-1", 1)
	send("hall-1", 10)
	expect(t, h, "")
	if x.Len() != 0 || x.count != 0 || len(x.timers) != 0 {
		t.Errorf("%d conditions, %d evaluators and %d timers are left", x.Len(), x.count, len(x.timers))
	}
}

// TestIndexHysteresis checks that a condition is met if it is true from the beginning, and
// again only after the value was far enough back.
func TestIndexHysteresis(t *testing.T) {
	x, h := NewIndex(Parts{}), &hits{}
	add(t, x, h, "a", Condition{Device: "d", Signal: "t", Above: ptr(5), Hysteresis: 2})
	at := time.Now()
	for _, step := range []struct {
		value float64
		want  string
	}{{6, "a d 6"}, {4, ""}, {6, ""}, {3, ""}, {5, ""}, {5.5, "a d 5.5"}} {
		at = at.Add(time.Second)
		x.Reading(reading("d", "t", false, ferrule.Sample{Time: at, Value: step.value}))
		expect(t, h, step.want)
	}
}

// TestIndexEvents checks event types, methods and params.
// TestIndexOldSamples: a board keeps its samples until they are read. Those from long before a
// condition was added do not meet it, unless the clock of their node is wrong.
func TestIndexOldSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, h := NewIndex(Parts{}), &hits{}
		x.put(dev("tank"))
		at := func(ago time.Duration, v float64) ferrule.Sample {
			return ferrule.Sample{Time: time.Now().Add(-ago), Value: v}
		}
		add(t, x, h, "full", Condition{Device: "tank", Signal: "level", Above: ptr(90)})
		x.Reading(reading("tank", "level", false, at(80*time.Second, 95), at(40*time.Second, 80), at(time.Second, 70)))
		expect(t, h, "")
		x.Reading(reading("tank", "level", false, at(0, 96)))
		expect(t, h, "full tank 96")

		add(t, x, h, "behind", Condition{Device: "tank", Signal: "level", Above: ptr(90)})
		x.Reading(reading("tank", "level", false, at(80*time.Second, 80), at(79*time.Second, 97)))
		expect(t, h, "full tank 97, behind tank 97")
	})
}

func TestIndexEvents(t *testing.T) {
	x, h := NewIndex(Parts{}), &hits{}
	x.Devices().Put(dev("d"), nil)
	add(t, x, h, "gone", Condition{Device: "*", Event: "gone"})
	add(t, x, h, "pressed", Condition{Device: "d", Event: "button/pressed", Params: map[string]any{"button": 2.0, "long": true}})
	add(t, x, h, "any", Condition{Device: "d", Event: "notified"})
	x.Event(ferrule.Event{Device: "d", Type: ferrule.Gone})
	expect(t, h, "gone d 0")
	press := func(params string) {
		x.Event(ferrule.Event{Device: "d", Type: ferrule.Notified, Method: "button/pressed", Params: []byte(params)})
	}
	for params, want := range map[string]string{
		`{"button":2.0,"long":true,"x":[1]}`: "pressed d 0, any d 0", `{"button":1,"long":true}`: "any d 0",
		`{"button":2}`: "any d 0", `[2,true]`: "any d 0", `null`: "any d 0", ``: "any d 0",
	} {
		press(params)
		expect(t, h, want)
	}
	x.Event(ferrule.Event{Device: "d", Type: ferrule.Notified, Method: "gone"}) // a device cannot claim to be gone
	expect(t, h, "any d 0")
	x.Event(ferrule.Event{Device: "other", Type: ferrule.Gone})
	expect(t, h, "")
}

// TestIndexTimer checks that a state that must hold is met by time alone, exactly then, if
// silence means that it holds, and not after the device was offline.
func TestIndexTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hits{}
		var when time.Time
		x := NewIndex(Parts{Silence: func(r *ferrule.Reading) (time.Duration, bool) { return 100 * time.Millisecond, r.Poll == "p" }})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go x.Run(ctx)
		x.Devices().Put(dev("d"), nil)
		if err := x.Add(Entry{ID: "open", Condition: Condition{Device: "d", Signal: "door", Equals: ptr(1), For: ferrule.Duration(30 * time.Second)}, Hit: func(hit Hit) {
			when = hit.Time
			h.of("open")(hit)
		}}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		send := func(poll string, v float64) {
			r := reading("d", "door", true, ferrule.Sample{Time: time.Now(), Value: v})
			r.Poll = poll
			x.Reading(r)
		}
		sleep := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		send("p", 1)
		sleep(30 * time.Second)
		expect(t, h, "")
		sleep(100 * time.Millisecond)
		expect(t, h, "open d 1")
		if want := begin.Add(30 * time.Second); !when.Equal(want) {
			t.Errorf("hit at %v, want %v", when, want)
		}
		send("p", 0)
		send("p", 1)
		sleep(10 * time.Second)
		offline := dev("d")
		offline.State = ferrule.StateOffline
		x.Devices().Put(offline, nil)
		x.Devices().Put(dev("d"), nil)
		sleep(time.Hour) // it is online again, and says nothing
		expect(t, h, "")
		x.Reading(ferrule.Reading{Device: "d", Batches: []ferrule.SampleBatch{{Signal: "door", State: true, Gaps: []ferrule.Gap{{From: time.Now().Add(-time.Hour), To: time.Now()}}}}})
		send("other", 0)
		send("other", 1)
		sleep(time.Hour) // only samples prove this one
		expect(t, h, "")
		send("other", 1)
		expect(t, h, "open d 1")
	})
}

// TestIndexInterrupted checks that readings of other nodes that may be lost are a gap, and those
// of this node are not.
func TestIndexInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, h := NewIndex(Parts{}), &hits{}
		var gaps []ferrule.Gap
		for _, id := range []string{"here", "there"} {
			if err := x.Add(Entry{ID: id, Condition: Condition{Device: id, Signal: "t", Above: ptr(5), For: ferrule.Duration(10 * time.Second)}, Hit: func(hit Hit) {
				gaps = append(gaps, hit.Gaps...)
				h.of(id)(hit)
			}}); err != nil {
				t.Fatal(err)
			}
		}
		send := func() {
			for _, id := range []string{"here", "there"} {
				r := reading(id, "t", false, ferrule.Sample{Time: time.Now(), Value: 6})
				r.Node = "node-" + id
				x.Reading(r)
			}
		}
		send()
		time.Sleep(6 * time.Second)
		x.Interrupted("node-here")
		send()
		time.Sleep(6 * time.Second)
		send()
		expect(t, h, "here here 6")
		time.Sleep(6 * time.Second)
		send()
		expect(t, h, "there there 6")
		if len(gaps) != 1 || gaps[0].To.Sub(gaps[0].From) != 6*time.Second || gaps[0].Reason != ferrule.Dropped {
			t.Errorf("gaps are %v", gaps)
		}
	})
}

// TestIndexFollows checks that readings are followed for devices with conditions on signals
// only, and that Follow may pass a reading at once.
func TestIndexFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		following := make(map[string]int)
		change := func(id string, by int) {
			mu.Lock()
			defer mu.Unlock()
			following[id] += by
		}
		var x *Index
		x = NewIndex(Parts{Follow: func(id string) func() {
			x.Reading(reading(id, "t", false, ferrule.Sample{Time: time.Now(), Value: 1}))
			change(id, 1)
			return func() { change(id, -1) }
		}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go x.Run(ctx)
		h := &hits{}
		for i := range 5 {
			x.Devices().Put(dev(fmt.Sprint("d", i)), nil)
		}
		add(t, x, h, "a", Condition{Device: "d1", Signal: "t", Above: ptr(0)})
		add(t, x, h, "b", Condition{Device: "d*", Event: "gone"})
		add(t, x, h, "c", Condition{Device: "d1", Signal: "u", Changes: true})
		if err := x.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		check := func(want string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if got := fmt.Sprint(following); got != want {
				t.Errorf("following %s, want %s", got, want)
			}
		}
		expect(t, h, "a d1 1")
		check("map[d1:1]")
		x.Remove("a")
		check("map[d1:1]")
		x.Remove("c")
		check("map[d1:0]")
		add(t, x, h, "d", Condition{Device: "d*", Signal: "t", Above: ptr(5)})
		check("map[d0:1 d1:1 d2:1 d3:1 d4:1]")
		x.Devices().Remove("d0")
		check("map[d0:0 d1:1 d2:1 d3:1 d4:1]")
		cancel()
		check("map[d0:0 d1:0 d2:0 d3:0 d4:0]")
	})
}
