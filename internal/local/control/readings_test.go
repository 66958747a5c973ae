package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// asked is who listens to what.
type asked struct {
	device, signal string
	fn             func(ferrule.Reading)
	stopped        chan struct{}
}

// meter is a gateway whose devices measure.
type meter chan asked

// Samples implements control.Sampler.
func (m meter) Samples(device, signal string, fn func(ferrule.Reading)) (stop func()) {
	a := asked{device, signal, fn, make(chan struct{})}
	m <- a
	return func() { close(a.stopped) }
}

// aReading is one with so many samples.
func aReading(device string, samples int) ferrule.Reading {
	at := time.UnixMicro(time.Now().UnixMicro())
	r := ferrule.Reading{Device: device, Node: "north", Poll: "a0", Time: at, Batches: []ferrule.SampleBatch{{
		Signal: "heat", Unit: "°C", Gaps: []ferrule.Gap{{From: at.Add(-time.Hour), To: at, Reason: ferrule.Lost, MaxMissing: 3}},
	}}}
	for i := range samples {
		r.Batches[0].Samples = append(r.Batches[0].Samples, ferrule.Sample{Time: at.Add(time.Duration(i) * time.Millisecond), Value: math.Sqrt(float64(i)), Within: ferrule.Duration(i) * 1000})
	}
	return r
}

// TestReadings: what a device measures crosses as it is, beside what happens to it or
// alone, and the gateway is told when nobody watches any more.
func TestReadings(t *testing.T) {
	for _, events := range []bool{true, false} {
		m := make(meter, 1)
		client, _ := serve(t, &gateway{samples: m, watch: func(device string, fn func(ferrule.Event)) (func(), error) {
			if !events {
				t.Error("nobody asked what happens")
			}
			fn(ferrule.Event{Type: ferrule.Gone, Device: device})
			return func() {}, nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		want := aReading("robot", 48)
		var got []ferrule.Reading
		happened := 0
		w := control.Watching{Device: "robot", Signal: "heat", Missed: func(int) { t.Error("some were missed") }, Reading: func(r ferrule.Reading) {
			if got = append(got, r); len(got) == 2 {
				cancel()
			}
		}}
		if events {
			w.Event = func(e ferrule.Event) { happened++ }
		}
		over := make(chan error, 1)
		go func() { over <- client.Watch(ctx, w) }()
		a := <-m
		if a.device != "robot" || a.signal != "heat" {
			t.Errorf("asked for %q of %q", a.signal, a.device)
		}
		time.Sleep(10 * time.Millisecond) // the event is before them
		a.fn(want)
		a.fn(aReading("robot", 1))
		if err := <-over; err != nil || len(got) != 2 || (happened == 1) != events {
			t.Fatalf("%v, %v, %d events", got, err, happened)
		}
		if g := got[0]; !g.Time.Equal(want.Time) || len(g.Batches) != 1 || len(g.Batches[0].Samples) != 48 {
			t.Errorf("got %+v", g)
		}
		for i, s := range got[0].Batches[0].Samples {
			if w := want.Batches[0].Samples[i]; !s.Time.Equal(w.Time) || s.Value != w.Value || s.Within != w.Within {
				t.Errorf("sample %d is %+v, want %+v", i, s, w)
			}
		}
		if hole := got[0].Batches[0].Gaps[0]; hole.Reason != ferrule.Lost || hole.MaxMissing != 3 || !hole.To.Equal(want.Time) {
			t.Errorf("the hole is %+v", hole)
		}
		select {
		case <-a.stopped:
		case <-time.After(10 * time.Second):
			t.Error("the gateway goes on telling")
		}
	}
}

// TestNoReadings: where nothing is measured, nothing is told; readings of all devices
// cannot be had.
func TestNoReadings(t *testing.T) {
	client, _ := serve(t, &gateway{watch: func(device string, fn func(ferrule.Event)) (func(), error) {
		fn(ferrule.Event{Type: ferrule.Gone, Device: device})
		return func() {}, nil
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	happened := false
	err := client.Watch(ctx, control.Watching{Device: "robot", Event: func(ferrule.Event) { happened = true; cancel() }, Reading: func(ferrule.Reading) { t.Error("a reading") }})
	if err != nil || !happened {
		t.Errorf("%t, %v", happened, err)
	}
	err = client.Watch(t.Context(), control.Watching{Reading: func(ferrule.Reading) {}})
	if err == nil || ferrule.AsError(err).Code != ferrule.Invalid {
		t.Errorf("got %v", err)
	}
}

// TestSlowReader: a reader that is too slow misses readings, and is told how many; what
// waits for it is bounded in readings and in samples; who measures does not wait.
func TestSlowReader(t *testing.T) {
	for samples, waiting := range map[int]int{1: 256, 4096: 64 << 10 / 4096} {
		t.Run(fmt.Sprintf("%d samples", samples), func(t *testing.T) {
			m := make(meter, 1)
			client, _ := serve(t, &gateway{samples: m})
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			told := make(chan struct{})
			seen, lost := 0, 0
			over := make(chan error, 1)
			go func() {
				over <- client.Watch(ctx, control.Watching{Device: "robot", Reading: func(r ferrule.Reading) {
					<-told // it reads when all was told
					if r.Poll == "last" {
						cancel()
						return
					}
					seen++
				}, Missed: func(n int) { lost += n }})
			}()
			a := <-m
			const count = 20_000
			r, start := aReading("robot", samples), time.Now()
			for range count {
				a.fn(r)
			}
			took := time.Since(start)
			close(told)
			r.Poll = "last"
			last := 0 // until there is room for it
			for ctx.Err() == nil {
				a.fn(r)
				last++
				time.Sleep(20 * time.Millisecond)
			}
			if err := <-over; err != nil || lost == 0 || seen+lost < count || seen+lost >= count+last {
				t.Errorf("%d of %d seen, %d lost, %v", seen, count, lost, err)
			}
			size, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			const sockets = 2 << 20 // hold less, on both sides
			if most := waiting + sockets/len(size); seen > most || took > 5*time.Second {
				t.Errorf("%d have waited, want %d at most; telling took %v", seen, most, took)
			}
			t.Logf("%d of %d have waited, and telling took %v", seen, count, took)
		})
	}
}
