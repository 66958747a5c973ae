package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// parcel is what is brought to a stream in one message: numbered things, from
// first to last.
type parcel struct {
	subject     string
	first, last uint64
	data        []byte
}

// Headers of a parcel. The origin tells whose numbers they are.
const (
	originHeader = "Ferrule-Origin"
	firstHeader  = "Ferrule-First"
	lastHeader   = "Ferrule-Last"
)

// route is from where to where parcels are brought: in order, each once. How far
// it got is read from the stream itself. An answer that was lost makes nothing stand
// there twice: where all have one subject, what is written is only written behind
// what was read; where they have many, the server would look at each of them, and
// knows what came in the last minutes by its number instead.
type route struct {
	engine *engine
	stream jetstream.Stream
	// under is the subject under which only this node writes; many tells that it has
	// wildcards.
	under, origin string
	many          bool
	next          func(ctx context.Context, after uint64) (parcel, error)
	// goesOn tells why nothing may be brought behind the last parcel; nil if
	// anything may.
	goesOn func(last uint64, data []byte) error
}

// The pace of shipping.
const (
	shipTime  = 10 * time.Second
	shipPause = time.Second
)

// ship brings parcels until ctx ends. Say is told why it cannot, if it fails twice,
// and nil when it can again.
func (r *route) ship(ctx context.Context, say func(error)) error {
	failures := 0
	for {
		err := r.shipFrom(ctx, func() { failures = 0; say(nil) })
		if ctx.Err() != nil || errors.Is(err, io.EOF) {
			return err
		}
		if failures++; failures > 1 {
			say(err)
		}
		sleep(ctx, shipPause)
	}
}

// shipFrom finds out how far it got, and goes on from there.
func (r *route) shipFrom(ctx context.Context, shipped func()) error {
	after, at, err := r.position(ctx)
	if err != nil {
		return err
	}
	for {
		p, err := r.next(ctx, after)
		if err != nil {
			return err
		}
		if at, err = r.put(ctx, p, at); err != nil {
			return err
		}
		after = p.last
		shipped()
	}
}

// position reads the last parcel: its number, and where it stands.
func (r *route) position(ctx context.Context) (after, at uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, shipTime)
	defer cancel()
	msg, err := r.stream.GetLastMsgForSubject(ctx, r.under)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, 0, nil
	case err != nil:
		return 0, 0, err
	case msg.Header.Get(originHeader) != r.origin:
		return 0, msg.Sequence, nil
	}
	after, err = strconv.ParseUint(msg.Header.Get(lastHeader), 10, 64)
	if err == nil && r.goesOn != nil {
		err = r.goesOn(after, msg.Data)
	}
	return after, msg.Sequence, err
}

func (r *route) put(ctx context.Context, p parcel, at uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, shipTime)
	defer cancel()
	msg := nats.NewMsg(p.subject)
	msg.Data = p.data
	msg.Header.Set(originHeader, r.origin)
	msg.Header.Set(firstHeader, strconv.FormatUint(p.first, 10))
	msg.Header.Set(lastHeader, strconv.FormatUint(p.last, 10))
	once := jetstream.WithExpectLastSequenceForSubject(at, r.under)
	if r.many {
		once = jetstream.WithMsgID(r.origin + "-" + strconv.FormatUint(p.last, 10))
	}
	ack, err := r.engine.home.PublishMsg(ctx, msg, once)
	if err != nil {
		return at, staleOr(err)
	}
	return ack.Sequence, nil
}

// maxLines is how much of a journal is brought at once.
const maxLines = 256 << 10

// shipJournal copies this node's journal. That it cannot be read is no reason not to
// take part.
func (b *Cluster) shipJournal(ctx context.Context, e *engine, h *home) error {
	say := b.told("the journal is", "copied")
	first, err := b.parts.Journal.Lines(ctx, 0, 1) // it says which chain it is
	for err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		say(err)
		sleep(ctx, shipPause)
		first, err = b.parts.Journal.Lines(ctx, 0, 1)
	}
	subject := b.names.journal(first.Chain)
	r := &route{
		engine: e, stream: h.journal, under: subject, origin: first.Chain,
		next: func(ctx context.Context, after uint64) (parcel, error) {
			batch, err := b.parts.Journal.Lines(ctx, after, maxLines)
			return parcel{subject, batch.First, batch.Last, batch.Lines}, err
		},
		goesOn: b.sameJournal,
	}
	return r.ship(ctx, say)
}

// sameJournal tells whether this node's journal goes on where its copy ends. One
// that was cut off, and has grown since, does not.
func (b *Cluster) sameJournal(last uint64, copied []byte) error {
	line := bytes.TrimSuffix(copied, []byte("\n"))
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	hash, _, _ := bytes.Cut(line, []byte(" "))
	switch same, err := b.parts.Journal.Holds(last, string(hash)); {
	case err != nil:
		return err
	case !same:
		return fmt.Errorf("record %d of the journal is not the one that was copied: `ferrule audit verify` tells more", last)
	}
	return nil
}

