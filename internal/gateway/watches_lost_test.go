package gateway

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/internal/watch"
)

// TestWatchOfKilledGateway: after a kill, a watch says what the journal proves about its call.
// One that waited for approval was not sent, and one that was sent may have run.
func TestWatchOfKilledGateway(t *testing.T) {
	p := newPlant(t)
	waits := p.set("door", "open", func(in *builtin.WatchInput) { in.Name = "waits" })
	runs := p.set("lamp", "blink", func(in *builtin.WatchInput) { in.Name = "runs" })
	reads := p.set("tank", "level", func(in *builtin.WatchInput) { in.Name, in.Call.Args = "reads", nil })
	end := make(chan struct{})
	defer close(end)
	for _, id := range []string{"lamp", "tank"} { // they do not answer
		dev, m, _ := p.Fleet.Lookup(id)
		p.Fleet.Put(dev, m, func(ctx context.Context, _ *ferrule.Call) (*ferrule.Result, error) {
			p.moved[id].Add(1)
			select {
			case <-end:
			case <-ctx.Done():
			}
			return nil, ferrule.Errorf(ferrule.Unanswered, "%s did not answer", id)
		})
	}
	p.level(95)
	p.outcome(waits.ID, func(o *watch.Outcome) bool { return o.Waiting })
	wait.For(t, "the lamp and the tank are called", func() bool { return p.moved["lamp"].Load() == 1 && p.moved["tank"].Load() == 1 })

	// What is on disk now is what a kill leaves.
	data := t.TempDir()
	for _, name := range []string{watchesFile, journal.FileName, journal.KeyFile} {
		content, err := os.ReadFile(filepath.Join(p.parts.Data, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(data, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cfg := config.Default()
	cfg.Listen = "127.0.0.1:0"
	next, err := New(Parts{Config: cfg, Data: data, Log: slog.New(slog.DiscardHandler), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- next.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	known := func(id string) (o *watch.Outcome) {
		wait.For(t, "the outcome of the watch", func() bool {
			w, err := next.Watches.Get(owner, id)
			if err != nil {
				t.Fatal(err)
			}
			o = w.Outcome
			return o != nil && o.Code != ""
		})
		return o
	}
	if o := known(waits.ID); o.MayHaveRun || o.Code != ferrule.Cancelled || !strings.HasPrefix(o.Message, "the gateway stopped before open was sent to door") {
		t.Errorf("the call that waited for approval: %+v", o)
	}
	if o := known(runs.ID); !o.MayHaveRun || o.Code != ferrule.Unanswered {
		t.Errorf("the call that was sent: %+v", o)
	}
	if o := known(reads.ID); !o.MayHaveRun { // a read has no intent
		t.Errorf("the call of a tool that reads: %+v", o)
	}
}
