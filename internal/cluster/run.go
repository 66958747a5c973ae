package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/calls"
	"github.com/ferrulehq/ferrule/internal/cluster/concurrent"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/cluster/registry"
	"github.com/ferrulehq/ferrule/internal/cluster/shared"
	"github.com/ferrulehq/ferrule/internal/cluster/streams"
)

const (
	// The pause before a retry.
	minPause = 250 * time.Millisecond
	maxPause = 5 * time.Second
	// farewell is the default of Cluster.farewell.
	farewell = 2 * time.Second
	// openTime is how long opening the shared buckets and streams may take: creating
	// them takes a cluster seconds.
	openTime = time.Minute
)

// Run runs the cluster until ctx ends. Problems are retried and reported by State: own
// devices do not need the cluster.
func (c *Cluster) Run(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { c.registry.Run(running) })
	defer wg.Wait()
	defer stop()
	repeat(ctx, func() {
		if err := c.runEngine(ctx); ctx.Err() == nil {
			c.report(connecting, err.Error())
		}
	})
	return nil
}

// repeat calls a function until ctx ends, with a pause that grows while it fails fast.
func repeat(ctx context.Context, do func()) {
	for wait := minPause; ; wait = min(2*wait, maxPause) {
		began := time.Now()
		do()
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxPause {
			wait = minPause
		}
		concurrent.Sleep(ctx, wait)
	}
}

// runEngine starts an engine, and runs it until ctx ends or it must be restarted.
func (c *Cluster) runEngine(whole context.Context) error {
	e, err := engine.Start(c.cfg, c.parts.Dir, c.parts.Log, c.reconnected)
	if err != nil {
		return err
	}
	defer e.Close()
	if err := c.calls.Connect(e); err != nil {
		return err
	}
	defer c.calls.Disconnect()
	if err := c.streams.Connect(e); err != nil {
		return err
	}
	defer c.streams.Disconnect()
	c.interrupted()
	if err := c.shared.Connect(e); err != nil {
		return err
	}
	defer c.shared.Disconnect()
	c.engine.Store(e)
	defer c.engine.Store(nil)
	ctx, cancel := context.WithCancel(whole)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, store := range c.streams.Local(e) {
		wg.Go(func() {
			repeat(ctx, func() {
				if errors.Is(store(ctx), engine.ErrStuck) {
					cancel()
				}
			})
		})
	}
	listener := c.calls.Listener(e)
	defer listener.Stop()
	defer cancel()
	repeat(ctx, func() {
		err := c.join(ctx, e, listener)
		if ctx.Err() == nil {
			c.report(connecting, e.Explain(err).Error())
		}
		if errors.Is(err, engine.ErrStuck) || e.StoreDisabled() {
			cancel() // a new server may find space
		}
	})
	cancel()
	wg.Wait()
	if whole.Err() != nil {
		if e.Local != nil {
			c.endEvents()
		}
		c.streams.LeaveLocal(context.WithoutCancel(whole), e)
	}
	return engine.ErrStuck
}

// reconnected is called after a connection was lost and restored.
func (c *Cluster) reconnected() {
	c.calls.Reconnected()
	c.registry.Refresh()
	c.shared.Refresh()
	c.tasks.Refresh()
	c.interrupted()
}

// interrupted is called after messages of other nodes may have been lost.
func (c *Cluster) interrupted() {
	if c.parts.Interrupted != nil {
		c.parts.Interrupted()
	}
}

// join opens what nodes share, and takes part in the cluster until that fails or ctx
// ends. The listener keeps running after a failure, unless another node has this one's
// name: calls do not need the shared buckets.
func (c *Cluster) join(ctx context.Context, e *engine.Engine, listener *calls.Listener) (err error) {
	defer func() {
		if errors.Is(err, registry.ErrNameTaken) {
			listener.Stop()
		}
	}()
	open, err := c.open(ctx, e)
	if err != nil {
		return err
	}
	// The shared records are known: this node serves nothing that another one stopped.
	if err := listener.Listen(ctx); err != nil {
		return err
	}
	err = concurrent.UntilFirst(ctx, open.records.Run, open.known.Run, func(ctx context.Context) error { return c.serveTasks(ctx, e) }, func(ctx context.Context) error { return c.streams.Run(ctx, open.streams) })
	if ctx.Err() != nil {
		listener.Stop()
		c.leave(context.WithoutCancel(ctx), open)
	}
	return err
}

// serveTasks keeps the bucket of tasks open until ctx ends or the server must be restarted.
// Nothing else depends on it: a node that may not create it has no tasks, and says so.
func (c *Cluster) serveTasks(ctx context.Context, e *engine.Engine) (stuck error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	repeat(ctx, func() {
		opening, opened := context.WithTimeout(ctx, openTime)
		session, err := c.tasks.Open(opening, e, c.cfg.Alone())
		opened()
		if err == nil {
			err = session.Run(ctx)
		}
		if errors.Is(err, engine.ErrStuck) {
			stuck = err
			cancel()
			return
		}
		if ctx.Err() == nil {
			c.parts.Log.Warn("cluster: tasks are not available; slow calls are answered when they end", "err", e.Explain(err))
		}
	})
	if stuck != nil {
		return stuck
	}
	return ctx.Err()
}

// opened is what nodes share.
type opened struct {
	records *registry.Session
	streams *streams.Shared
	known   *shared.Session
}

// open opens what nodes share, and takes this node's lease.
func (c *Cluster) open(ctx context.Context, e *engine.Engine) (all opened, err error) {
	if err := c.waitLinked(ctx, e); err != nil {
		return all, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	err = concurrent.All(
		func() (err error) { all.records, err = c.registry.Open(ctx, e); return err },
		func() (err error) { all.streams, err = c.streams.Open(ctx, e); return err },
		func() (err error) { all.known, err = c.shared.Open(ctx, e); return err },
	)
	if err != nil {
		return all, e.Explain(err)
	}
	return all, nil
}

// waitLinked waits until NATS is reachable. If that takes long, it reports why.
func (c *Cluster) waitLinked(ctx context.Context, e *engine.Engine) error {
	soon, cancel := context.WithTimeout(ctx, engine.LinkTime)
	defer cancel()
	if e.WaitLinked(soon) == nil {
		return nil
	}
	if unreachable := e.Unreachable(); unreachable != nil && ctx.Err() == nil {
		c.report(connecting, e.Explain(unreachable).Error())
	}
	return e.WaitLinked(ctx)
}

// endEvents processes the last changes of own devices. Nothing follows.
func (c *Cluster) endEvents() {
	c.registry.Settle()
	c.streams.EndEvents()
}

// leave writes the last records, events and readings, as far as there is time, and gives
// up the lease, so that other nodes know that this one has stopped.
func (c *Cluster) leave(ctx context.Context, open opened) {
	ctx, cancel := context.WithTimeout(ctx, c.farewell)
	defer cancel()
	c.endEvents()
	open.known.Leave(ctx)
	open.records.Leave(ctx)
	c.streams.Leave(ctx, open.streams)
	open.records.GiveUpLease(ctx)
}