// shipEvents brings events to where all nodes can read them.
func (b *Cluster) shipEvents(ctx context.Context, e *engine, h *home) error {
	source, err := b.eventSource(ctx, e)
	if err != nil {
		return err
	}
	r := &route{
		engine: e, stream: h.events, under: b.names.events(), many: true, origin: source.origin(),
		next: func(ctx context.Context, after uint64) (parcel, error) {
			event, err := source.next(ctx, after)
			if n := b.spool.dropped(); n > 0 {
				b.parts.Log.Warn(fmt.Sprintf("bus: %d events are lost: there were too many to keep until somebody took them", n))
			}
			if err != nil {
				return parcel{}, err
			}
			event.Node = b.cfg.Node
			data, err := encodeEvent(event)
			return parcel{b.names.event(event.Device, string(event.Type)), event.Seq, event.Seq, data}, err
		},
	}
	return r.ship(ctx, b.told("events are", "kept"))
}

// told logs why something is not done, once, and that it is again.
func (b *Cluster) told(what, done string) func(error) {
	var why string
	return func(err error) {
		now := ""
		if err != nil {
			now = err.Error()
		}
		if now == why {
			return
		}
		if why = now; now == "" {
			b.parts.Log.Info("bus: " + what + " " + done + " again")
			return
		}
		b.parts.Log.Warn("bus: "+what+" not "+done+"; it is tried again", "err", now)
	}
}

// eventSource is where events wait.
type eventSource interface {
	origin() string
	next(ctx context.Context, after uint64) (ferrule.Event, error)
}

// eventSource is the spool in memory, or on a leaf its copy on disk: a hub can be
// away for longer than a gateway runs.
func (b *Cluster) eventSource(ctx context.Context, e *engine) (eventSource, error) {
	if e.local == nil {
		return b.spool, nil
	}
	return b.openDiskSpool(ctx, e)
}

// diskSpool is a stream in a leaf's own store.
type diskSpool struct {
	stream jetstream.Stream
	name   string
	more   func() <-chan struct{}
}

// spoolSubjects are those of a spool. They do not cross to the hub.
const spoolSubjects = "ferrule-spool.>"

func spoolSubject(e ferrule.Event) string { return "ferrule-spool." + e.Device + "." + string(e.Type) }

func (b *Cluster) openDiskSpool(ctx context.Context, e *engine) (*diskSpool, error) {
	stream, err := e.local.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: spoolStream, Subjects: []string{spoolSubjects}, Storage: jetstream.FileStorage, MaxMsgsPerSubject: eventsEach,
		MaxBytes: min(spoolBytes, b.cfg.Store/4), Discard: jetstream.DiscardOld, AllowDirect: true,
	})
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	// A store that was made anew counts from one again.
	name := b.identity + "-" + strconv.FormatInt(stream.CachedInfo().Created.UnixNano(), 36)
	return &diskSpool{stream: stream, name: name, more: b.spooled.wait}, nil
}

func (s *diskSpool) origin() string { return s.name }

// next waits for the first event after a number, and forgets those up to it: where they
// are brought they are not kept for ever, and are not to come twice.
func (s *diskSpool) next(ctx context.Context, after uint64) (e ferrule.Event, err error) {
	if after > 0 {
		if err := s.stream.Purge(ctx, jetstream.WithPurgeSequence(after+1)); err != nil {
			return e, err
		}
	}
	for {
		more := s.more()
		msg, err := s.stream.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(spoolSubjects))
		switch {
		case err == nil:
			if err := json.Unmarshal(msg.Data, &e); err != nil {
				after = msg.Sequence // it makes no sense to anybody
				continue
			}
			e.Seq = msg.Sequence
			return e, nil
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return e, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return e, ctx.Err()
		}
	}
}

// keepSpool brings events from memory to a leaf's own store, as they come, until
// ctx ends, or the store is beyond help.
func (b *Cluster) keepSpool(ctx context.Context, e *engine) error {
	if _, err := b.openDiskSpool(ctx, e); err != nil {
		return err
	}
	for after := uint64(0); ; {
		event, err := b.spool.next(ctx, after)
		if err != nil {
			return err
		}
		data, err := encodeEvent(event)
		if err != nil {
			return err
		}
		attempt, cancel := context.WithTimeout(ctx, shipTime)
		_, err = e.local.Publish(attempt, spoolSubject(event), data, jetstream.WithMsgID(b.spool.name+"-"+strconv.FormatUint(event.Seq, 10)))
		cancel()
		switch {
		case err == nil:
		case ctx.Err() == nil && b.stuck(err):
			return errStuck
		default:
			return fmt.Errorf("spool: %w", err)
		}
		after = event.Seq
		b.spooled.ring()
	}
}
