package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// RequestTime is how long a JetStream request may take. A request about a stream that
// another node is just creating is not answered at all.
const RequestTime = 2 * time.Second

// Bucket opens a shared bucket, and creates it if it does not exist.
func (e *Engine) Bucket(ctx context.Context, cfg jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	cfg.History, cfg.Storage, cfg.Replicas = 1, jetstream.FileStorage, e.replicas()
	var creation creation
	kv, err := Retry(ctx, func(ctx context.Context) (jetstream.KeyValue, error) {
		kv, err := e.Shared.KeyValue(ctx, cfg.Bucket)
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			kv, err = e.Shared.CreateKeyValue(ctx, cfg)
			err = creation.explain(e.cfg.Tenant, err)
		}
		return kv, err
	})
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", cfg.Bucket, err)
	}
	return kv, nil
}

// Stream opens a shared stream, and creates it if it does not exist.
func (e *Engine) Stream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	cfg.Storage, cfg.Replicas = jetstream.FileStorage, e.replicas()
	var creation creation
	s, err := Retry(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		s, err := e.Shared.Stream(ctx, cfg.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			s, err = e.Shared.CreateStream(ctx, cfg)
			err = creation.explain(e.cfg.Tenant, err)
		}
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", cfg.Name, err)
	}
	return s, nil
}

func (e *Engine) replicas() int {
	if e.cfg.Alone() {
		return 1
	}
	return e.cfg.Replicas
}

// SizeLimit returns a size limit for a shared bucket or stream that fits into the store
// of a single node.
func (e *Engine) SizeLimit(bytes int64) int64 {
	if e.cfg.Alone() {
		return min(bytes, e.cfg.Store/4)
	}
	return bytes
}

// creation counts failed attempts to create something.
type creation int

// maxUnanswered is how often a request to create something may go unanswered before it
// counts as not permitted, rather than slow.
const maxUnanswered = 2

// explain returns what a failure to create something means. A server does not answer a
// request that is not permitted, and a leaf does not even forward it.
func (c *creation) explain(tenant string, err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		*c = maxUnanswered
	case errors.Is(err, context.DeadlineExceeded):
		*c++
	}
	if *c < maxUnanswered {
		return err
	}
	return fmt.Errorf("does not exist, and this node may not create it; start a node once with the credentials of %s's operator", tenant)
}

// Retry repeats a request until ctx ends, as long as it times out or another node
// was faster.
func Retry[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, RequestTime)
		answer, err := request(attempt)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			return answer, err
		case errors.Is(err, jetstream.ErrBucketExists), errors.Is(err, jetstream.ErrStreamNameAlreadyInUse),
			errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, context.DeadlineExceeded):
			continue
		}
		return answer, err
	}
}

// Watch watches keys of a bucket until ctx ends. It repeats a request that is not
// answered: a server that has no leader drops it, and the KV API would wait for the answer
// until ctx ends, which may be never.
func Watch(ctx context.Context, kv jetstream.KeyValue, keys string) (jetstream.KeyWatcher, error) {
	for {
		attempt, cancel := context.WithCancel(ctx) // ends the watch as well
		limit := time.AfterFunc(RequestTime, cancel)
		w, err := kv.Watch(attempt, keys)
		inTime := limit.Stop()
		if err == nil && inTime {
			return watcher{w, cancel}, nil
		}
		cancel()
		if err == nil {
			w.Stop()
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if inTime {
			return nil, err
		}
	}
}

// watcher is a watch with its context.
type watcher struct {
	jetstream.KeyWatcher
	cancel context.CancelFunc
}

// Stop implements jetstream.KeyWatcher.
func (w watcher) Stop() error {
	defer w.cancel()
	return w.KeyWatcher.Stop()
}

// KeySubject returns the subject to publish a key's value to. Publishing allows a time
// to live and an expected revision, which the KV API does not.
func (e *Engine) KeySubject(bucket, key string) string { return e.prefix + "$KV." + bucket + "." + key }

// LastValue returns the newest value of a key and its revision. The value is empty if
// there is none or it was deleted; unlike the KV API, it returns the revision even then.
func (e *Engine) LastValue(ctx context.Context, bucket, key string) ([]byte, uint64, error) {
	stream, err := e.bucketStream(ctx, bucket)
	if err != nil {
		return nil, 0, err
	}
	msg, err := stream.GetLastMsgForSubject(ctx, "$KV."+bucket+"."+key)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	case deleted(msg.Header):
		return nil, msg.Sequence, nil
	}
	return msg.Data, msg.Sequence, nil
}

// bucketStream returns the stream behind a bucket.
func (e *Engine) bucketStream(ctx context.Context, bucket string) (jetstream.Stream, error) {
	if s, known := e.streams.Load(bucket); known {
		return s.(jetstream.Stream), nil
	}
	s, err := e.Shared.Stream(ctx, "KV_"+bucket)
	if err == nil {
		e.streams.Store(bucket, s)
	}
	return s, err
}

// BucketMissing returns jetstream.ErrStreamNotFound if a bucket does not exist, nil if
// it does or that is unknown.
func (e *Engine) BucketMissing(ctx context.Context, bucket string) error {
	if _, err := e.Shared.Stream(ctx, "KV_"+bucket); errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	return nil
}

// deleted reports whether a message marks the deletion or expiry of a value.
func deleted(h nats.Header) bool {
	return h.Get("KV-Operation") != "" || h.Get(jetstream.MarkerReasonHeader) != ""
}

// DeleteConsumer removes a consumer after its last read: a server keeps at most a
// thousand, each for minutes. If it fails, the consumer expires.
func DeleteConsumer(ctx context.Context, stream jetstream.Stream, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RequestTime)
	defer cancel()
	stream.DeleteConsumer(ctx, consumer.CachedInfo().Name)
}
