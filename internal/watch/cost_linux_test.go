package watch

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// cpu returns the processor time of this process.
func cpu(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestCost measures what 10,000 watches on 2,000 devices cost if each device is read once a
// second. One sample in a hundred is an edge.
func TestCost(t *testing.T) {
	figure.Only(t)
	const devices, each = 2000, 5
	k, err := Open(Parts{
		File: filepath.Join(t.TempDir(), "watches"), Node: "one", Log: slog.New(slog.DiscardHandler), Updated: func(string) {}, Event: func(ferrule.Event) {},
		Owner:  func(w *Watch) (ferrule.Principal, error) { return w.Owner, nil },
		Sees:   func(ferrule.Principal, string) bool { return true },
		Handle: func(context.Context, *ferrule.Call) (*ferrule.Result, error) { return &ferrule.Result{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	now := time.Now()
	for i := range devices * each {
		above := 90.0
		c := condition.Condition{Device: fmt.Sprintf("tank-%d", i%devices), Signal: "level", Above: &above, Hysteresis: 5}
		if i%3 == 0 {
			c.For = ferrule.Duration(30 * time.Second)
		}
		w := Watch{ID: newID(), Name: "n", Owner: maria, Condition: c, Every: ferrule.Duration(time.Minute), PerHour: 12, Created: now, Version: 1}
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
		k.set(w) // not through the disk
	}
	for i := range devices {
		k.Devices().Put(&ferrule.Device{ID: fmt.Sprintf("tank-%d", i), State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.Run(ctx)
	}()
	const rounds = 60 // seconds of samples, as fast as possible
	start := cpu(t)
	for round := range rounds {
		at := now.Add(time.Duration(round+1) * time.Second)
		for i := range devices {
			v := 50.0
			if (i+round)%100 == 0 {
				v = 95
			}
			k.Measured(ferrule.Reading{Device: fmt.Sprintf("tank-%d", i), Batches: []ferrule.SampleBatch{{Signal: "level", Samples: []ferrule.Sample{{Time: at, Value: v}}}}})
		}
	}
	used := cpu(t) - start
	cancel()
	<-ended
	share := used.Seconds() / rounds
	figure.AtMost(t, "share of a core for 10,000 watches on 2,000 devices", share, 0.10)
}
