package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// registry keeps the records of a tenant's devices. It has three methods, so that
// a database can stand behind it where there are too many for a KV.
type registry interface {
	// get reads the record of an ID. It may be a moment old.
	get(ctx context.Context, id string) (entry, error)
	// put writes records, each only if it is still at the revision that is given,
	// and tells of each what became of it.
	put(ctx context.Context, writes []write) []outcome
	// watch calls told with every record, then synced, then told with every change,
	// until ctx ends or it cannot go on. Data is nil where there is no record any
	// more. Calls about one record come one after the other, others at once.
	watch(ctx context.Context, told func(id string, data []byte, revision uint64), synced func()) error
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
	engine *engine
	names  names
	shards []jetstream.KeyValue
}

func (r *kvRegistry) shard(id string) int { return shardOf(r.names.key(id), len(r.shards)) }

func (r *kvRegistry) get(ctx context.Context, id string) (entry, error) {
	shard := r.shard(id)
	data, revision, err := r.engine.lastValue(ctx, devicesBucket(shard), r.names.key(id))
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

// lastValue reads the newest value of a key of a bucket and its revision. The value is
// empty if there is none, or none any more; the KV would not tell its revision then.
func (e *engine) lastValue(ctx context.Context, bucket, key string) ([]byte, uint64, error) {
	stream, err := e.behind(ctx, bucket)
	if err != nil {
		return nil, 0, err
	}
	msg, err := stream.GetLastMsgForSubject(ctx, "$KV."+bucket+"."+key)
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

// behind is the stream that a bucket is made of. It is asked for when it is first
// needed, which is seldom.
func (e *engine) behind(ctx context.Context, bucket string) (jetstream.Stream, error) {
	if s, known := e.streams.Load(bucket); known {
		return s.(jetstream.Stream), nil
	}
	s, err := e.home.Stream(ctx, "KV_"+bucket)
	if err == nil {
		e.streams.Store(bucket, s)
	}
	return s, err
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
	if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == codeNotLastSubject) {
		return errStale
	}
	return err
}

func (r *kvRegistry) watch(ctx context.Context, told func(id string, data []byte, revision uint64), synced func()) error {
	var complete atomic.Int64
	oneMore := func() {
		if int(complete.Add(1)) == len(r.shards) {
			synced()
		}
	}
	var all []func(context.Context) error
	for _, kv := range r.shards {
		all = append(all, func(ctx context.Context) error { return r.watchShard(ctx, kv, told, oneMore) })
	}
	return together(ctx, all)
}

// watchShard is watch for one shard.
func (r *kvRegistry) watchShard(ctx context.Context, kv jetstream.KeyValue, told func(id string, data []byte, revision uint64), synced func()) error {
	watcher, err := kv.Watch(ctx, r.names.key("*"))
	if err != nil {
		return fmt.Errorf("watching %s: %w", kv.Bucket(), err)
	}
	defer watcher.Stop()
	return follow(ctx, watcher, func(e jetstream.KeyValueEntry) {
		if e == nil {
			synced()
			return
		}
		var data []byte
		if e.Operation() == jetstream.KeyValuePut {
			data = e.Value()
		}
		told(strings.TrimPrefix(e.Key(), r.names.tenant+"."), data, e.Revision())
	})
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
