package oauth

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/cluster/shared"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// joined returns the shared records of a node that is connected to NATS until the test ends.
func joined(t *testing.T, cfg engine.Config, name string) *shared.Records {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	cfg.Node, cfg.Tenant = name, "acme"
	r, err := shared.New(shared.Options{Names: engine.Names{Tenant: "acme", Node: name}, Secret: []byte("0123456789abcdef0123456789abcdef"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Start(cfg, t.TempDir(), log, r.Refresh)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	if err := r.Connect(e); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if s, err := r.Open(ctx, e); err == nil {
				s.Run(ctx)
			}
		}
	})
	t.Cleanup(func() {
		stop()
		r.Disconnect()
		wg.Wait()
	})
	return r
}

// TestCluster checks with NATS that a token works on three nodes, and ends on all of them
// when one revokes it.
func TestCluster(t *testing.T) {
	cfg := clustertest.OneServer(t)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	var nodes []*testServer
	for _, name := range []string{"a", "b", "c"} {
		records := joined(t, cfg, name)
		r := newTestServer(t, func(p *Parts) { p.Node, p.Shared = name, records })
		wg.Go(func() { r.Run(ctx) })
		nodes = append(nodes, r)
	}
	a := nodes[0]
	id := a.register(callback)
	longest := time.Duration(0)
	for _, by := range nodes {
		out := a.login(id)
		start := time.Now()
		var valid []context.Context
		for _, r := range nodes {
			wait.For(t, "the token is accepted", func() bool { return r.accepted(out.Access) })
			c, err := r.verify(out.Access)
			if err != nil {
				t.Fatal(err)
			}
			valid = append(valid, c.Valid)
		}
		t.Logf("accepted by all after %v", time.Since(start))
		start = time.Now()
		if err := by.Revoke(owner, by.Grants()[0].Name); err != nil {
			t.Fatal(err)
		}
		for i, r := range nodes {
			wait.For(t, "the token has ended", func() bool { return valid[i].Err() != nil && !r.accepted(out.Access) && len(r.Grants()) == 0 })
		}
		longest = max(longest, time.Since(start))
	}
	figure.AtMost(t, "until a revoked token has ended on all nodes", longest, time.Second)
}
