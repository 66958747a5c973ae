package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// lease says that a node lives. Its devices can be reached for as long as it does.
type lease struct {
	// Identity tells two nodes apart that were given the same name.
	Identity string `json:"identity"`
	// Boot tells apart two that were made by copying the files of one.
	Boot    string `json:"boot"`
	Version string `json:"version,omitempty"`
}

// Why a node cannot take part: another one has its name, or even its identity.
var (
	errTaken  = errors.New("another node has this name")
	errCopied = fmt.Errorf("%w, and the same identity: was its data directory copied? Delete bus/node in that of one of them, and give it another name", errTaken)
)

// renew takes the lease of this node, or lengthens it. Revision is that of the
// lease as this node knows it.
//
// A value that is put by way of the KV loses its time to live, so it is published.
func (b *Cluster) renew(ctx context.Context, e *engine, revision uint64) (uint64, error) {
	text, err := json.Marshal(lease{b.identity, b.boot, b.parts.Version})
	if err != nil {
		return 0, err
	}
	key := b.names.key(b.cfg.Node)
	publish := func(revision uint64) (uint64, error) {
		ack, err := e.home.PublishMsg(ctx, &nats.Msg{Subject: e.prefix + "$KV." + nodesBucket + "." + key, Data: text},
			jetstream.WithMsgTTL(leaseTTL), jetstream.WithExpectLastSequencePerSubject(revision))
		if err != nil {
			return revision, staleOr(err)
		}
		return ack.Sequence, nil
	}
	now, err := publish(revision)
	if !errors.Is(err, errStale) {
		return now, err
	}
	held, now, err := e.lastValue(ctx, nodesBucket, key)
	if err != nil {
		return revision, err
	}
	var l lease
	if len(held) > 0 && json.Unmarshal(held, &l) == nil {
		if err := b.rival(l, revision > 0); err != nil {
			return revision, fmt.Errorf("%w: %s", err, b.cfg.Node)
		}
	}
	return publish(now)
}

// firstLease takes the lease of this node, if there are others to know of it.
func (b *Cluster) firstLease(ctx context.Context, e *engine) (revision uint64, err error) {
	if b.cfg.alone() {
		return 0, nil
	}
	return b.renew(ctx, e, 0)
}

// rival says why a lease is not this node's. One that this node left behind when it was
// killed is; but one that takes its place while it runs is a copy of it, to which it
// leaves the name.
func (b *Cluster) rival(l lease, running bool) error {
	switch {
	case l.Identity != b.identity:
		return errTaken
	case l.Boot != b.boot && (running || l.Boot == b.copied):
		b.copied = l.Boot
		return errCopied
	}
	return nil
}

// keepLease renews the lease until ctx ends, or it cannot be kept. That a cluster
// cannot be reached for a while is no reason to give up.
func (b *Cluster) keepLease(ctx context.Context, e *engine, revision uint64) error {
	failed := false
	for tick := time.NewTicker(leaseRenew); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return ctx.Err()
		case <-tick.C:
		}
		now, err := b.renewOnce(ctx, e, revision)
		switch {
		case err == nil:
			revision = now
			if failed {
				b.troubled()
			}
			failed = false
			b.say(leasing, "")
		case errors.Is(err, errTaken) || errors.Is(err, jetstream.ErrStreamNotFound):
			return err
		case ctx.Err() == nil:
			failed = true
			b.say(leasing, "its lease cannot be renewed: "+b.because(e, err).Error())
		}
	}
}

// renewOnce renews the lease in time for the next. If that fails because what nodes
// share is gone, and not just without a leader, the error says so.
func (b *Cluster) renewOnce(ctx context.Context, e *engine, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseRenew)
	defer cancel()
	revision, err := b.renew(ctx, e, revision)
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		if _, gone := e.home.Stream(ctx, "KV_"+nodesBucket); errors.Is(gone, jetstream.ErrStreamNotFound) {
			return revision, gone
		}
	}
	return revision, err
}

// giveUpLease tells all others at once that this node has ended. A lease that another
// one of this name has by now is left to it.
func (b *Cluster) giveUpLease(ctx context.Context, e *engine, h *home) {
	key := b.names.key(b.cfg.Node)
	held, revision, err := e.lastValue(ctx, nodesBucket, key)
	var l lease
	if err == nil {
		err = json.Unmarshal(held, &l)
	}
	if err == nil && l.Boot == b.boot {
		err = h.nodes.Delete(ctx, key, jetstream.LastRevision(revision))
	}
	if err != nil {
		b.parts.Log.Debug("bus: the lease ends by itself", "err", err)
	}
}

// peerOf is what an entry tells of another node. Its boot becomes part of a subject, so
// it has to be a word.
func peerOf(told jetstream.KeyValueEntry) peer {
	var l lease
	if told.Operation() != jetstream.KeyValuePut || json.Unmarshal(told.Value(), &l) != nil || ferrule.CheckID(l.Boot) != nil {
		return peer{heard: told.Created()}
	}
	return peer{alive: true, boot: l.Boot, heard: told.Created()}
}

// peer is another node.
type peer struct {
	alive bool
	boot  string    // which run of it lives
	heard time.Time // when it last renewed its lease, or lost it
}

// watchNodes keeps in view which nodes live. It calls synced once all are known. This
// node's own lease is told of, too: if it is not, the watch is dead.
func (b *Cluster) watchNodes(ctx context.Context, h *home, synced func()) error {
	watcher, err := h.nodes.Watch(ctx, b.names.key("*"))
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	defer watcher.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(leaseTTL, cancel)
	defer silence.Stop()
	all := make(map[string]bool)
	return follow(ctx, watcher, func(told jetstream.KeyValueEntry) {
		if told == nil {
			b.view.onlyNodes(all)
			synced()
			return
		}
		switch name := told.Key()[len(b.names.tenant)+1:]; {
		case name == b.cfg.Node:
			silence.Reset(leaseTTL)
		case ferrule.CheckID(name) == nil:
			all[name] = true
			b.view.node(name, peerOf(told))
		}
	})
}
