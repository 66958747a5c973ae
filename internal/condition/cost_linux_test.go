package condition

import (
	"encoding/json"
	"fmt"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// processorTime returns the processor time of this process.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// TestCost evaluates 10,000 conditions on 2,000 devices that each have a sample a second, as
// they come from the stream of another node: as JSON.
func TestCost(t *testing.T) {
	figure.Only(t)
	const devices, conditions, seconds, limit = 2_000, 10_000, 60, 0.1
	x := NewIndex(Parts{Silence: func(r *ferrule.Reading) (time.Duration, bool) { return 0, true }})
	watcher := x.Devices()
	for i := range devices {
		watcher.Put(dev(fmt.Sprint("device-", i), fmt.Sprint("room=r", i%50)), nil)
	}
	hits := 0
	hit := func(Hit) { hits++ }
	for i := range conditions {
		c := Condition{Device: fmt.Sprint("device-", i%devices), Signal: "temperature"}
		switch i / devices {
		case 0:
			c.Above = ptr(50)
		case 1:
			c.Below, c.Hysteresis = ptr(20), 5
		case 2:
			c.Outside, c.For = &Band{20, 80}, ferrule.Duration(5*time.Second)
		case 3:
			c.Signal, c.Equals, c.For = "door", ptr(1), ferrule.Duration(10*time.Second)
		default:
			c.Signal, c.Changes = "door", true
			if i%100 == 0 {
				c.Device = fmt.Sprint("room=r", i/100%50)
			}
		}
		if err := x.Add(Entry{ID: fmt.Sprint(i), Condition: c, Hit: hit}); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	var used time.Duration
	for second := range seconds {
		stream := make([][]byte, devices) // a second of it
		for i := range stream {
			at := begin.Add(time.Duration(second)*time.Second + time.Duration(i)*time.Second/devices)
			data, err := json.Marshal(ferrule.Reading{Device: fmt.Sprint("device-", i), Node: "n", Poll: "p", Time: at, Batches: []ferrule.SampleBatch{
				{Signal: "temperature", Unit: "°C", Samples: []ferrule.Sample{{Time: at, Value: 50 + 50*math.Sin(float64(second+i)/5), Within: 1000}}},
				{Signal: "door", State: true, Samples: []ferrule.Sample{{Time: at, Value: float64((second + i) / 15 % 2)}}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			stream[i] = data
		}
		before := processorTime(t)
		for _, data := range stream {
			var r ferrule.Reading
			if err := json.Unmarshal(data, &r); err != nil {
				t.Fatal(err)
			}
			x.Reading(r)
		}
		x.advance(begin.Add(time.Duration(second+1) * time.Second))
		used += processorTime(t) - before
	}
	share := used.Seconds() / seconds
	figure.AtMost(t, "share of a core for 10,000 conditions on 2,000 devices", share, limit)
	if hits < conditions {
		t.Errorf("%d hits: the stream meets too few conditions", hits)
	}
}

// BenchmarkReading measures one reading for a device with five conditions, among 10,000.
func BenchmarkReading(b *testing.B) {
	x := NewIndex(Parts{})
	for i := range 10_000 {
		if err := x.Add(Entry{ID: fmt.Sprint(i), Condition: Condition{Device: fmt.Sprint("device-", i%2000), Signal: "t", Above: ptr(50), For: ferrule.Duration(time.Second)}, Hit: func(Hit) {}}); err != nil {
			b.Fatal(err)
		}
	}
	at := time.Now()
	r := reading("device-1", "t", false, ferrule.Sample{})
	for b.Loop() {
		at = at.Add(100 * time.Millisecond)
		r.Batches[0].Samples[0] = ferrule.Sample{Time: at, Value: 50 + 10*math.Sin(seconds(at)/3)}
		x.Reading(r)
	}
}
