package registry

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/concurrent"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// store keeps the device records of a tenant. It has three methods, so that a database
// can replace key-value buckets for larger fleets.
type store interface {
	// get reads the record of a device. It may be slightly out of date.
	get(ctx context.Context, id string) (entry, error)
	// put writes records, each only if it still has the given revision, and returns
	// the outcome of each.
	put(ctx context.Context, writes []write) []outcome
	// watch calls received with every record, then synced, then received with every
	// change, until ctx ends or it fails. The data of a removed record is nil. Calls
	// about one record are sequential, others concurrent.
	watch(ctx context.Context, received func(id string, data []byte, revision uint64), synced func()) error
}

// entry is a device and the revision of its record. The device is nil if the record
// does not exist. It is shared and read-only.
type entry struct {
	device   *ferrule.Device
	revision uint64
	voucher  string // of the record, not checked yet
}

// write is one change of a record: data is nil to remove it.
type write struct {
	id       string
	data     []byte
	revision uint64
}

// outcome is the result of a write: the new revision, or engine.ErrStale if another
// node changed the record first.
type outcome struct {
	revision uint64
	err      error
}

// kvStore is a store in key-value buckets, one per shard.
type kvStore struct {
	engine *engine.Engine
	names  engine.Names
	shards []jetstream.KeyValue
}

func (k *kvStore) shard(id string) int { return shardOf(k.names.Key(id), len(k.shards)) }

// shardOf returns the shard of a key.
func shardOf(key string, shards int) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % uint32(shards))
}

func (k *kvStore) get(ctx context.Context, id string) (entry, error) {
	data, revision, err := k.engine.LastValue(ctx, engine.DevicesBucket(k.shard(id)), k.names.Key(id))
	return entryIn(id, data, revision), err
}

// entryIn returns the device in a record. An invalid record counts as none, so that it
// can be overwritten.
func entryIn(id string, data []byte, revision uint64) entry {
	if len(data) == 0 || ferrule.CheckID(id) != nil || id == ferrule.GatewayID {
		return entry{revision: revision}
	}
	r, err := parseRecord(data)
	if err != nil {
		return entry{revision: revision}
	}
	return entry{r.device(id), revision, r.Voucher}
}

func (k *kvStore) put(ctx context.Context, writes []write) []outcome {
	outcomes := make([]outcome, len(writes))
	futures := make([]jetstream.PubAckFuture, len(writes))
	for i, w := range writes {
		futures[i], outcomes[i].err = k.engine.Shared.PublishMsgAsync(k.message(w), jetstream.WithExpectLastSequencePerSubject(w.revision))
	}
	for i, future := range futures {
		if future == nil {
			continue
		}
		select {
		case ack := <-future.Ok():
			outcomes[i].revision = ack.Sequence
		case err := <-future.Err():
			outcomes[i].err = engine.AsStale(err)
		case <-ctx.Done():
			outcomes[i].err = ctx.Err()
		}
	}
	return outcomes
}

func (k *kvStore) message(w write) *nats.Msg {
	msg := nats.NewMsg(k.engine.KeySubject(engine.DevicesBucket(k.shard(w.id)), k.names.Key(w.id)))
	msg.Data = w.data
	if w.data == nil {
		msg.Header.Set("KV-Operation", "DEL")
	}
	return msg
}

func (k *kvStore) watch(ctx context.Context, received func(id string, data []byte, revision uint64), synced func()) error {
	var complete atomic.Int64
	shardSynced := func() {
		if int(complete.Add(1)) == len(k.shards) {
			synced()
		}
	}
	var all []func(context.Context) error
	for _, kv := range k.shards {
		all = append(all, func(ctx context.Context) error { return k.watchShard(ctx, kv, received, shardSynced) })
	}
	return concurrent.UntilFirst(ctx, all...)
}

func (k *kvStore) watchShard(ctx context.Context, kv jetstream.KeyValue, received func(id string, data []byte, revision uint64), synced func()) error {
	watcher, err := engine.Watch(ctx, kv, k.names.Key("*"))
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
		received(strings.TrimPrefix(e.Key(), k.names.Tenant+"."), data, e.Revision())
	})
}

// follow calls fn with the updates of a watcher. A nil entry means that all existing
// keys have been reported.
func follow(ctx context.Context, watcher jetstream.KeyWatcher, fn func(jetstream.KeyValueEntry)) error {
	for {
		select {
		case e, open := <-watcher.Updates():
			if !open {
				return errors.New("a watch has ended")
			}
			fn(e)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
