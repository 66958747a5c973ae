package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule"
)

// registry keeps the records of a tenant's devices. It has three methods, so that
// a database can stand behind it where there are too many for a KV.
type registry interface {
	// get reads the record of an ID. It may be a moment old.
	get(ctx context.Context, id string) (entry, error)
	// put writes records, each only if it is still at the revision that is given,
	// and tells of each what became of it.
	put(ctx context.Context, writes []write) []outcome
	// watch calls update with every record, one after the other, then synced, then
	// update with every change, until ctx ends or it cannot go on.
	watch(ctx context.Context, update func(id string, e entry), synced func()) error
}

// entry is a device as the registry has it, and the revision of its record. The
// device is nil where there is none, or none any more. It is shared and read only.
type entry struct {
	device   *ferrule.Device
	revision uint64
}

// write is one change of the registry: data is nil to remove the record.
type write struct {
	id       string
	data     []byte
	revision uint64
}

// outcome is what became of a write: the new revision, or errStale if somebody else
// was first.
type outcome struct {
	revision uint64
	err      error
}

var errStale = errors.New("somebody else was first")

// kvRegistry is a registry in KV buckets, one a shard.
type kvRegistry struct {
	engine  *engine
	names   names
	shards  []jetstream.KeyValue
	streams []jetstream.Stream // behind each
}

func (r *kvRegistry) shard(id string) int { return shardOf(r.names.key(id), len(r.shards)) }

func (r *kvRegistry) get(ctx context.Context, id string) (entry, error) {
	shard := r.shard(id)
	data, revision, err := lastValue(ctx, r.streams[shard], "$KV."+devicesBucket(shard)+"."+r.names.key(id))
	return entry{deviceIn(id, data), revision}, err
}

// deviceIn is the device that a record tells of. A record that makes no sense is
// none: it can be written over.
func deviceIn(id string, data []byte) *ferrule.Device {
	if len(data) == 0 || ferrule.CheckID(id) != nil || id == ferrule.GatewayID {
		return nil
	}
	r, err := parseRecord(data)
	if err != nil {
		return nil
	}
	return r.device(id)
}

// lastValue reads the newest value of a key and its revision. The value is empty
// if there is none, or none any more.
func lastValue(ctx context.Context, stream jetstream.Stream, subject string) ([]byte, uint64, error) {
	msg, err := stream.GetLastMsgForSubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	case ended(msg.Header):
		return nil, msg.Sequence, nil
	}
	return msg.Data, msg.Sequence, nil
}

// ended tells whether a message marks that there is no value any more.
func ended(h nats.Header) bool {
	return h.Get("KV-Operation") != "" || h.Get(jetstream.MarkerReasonHeader) != ""
}

func (r *kvRegistry) put(ctx context.Context, writes []write) []outcome {
	outcomes := make([]outcome, len(writes))
	futures := make([]jetstream.PubAckFuture, len(writes))
	for i, w := range writes {
		futures[i], outcomes[i].err = r.engine.home.PublishMsgAsync(r.message(w), jetstream.WithExpectLastSequencePerSubject(w.revision))
	}
	for i, future := range futures {
		if future == nil {
			continue
		}
		select {
		case ack := <-future.Ok():
			outcomes[i].revision = ack.Sequence
		case err := <-future.Err():
			outcomes[i].err = staleOr(err)
		case <-ctx.Done():
			outcomes[i].err = ctx.Err()
		}
	}
	return outcomes
}

func (r *kvRegistry) message(w write) *nats.Msg {
	msg := nats.NewMsg(r.engine.prefix + "$KV." + devicesBucket(r.shard(w.id)) + "." + r.names.key(w.id))
	msg.Data = w.data
	if w.data == nil {
		msg.Header.Set("KV-Operation", "DEL")
	}
	return msg
}

// staleOr makes one error of the ways in which a server says that a revision is not
// the newest.
func staleOr(err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == 10164) {
		return errStale
	}
	return err
}

func (r *kvRegistry) watch(ctx context.Context, update func(id string, e entry), synced func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var complete atomic.Int64
	oneMore := func() {
		if int(complete.Add(1)) == len(r.shards) {
			synced()
		}
	}
	failed := make(chan error, len(r.shards))
	for _, kv := range r.shards {
		watcher, err := kv.Watch(ctx, r.names.key("*"))
		if err != nil {
			return fmt.Errorf("watching %s: %w", kv.Bucket(), err)
		}
		wg.Go(func() {
			defer watcher.Stop()
			failed <- follow(ctx, watcher, func(told jetstream.KeyValueEntry) {
				if told == nil {
					oneMore()
					return
				}
				id := strings.TrimPrefix(told.Key(), r.names.tenant+".")
				e := entry{revision: told.Revision()}
				if told.Operation() == jetstream.KeyValuePut {
					e.device = deviceIn(id, told.Value())
				}
				update(id, e)
			})
		})
	}
	return <-failed
}

// follow passes on what a watcher tells; nil is that all there was has been told.
func follow(ctx context.Context, watcher jetstream.KeyWatcher, fn func(jetstream.KeyValueEntry)) error {
	for {
		select {
		case told, open := <-watcher.Updates():
			if !open {
				return errors.New("a watch has ended")
			}
			fn(told)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
