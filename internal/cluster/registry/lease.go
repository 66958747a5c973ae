package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The times of a lease. It outlives the election of its bucket's leader, which takes up
// to nine seconds and cannot be made faster: a shorter lease would expire for healthy
// nodes too.
const (
	LeaseTTL   = 25 * time.Second
	LeaseRenew = 5 * time.Second
)

// lease says that a node is alive. Its devices are reachable while it is.
type lease struct {
	// Identity distinguishes two nodes that were given the same name.
	Identity string `json:"identity"`
	// Boot distinguishes two nodes whose files are copies of each other.
	Boot    string `json:"boot"`
	Version string `json:"version,omitempty"`
}

// ErrNameTaken means that another node has this node's name.
var ErrNameTaken = errors.New("another node has this name")

// renew takes the lease of this node or extends it. Revision is the last one that this
// node knows of, 0 for none.
//
// A value that is put through the KV API loses its time to live, so it is published.
func (s *Session) renew(ctx context.Context, revision uint64) (uint64, error) {
	r := s.r
	text, err := json.Marshal(lease{r.options.Identity, r.options.Boot, r.options.Version})
	if err != nil {
		return 0, err
	}
	key := r.names.Key(r.cfg.Node)
	publish := func(revision uint64) (uint64, error) {
		ack, err := s.engine.Shared.PublishMsg(ctx, &nats.Msg{Subject: s.engine.KeySubject(engine.NodesBucket, key), Data: text},
			jetstream.WithMsgTTL(LeaseTTL), jetstream.WithExpectLastSequencePerSubject(revision))
		if err != nil {
			return revision, engine.AsStale(err)
		}
		return ack.Sequence, nil
	}
	now, err := publish(revision)
	if !errors.Is(err, engine.ErrStale) {
		return now, err
	}
	value, now, err := s.engine.LastValue(ctx, engine.NodesBucket, key)
	if err != nil {
		return revision, err
	}
	var l lease
	if len(value) > 0 && json.Unmarshal(value, &l) == nil {
		if err := r.checkRival(l, revision > 0); err != nil {
			return revision, err
		}
	}
	return publish(now)
}

// firstLease takes the lease of this node, unless there are no other nodes.
func (s *Session) firstLease(ctx context.Context) (revision uint64, err error) {
	if s.r.cfg.Alone() {
		return 0, nil
	}
	return s.renew(ctx, 0)
}

// checkRival returns an error if a lease belongs to another node. A lease that this node
// left behind when it was killed is its own. But one that appears while this node runs
// belongs to a copy of it, which then keeps the name.
func (r *Registry) checkRival(l lease, running bool) error {
	switch {
	case l.Identity != r.options.Identity:
		return fmt.Errorf("%w: %s", ErrNameTaken, r.cfg.Node)
	case l.Boot != r.options.Boot && (running || l.Boot == r.rival):
		r.rival = l.Boot
		return fmt.Errorf("%w and the same identity: %s; if the data directory was copied, delete %s in one of the copies and give that node another name",
			ErrNameTaken, r.cfg.Node, r.options.IdentityFile)
	}
	return nil
}

// keepLease renews the lease until ctx ends, another node has it, or the bucket is gone.
// It keeps trying while the cluster is unreachable.
func (s *Session) keepLease(ctx context.Context) error {
	revision, failed := s.lease, false
	for tick := time.NewTicker(LeaseRenew); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return ctx.Err()
		case <-tick.C:
		}
		now, err := s.renewOnce(ctx, revision)
		switch {
		case err == nil:
			revision = now
			if failed {
				s.r.Refresh()
			}
			failed = false
			s.r.options.LeaseProblem("")
		case errors.Is(err, ErrNameTaken) || errors.Is(err, jetstream.ErrStreamNotFound):
			return err
		case ctx.Err() == nil:
			failed = true
			s.r.options.LeaseProblem("cannot renew the lease of this node: " + s.engine.Explain(err).Error())
		}
	}
}

// renewOnce renews the lease before the next renewal is due. It distinguishes a bucket
// that is gone from one that has no leader.
func (s *Session) renewOnce(ctx context.Context, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, LeaseRenew)
	defer cancel()
	revision, err := s.renew(ctx, revision)
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		if gone := s.engine.BucketMissing(ctx, engine.NodesBucket); gone != nil {
			return revision, gone
		}
	}
	return revision, err
}

// GiveUpLease deletes this node's lease, so that others learn at once that it has
// stopped. It leaves the lease of another node of this name alone.
func (s *Session) GiveUpLease(ctx context.Context) {
	r := s.r
	if r.cfg.Alone() {
		return
	}
	key := r.names.Key(r.cfg.Node)
	value, revision, err := s.engine.LastValue(ctx, engine.NodesBucket, key)
	var l lease
	if err == nil {
		err = json.Unmarshal(value, &l)
	}
	if err == nil && l.Boot == r.options.Boot {
		err = s.nodes.Delete(ctx, key, jetstream.LastRevision(revision))
	}
	if err != nil {
		r.options.Log.Debug("cluster: lease not deleted, it will expire", "err", err)
	}
}

// peer is another node.
type peer struct {
	alive    bool
	boot     string
	lastSeen time.Time // when its lease was last renewed or ended
}

// peerOf returns the node of a lease. Its boot becomes a token of a subject, so it must
// be a valid ID.
func peerOf(e jetstream.KeyValueEntry) peer {
	var l lease
	if e.Operation() != jetstream.KeyValuePut || json.Unmarshal(e.Value(), &l) != nil || ferrule.CheckID(l.Boot) != nil {
		return peer{lastSeen: e.Created()}
	}
	return peer{alive: true, boot: l.Boot, lastSeen: e.Created()}
}

// watchNodes watches the leases of nodes, and calls synced when all are known. It ends
// if this node's own lease is not reported in time: then the watch is dead.
func (s *Session) watchNodes(ctx context.Context, synced func()) error {
	r := s.r
	watcher, err := engine.Watch(ctx, s.nodes, r.names.Key("*"))
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	defer watcher.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(LeaseTTL, cancel)
	defer silence.Stop()
	all := make(map[string]bool)
	return follow(ctx, watcher, func(e jetstream.KeyValueEntry) {
		if e == nil {
			r.view.onlyNodes(all)
			synced()
			return
		}
		switch name := e.Key()[len(r.names.Tenant)+1:]; {
		case name == r.cfg.Node:
			silence.Reset(LeaseTTL)
		case ferrule.CheckID(name) == nil:
			all[name] = true
			r.view.setNode(name, peerOf(e))
		}
	})
}
