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
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// subscription is a call of Samples.
type subscription struct {
	device, signal string
	fn             func(ferrule.Reading)
	stopped        chan struct{}
}

// meter is a control.Sampler that sends its subscriptions to the test.
type meter chan subscription

// Samples implements control.Sampler.
func (m meter) Samples(device, signal string, fn func(ferrule.Reading)) (stop func()) {
	a := subscription{device, signal, fn, make(chan struct{})}
	m <- a
	return func() { close(a.stopped) }
}

// aReading returns a reading with the given number of samples.
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

// TestReadings checks that readings arrive unchanged, with and without events, and that
// the subscription ends with the caller.
func TestReadings(t *testing.T) {
	for _, events := range []bool{true, false} {
		m := make(meter, 1)
		client, _ := serve(t, &gateway{samples: m, watch: func(device string, fn func(ferrule.Event)) (func(), error) {
			if !events {
				t.Error("got a request for events, want none")
			}
			fn(ferrule.Event{Type: ferrule.Gone, Device: device})
			return func() {}, nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
		defer cancel()
		want := aReading("robot", 48)
		var got []ferrule.Reading
		happened, came := 0, make(chan struct{})
		w := control.Subscription{Device: "robot", Signal: "heat", Missed: func(int) { t.Error("readings were dropped") }, Reading: func(r ferrule.Reading) {
			if got = append(got, r); len(got) == 2 {
				cancel()
			}
		}}
		if events {
			w.Event = func(e ferrule.Event) { happened++; close(came) }
		}
		over := make(chan error, 1)
		go func() { over <- client.Watch(ctx, w) }()
		a := <-m
		if a.device != "robot" || a.signal != "heat" {
			t.Errorf("subscribed to %q of %q", a.signal, a.device)
		}
		if events {
			<-came
		}
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
		if gap := got[0].Batches[0].Gaps[0]; gap.Reason != ferrule.Lost || gap.MaxMissing != 3 || !gap.To.Equal(want.Time) {
			t.Errorf("got gap %+v", gap)
		}
		select {
		case <-a.stopped:
		case <-time.After(wait.Ample):
			t.Error("the subscription is still open")
		}
	}
}

// TestNoReadings checks a gateway that measures nothing, and that readings of all devices
// are rejected.
func TestNoReadings(t *testing.T) {
	client, _ := serve(t, &gateway{watch: func(device string, fn func(ferrule.Event)) (func(), error) {
		fn(ferrule.Event{Type: ferrule.Gone, Device: device})
		return func() {}, nil
	}})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	happened := false
	err := client.Watch(ctx, control.Subscription{Device: "robot", Event: func(ferrule.Event) { happened = true; cancel() }, Reading: func(ferrule.Reading) { t.Error("got a reading") }})
	if err != nil || !happened {
		t.Errorf("event %t, %v", happened, err)
	}
	err = client.Watch(t.Context(), control.Subscription{Reading: func(ferrule.Reading) {}})
	if err == nil || ferrule.AsError(err).Code != ferrule.Invalid {
		t.Errorf("got %v", err)
	}
}

// TestReadingsSlowReader checks that readings for a slow reader are dropped and counted,
// that the backlog is limited in readings and samples, and that the sender never waits.
func TestReadingsSlowReader(t *testing.T) {
	for samples, waiting := range map[int]int{1: 256, 4096: 64 << 10 / 4096} {
		t.Run(fmt.Sprintf("%d samples", samples), func(t *testing.T) {
			m := make(meter, 1)
			client, _ := serve(t, &gateway{samples: m})
			ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
			defer cancel()
			sent := make(chan struct{})
			seen, dropped := 0, 0
			over := make(chan error, 1)
			go func() {
				over <- client.Watch(ctx, control.Subscription{Device: "robot", Reading: func(r ferrule.Reading) {
					<-sent // read nothing before all was sent
					if r.Poll == "last" {
						cancel()
						return
					}
					seen++
				}, Missed: func(n int) { dropped += n }})
			}()
			a := <-m
			const count = 20_000
			r, start := aReading("robot", samples), time.Now()
			for range count {
				a.fn(r)
			}
			took := time.Since(start)
			close(sent)
			r.Poll = "last"
			last := 0 // until the backlog has space
			for ctx.Err() == nil {
				a.fn(r)
				last++
				time.Sleep(20 * time.Millisecond)
			}
			if err := <-over; err != nil || dropped == 0 || seen+dropped < count || seen+dropped >= count+last {
				t.Errorf("%d of %d seen, %d dropped, %v", seen, count, dropped, err)
			}
			size, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			const sockets = 2 << 20 // more than the socket buffers hold
			if limit := waiting + sockets/len(size); seen > limit {
				t.Errorf("%d waited, limit is %d", seen, limit)
			}
			t.Logf("%d of %d waited", seen, count)
			figure.AtMost(t, "20,000 readings for a slow reader", took, 5*time.Second)
		})
	}
}
