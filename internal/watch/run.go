package watch

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// How often Run looks.
const (
	tickEvery  = 250 * time.Millisecond // at what is due
	flushEvery = time.Second            // at marks that are not in the file, and watches that other nodes must know
	seenEvery  = time.Minute            // saves that watches are evaluated
	pruneEvery = time.Hour
	flushMost  = 16
	workers    = 4
)

// Run fires watches until ctx ends. It then saves what it knows, so that another run or
// another node goes on exactly.
func (k *Keeper) Run(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	sharing, stopSharing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSharing()
	done := make(chan struct{})
	if k.parts.Shared != nil {
		go func() {
			defer close(done)
			k.outbox.Run(sharing, k.parts.Shared, k.parts.Log)
		}()
	} else {
		close(done)
	}
	if calls := k.left(); len(calls) > 0 {
		k.work.Go(func() { k.recover(ctx, calls) })
	}
	k.work.Go(func() { each(ctx, &k.work, workers, k.firings, func(j *firing) { k.fire(running, j) }) })
	k.work.Go(func() { each(ctx, &k.work, senders, k.notes, func(n *note) { k.deliver(running, n) }) })
	k.work.Go(func() { k.maintain(ctx) })
	every(ctx, tickEvery, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.advance(time.Now())
	})
	// Calls under way get a moment to end, and then end as cancelled ones.
	late := time.AfterFunc(farewell, stop)
	defer late.Stop()
	k.work.Wait()
	k.drain(context.WithoutCancel(ctx))
	k.leave()
	stopSharing()
	<-done
	return nil
}

// maintain does what is not urgent until ctx ends.
func (k *Keeper) maintain(ctx context.Context) {
	seen, pruned := time.Now(), time.Now()
	every(ctx, flushEvery, func() {
		k.claim()
		k.flush(flushMost, time.Now().Add(flushEvery))
		now := time.Now()
		if now.Sub(seen) >= seenEvery {
			seen = now
			k.file.Put(seenKey, now) // a longer gap is told otherwise
		}
		if now.Sub(pruned) >= pruneEvery {
			pruned = now
			k.changing.Lock()
			k.prune(now)
			k.changing.Unlock()
		}
	})
}

// farewell is how long Run waits for calls when the gateway stops.
const farewell = 3 * time.Second

// drain delivers the notices that are left, such as the outcomes of calls that ended last.
func (k *Keeper) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	for ctx.Err() == nil {
		select {
		case n := <-k.notes:
			k.deliver(ctx, n)
		default:
			return
		}
	}
	if left := len(k.notes); left > 0 {
		k.parts.Log.Warn("notices of watches were not delivered before the gateway stopped", "notices", left)
	}
}

// leave saves what is known, and tells other nodes that the marks are complete.
func (k *Keeper) leave() {
	k.mu.Lock()
	for _, d := range k.devices {
		for _, f := range d.followers() {
			if f.watch.Call != nil {
				k.release(f)
			}
		}
	}
	n := len(k.dirty)
	k.mu.Unlock()
	k.flush(n, time.Now().Add(farewell))
	k.file.Put(seenKey, time.Now())
}

// flush saves marks that are not in the file, until a time. Those of watches that call come
// first: if the others are lost, the worst is a notice that comes again or is missing.
func (k *Keeper) flush(most int, until time.Time) {
	k.mu.Lock()
	var keys, others []string
	for key := range k.dirty {
		id, _ := splitMark(key)
		if w := k.watches[id]; w != nil && w.Call != nil {
			keys = append(keys, key)
		} else if len(others) < most {
			others = append(others, key)
		}
	}
	k.mu.Unlock()
	keys = append(keys, others...)
	for _, key := range keys[:min(len(keys), most)] {
		if time.Now().After(until) {
			return
		}
		if err := k.save(key); err != nil {
			k.parts.Log.Warn("the state of a watch is not saved", "err", err)
			return
		}
	}
}

// claim tells other nodes which watches with calls this node evaluates. Until they know, it
// does not call: a node that takes the device over could not know that it has.
func (k *Keeper) claim() {
	if k.parts.Shared == nil {
		return
	}
	k.mu.Lock()
	var open []*follower
	if k.synced {
		for _, d := range k.devices {
			for _, f := range d.followers() {
				if f.watch.Call != nil && !f.claimed {
					open = append(open, f)
				}
			}
		}
	}
	k.mu.Unlock()
	for _, f := range open {
		k.mu.Lock()
		m := f.mark
		var end func()
		if m.Node != k.parts.Node && m.Intent != "" {
			end = k.lose(m, ferrule.Errorf(ferrule.Unanswered, "another node made the call, and its outcome is not known here").WithHint("check the device"))
		}
		m.Node, m.Released = k.parts.Node, false
		m.Version = max(uint64(time.Now().UnixMicro()), m.Version+1)
		version, key := m.Version, m.key()
		data, err := json.Marshal(m)
		k.dirty[key] = true
		k.mu.Unlock()
		if end != nil {
			end()
		}
		if err != nil || k.parts.Shared.Put(markKey+key, data) != nil {
			return // tried again
		}
		k.mu.Lock()
		if m.Node == k.parts.Node && m.Version >= version {
			f.claimed = true
		}
		k.mu.Unlock()
	}
}

// each calls fn with what comes from a channel, for at most limit at a time, until ctx ends.
// Goroutines exist only while there is something to do.
func each[T any](ctx context.Context, work *sync.WaitGroup, limit int, from <-chan T, fn func(T)) {
	turns := make(chan struct{}, limit)
	for {
		select {
		case turns <- struct{}{}: // first, so that what is taken is also handled
		case <-ctx.Done():
			return
		}
		select {
		case next := <-from:
			work.Go(func() {
				defer func() { <-turns }()
				fn(next)
			})
		case <-ctx.Done():
			return
		}
	}
}

// every calls fn again and again until ctx ends.
func every(ctx context.Context, interval time.Duration, fn func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			fn()
		case <-ctx.Done():
			return
		}
	}
}
