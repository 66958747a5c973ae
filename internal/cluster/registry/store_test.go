package registry

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestUnacknowledged checks that unanswered writes are given up. The number in flight is
// limited, so else no more writes would be possible.
func TestUnacknowledged(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	cfg := clustertest.OneServer(t)
	e, err := engine.Start(cfg, t.TempDir(), slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.WaitLinked(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Conn.Subscribe("$KV.>", func(*nats.Msg) {}); err != nil { // receives them without an answer
		t.Fatal(err)
	}
	k := &kvStore{engine: e, names: engine.Names{Tenant: "home", Node: "a"}, shards: make([]jetstream.KeyValue, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	for _, o := range k.put(ctx, []write{{id: "one", data: []byte("x")}, {id: "two", data: []byte("x")}}) {
		if o.err == nil {
			t.Errorf("got %+v, want an error", o)
		}
	}
	wait.For(t, "writes are given up", func() bool { return e.Shared.PublishAsyncPending() == 0 })
}
