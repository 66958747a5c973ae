package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/concurrent"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// batch is the content of one message: numbered items, from first to last.
type batch struct {
	subject     string
	first, last uint64
	data        []byte
}

// Headers of a batch. The origin identifies whose numbers they are.
const (
	originHeader = "Ferrule-Origin"
	firstHeader  = "Ferrule-First"
	lastHeader   = "Ferrule-Last"
)

// shipper copies batches to a stream, in order, each once. It reads from the stream
// itself how far it got. A lost acknowledgment does not cause a duplicate: with one
// subject, a batch is only accepted after the last one that was read; with many, where
// the server would have to check each, it recognizes the number of a recent batch.
type shipper struct {
	engine *engine.Engine
	stream jetstream.Stream
	// filter matches what only this node writes; manySubjects says that it has
	// wildcards.
	filter, origin string
	manySubjects   bool
	next           func(ctx context.Context, after uint64) (batch, error)
	// check returns why nothing may follow the last batch; nil if it may.
	check func(last uint64, data []byte) error
}

// The pace of shipping.
const (
	shipTime  = 10 * time.Second
	shipPause = time.Second
)

// run ships until ctx ends. It calls report with an error that occurs twice, and with
// nil after success.
func (s *shipper) run(ctx context.Context, report func(error)) error {
	failures := 0
	for {
		err := s.ship(ctx, func() { failures = 0; report(nil) })
		if ctx.Err() != nil || errors.Is(err, io.EOF) {
			return err
		}
		if failures++; failures > 1 {
			report(err)
		}
		concurrent.Sleep(ctx, shipPause)
	}
}

// ship reads how far it got, and continues from there.
func (s *shipper) ship(ctx context.Context, shipped func()) error {
	after, seq, err := s.position(ctx)
	if err != nil {
		return err
	}
	for {
		b, err := s.next(ctx, after)
		if err != nil {
			return err
		}
		if seq, err = s.put(ctx, b, seq); err != nil {
			return err
		}
		after = b.last
		shipped()
	}
}

// position reads the last batch: its number, and its sequence in the stream.
func (s *shipper) position(ctx context.Context) (after, seq uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, shipTime)
	defer cancel()
	msg, err := s.stream.GetLastMsgForSubject(ctx, s.filter)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, 0, nil
	case err != nil:
		return 0, 0, err
	case msg.Header.Get(originHeader) != s.origin:
		return 0, msg.Sequence, nil
	}
	after, err = strconv.ParseUint(msg.Header.Get(lastHeader), 10, 64)
	if err == nil && s.check != nil {
		err = s.check(after, msg.Data)
	}
	return after, msg.Sequence, err
}

func (s *shipper) put(ctx context.Context, b batch, seq uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, shipTime)
	defer cancel()
	msg := nats.NewMsg(b.subject)
	msg.Data = b.data
	msg.Header.Set(originHeader, s.origin)
	msg.Header.Set(firstHeader, strconv.FormatUint(b.first, 10))
	msg.Header.Set(lastHeader, strconv.FormatUint(b.last, 10))
	once := jetstream.WithExpectLastSequenceForSubject(seq, s.filter)
	if s.manySubjects {
		once = jetstream.WithMsgID(s.origin + "-" + strconv.FormatUint(b.last, 10))
	}
	ack, err := s.engine.Shared.PublishMsg(ctx, msg, once)
	if err != nil {
		return seq, engine.AsStale(err)
	}
	return ack.Sequence, nil
}

// eventSource is a spool, in memory or on disk.
type eventSource interface {
	origin() string
	next(ctx context.Context, after uint64) (ferrule.Event, error)
}

// eventSource returns the spool to ship from. A leaf's is on disk: a hub can be
// unreachable for longer than a gateway runs.
func (s *Streams) eventSource(ctx context.Context, e *engine.Engine) (eventSource, error) {
	if e.Local == nil {
		return s.spool, nil
	}
	return s.openDiskSpool(ctx, e)
}

// shipEvents copies events to the shared stream.
func (s *Streams) shipEvents(ctx context.Context, h *Shared) error {
	source, err := s.eventSource(ctx, h.engine)
	if err != nil {
		return err
	}
	ship := &shipper{
		engine: h.engine, stream: h.events, filter: s.names.Events(), manySubjects: true, origin: source.origin(),
		next: func(ctx context.Context, after uint64) (batch, error) {
			event, err := source.next(ctx, after)
			if n := s.spool.report(); n > 0 {
				s.options.Log.Warn(fmt.Sprintf("cluster: %d events lost, because too many were waiting to be stored", n))
			}
			if err != nil {
				return batch{}, err
			}
			event.Node = s.cfg.Node
			data, err := encodeEvent(event)
			return batch{s.names.Event(event.Device, string(event.Type)), event.Seq, event.Seq, data}, err
		},
	}
	return ship.run(ctx, s.logChange("events not stored", "events stored again"))
}
