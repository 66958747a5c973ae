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

// shipper copies batches to a stream, in order, each once. It reads from the stream itself
// how far it got.
type shipper struct {
	to   destination
	next func(ctx context.Context, after uint64) (batch, error)
}

// destination is where a shipper copies to.
type destination interface {
	// position returns the number of the last item that is stored, and the sequence of the
	// last message.
	position(ctx context.Context) (after, seq uint64, err error)
	// put stores a batch, and returns its sequence. The error is engine.ErrStale if seq is not
	// the last message.
	put(ctx context.Context, b batch, seq uint64) (uint64, error)
}

// The pace of shipping.
const (
	shipTime  = 10 * time.Second
	shipPause = time.Second
	// maxStale is how often the position is read again at once, because somebody else has
	// written a message.
	maxStale = 16
)

// run ships until ctx ends. It calls report with an error that occurs twice, and with
// nil after success.
func (s *shipper) run(ctx context.Context, report func(error)) error {
	for failures, stale := 0, 0; ; {
		err := s.ship(ctx, func() { failures, stale = 0, 0; report(nil) })
		if ctx.Err() != nil || errors.Is(err, io.EOF) {
			return err
		}
		if stale++; errors.Is(err, engine.ErrStale) && stale <= maxStale {
			continue
		}
		if failures++; failures > 1 {
			report(err)
		}
		concurrent.Sleep(ctx, shipPause)
		stale = 0
	}
}

// ship reads how far it got, and continues from there.
func (s *shipper) ship(ctx context.Context, shipped func()) error {
	after, seq, err := s.to.position(ctx)
	if err != nil {
		return err
	}
	for {
		b, err := s.next(ctx, after)
		if err != nil {
			return err
		}
		if seq, err = s.to.put(ctx, b, seq); err != nil {
			return err
		}
		after = b.last
		shipped()
	}
}

// number adds the headers of a batch to a message.
func (b batch) number(h nats.Header, origin string) {
	h.Set(originHeader, origin)
	h.Set(firstHeader, strconv.FormatUint(b.first, 10))
	h.Set(lastHeader, strconv.FormatUint(b.last, 10))
}

// storedEvents is this node's events in the shared stream. They have many subjects, so the
// server cannot check that one follows the last; it recognizes the number of a recent event
// instead. So a lost acknowledgment does not cause a duplicate.
type storedEvents struct {
	engine *engine.Engine
	stream jetstream.Stream
	filter string // matches the events of this node
	origin string
}

// position implements destination.
func (e *storedEvents) position(ctx context.Context) (after, seq uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, shipTime)
	defer cancel()
	msg, err := e.stream.GetLastMsgForSubject(ctx, e.filter)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, 0, nil
	case err != nil:
		return 0, 0, err
	case msg.Header.Get(originHeader) != e.origin:
		return 0, msg.Sequence, nil
	}
	after, err = strconv.ParseUint(msg.Header.Get(lastHeader), 10, 64)
	return after, msg.Sequence, err
}

// put implements destination.
func (e *storedEvents) put(ctx context.Context, b batch, seq uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, shipTime)
	defer cancel()
	msg := nats.NewMsg(b.subject)
	msg.Data = b.data
	b.number(msg.Header, e.origin)
	ack, err := e.engine.Shared.PublishMsg(ctx, msg, jetstream.WithMsgID(e.origin+"-"+strconv.FormatUint(b.last, 10)))
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
		to: &storedEvents{h.engine, h.events, s.names.Events(), source.origin()},
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
