package gateway

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/watch"
)

// TestWatchCost measures what 10,000 watches on 2,000 devices add to a whole gateway, if each
// device is read once a second. One sample in a hundred is an edge. It compares the processor time of the same readings without and with watches.
func TestWatchCost(t *testing.T) {
	figure.Only(t)
	if _, err := os.Stat("/dev/shm"); err == nil {
		t.Setenv("TMPDIR", "/dev/shm") // setting the watches would mostly wait for the disk
	}
	const devices, each, rounds = 2000, 5, 10
	p, maria := newPlant(t), ferrule.Principal{Role: ferrule.Person, Name: "maria", Auth: ferrule.AuthSocket}
	m := &ferrule.Manifest{Model: "tank", Tools: []ferrule.Tool{{Name: "level", Effect: ferrule.Reads}}}
	kind, err := m.Kind()
	if err != nil {
		t.Fatal(err)
	}
	id := func(i int) string { return fmt.Sprint("tank-", i) }
	for i := range devices {
		d := &ferrule.Device{ID: id(i), Kind: kind, Accepted: kind, Model: "tank", State: ferrule.StateOnline, Since: time.Now(), Trust: ferrule.TrustAdopted, Node: p.node()}
		p.Fleet.Put(d, m, func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			return &ferrule.Result{Value: []byte(`{}`)}, nil
		})
	}
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	round := 0
	measure := func() time.Duration {
		start := cpu()
		for range rounds {
			began := time.Now()
			for i := range devices {
				v := 50.0
				if (i+round)%100 == 0 {
					v = 95
				}
				now := time.Now()
				p.publish(ferrule.Reading{Device: id(i), Node: p.node(), Poll: "level", Time: now, Batches: []ferrule.SampleBatch{{Signal: "level", Samples: []ferrule.Sample{{Time: now, Value: v}}}}})
			}
			round++
			time.Sleep(time.Until(began.Add(time.Second))) // what runs in the background belongs to it
		}
		return cpu() - start
	}
	measure() // files grow and caches fill
	without := measure()
	above := 90.0
	for i := range devices * each {
		c := condition.Condition{Device: id(i % devices), Signal: "level", Above: &above, Hysteresis: 5}
		if i%3 == 0 {
			c.For = ferrule.Duration(30 * time.Second)
		}
		if _, err := p.Watches.Set(maria, watch.Settings{Name: fmt.Sprint("n", i), Condition: c}); err != nil {
			t.Fatal(err)
		}
	}
	with := measure()
	share := (with - without).Seconds() / rounds
	t.Logf("%d watches on %d devices: %.2f %% of a core (%v without and %v with watches, in %d s)", devices*each, devices, 100*share, without, with, rounds)
	figure.AtMost(t, "share of a core for 10,000 watches in a gateway", share, 0.10)
	hits := uint64(0)
	for _, w := range p.Watches.List(maria) {
		hits += w.Hits
	}
	if hits < devices*each/100 {
		t.Errorf("only %d hits", hits)
	}
}
