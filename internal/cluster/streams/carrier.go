package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/concurrent"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
)

// carrier publishes readings to their stream, in order and each once. It keeps many in
// flight, because there are thousands per second. If one fails, it reads from the stream
// which of those in flight were stored, and continues with the others; only then can a
// reading follow a later one.
type carrier struct {
	backlog backlog
	filter  string // matches the readings of this node
	js      jetstream.JetStream
	stream  jetstream.Stream // nil until it was opened
	news    bell             // rings when readings were stored, or may have been
	reject  func(subject string, err error)

	// stored is the sequence of the last reading that is known to be stored, in the
	// stream that was created then; sent is the number of the last one that was sent.
	stored  uint64
	created time.Time
	sent    uint64
}

// flight is a reading that waits for its acknowledgment.
type flight struct {
	number uint64
	jetstream.PubAckFuture
}

const (
	maxFlights = 256
	// duplicateWindow is how long a server recognizes a reading that it has stored:
	// longer than any is in flight.
	duplicateWindow = 30 * time.Second
)

// carry publishes readings until ctx ends, one fails, or no more follow. It calls done
// after each one that was stored.
func (c *carrier) carry(ctx context.Context, done func()) error {
	if err := c.resume(ctx); err != nil {
		return err
	}
	c.news.ring()
	flying, err := c.send(ctx, done)
	for _, f := range flying { // resume needs that none is in flight
		select {
		case <-f.Ok():
		case <-f.Err():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// send publishes readings, and returns those that are still in flight.
func (c *carrier) send(ctx context.Context, done func()) (flying []flight, err error) {
	for {
		more := c.backlog.more.wait()
		for len(flying) < maxFlights {
			b, ok := c.backlog.next(c.sent)
			if !ok {
				break
			}
			f, err := c.js.PublishMsgAsync(&nats.Msg{Subject: b.subject, Data: b.data},
				jetstream.WithMsgID(c.backlog.id(b.last)), jetstream.WithRetryAttempts(0))
			if errors.Is(err, nats.ErrMaxPayload) { // it was queued before the limit was known
				c.reject(b.subject, err)
				c.backlog.forget(b.last)
				continue
			}
			if err != nil {
				return flying, err
			}
			flying, c.sent = append(flying, flight{b.last, f}), b.last
		}
		if len(flying) == 0 {
			if c.backlog.over() {
				return nil, io.EOF
			}
			select {
			case <-more:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if len(flying) == maxFlights {
			more = nil // no room for more
		}
		first := flying[0]
		select {
		case ack := <-first.Ok():
			c.stored = ack.Sequence
			c.backlog.forget(first.number)
			flying = flying[1:]
			c.news.ring()
			done()
		case err := <-first.Err():
			return flying[1:], err
		case <-more:
		case <-ctx.Done():
			return flying, ctx.Err()
		}
	}
}

// resume reads which of the readings that were sent are stored, and forgets those.
func (c *carrier) resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, shipTime)
	defer cancel()
	info, err := c.stream.Info(ctx)
	if err != nil {
		return err
	}
	if !info.Created.Equal(c.created) {
		c.created, c.stored = info.Created, 0
		if c.sent == 0 {
			c.stored = info.State.LastSeq
		}
	}
	if b, ok := c.backlog.next(0); !ok || b.last > c.sent {
		return nil
	}
	c.sent = 0
	if info.State.LastSeq <= c.stored {
		return nil
	}
	consumer, err := c.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{c.filter}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: c.stored + 1, HeadersOnly: true,
	})
	if err != nil {
		return err
	}
	defer engine.DeleteConsumer(ctx, c.stream, consumer)
	for left := consumer.CachedInfo().NumPending; left > 0; {
		fetched, err := consumer.Fetch(int(min(left, maxFlights)), jetstream.FetchMaxWait(engine.RequestTime))
		if err != nil {
			return err
		}
		got := uint64(0)
		for msg := range fetched.Messages() {
			got++
			if id := readingID(msg.Headers()); id.origin == c.backlog.name {
				c.backlog.forget(id.last)
			}
		}
		if got == 0 || fetched.Error() != nil {
			return errors.Join(errSilent, fetched.Error())
		}
		left -= min(left, got)
	}
	return nil
}

// keepReadings stores readings until ctx ends, no more follow, or the server in this
// process must be restarted.
func (s *Streams) keepReadings(ctx context.Context, e *engine.Engine) error {
	report := s.logChange("readings not stored", "readings stored again")
	for failures := 0; ; {
		err := s.carryReadings(ctx, e, func() { failures = 0; report(nil) })
		if ctx.Err() != nil || errors.Is(err, io.EOF) {
			return err
		}
		if failures++; failures > 1 {
			switch {
			case !e.InProcess():
				err = e.Explain(err)
			case e.Stuck(err):
				return engine.ErrStuck
			}
			report(err)
		}
		concurrent.Sleep(ctx, shipPause)
	}
}

func (s *Streams) carryReadings(ctx context.Context, e *engine.Engine, done func()) error {
	stream, err := s.openReadings(ctx, e)
	if err != nil {
		return err
	}
	s.readings.Store(&stream)
	s.carrier.js, s.carrier.stream = e.Own(), stream
	return s.carrier.carry(ctx, done)
}

// openReadings opens the stream of readings, or creates it. A leaf's stream has only its
// own subjects: else the hub would send it the readings of others.
func (s *Streams) openReadings(ctx context.Context, e *engine.Engine) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	cfg := jetstream.StreamConfig{
		Name: engine.SamplesStream, Description: "what devices measured", Subjects: []string{engine.Names{Tenant: "*", Node: "*"}.Sample("*", "*", false)},
		MaxAge: samplesAge, MaxBytes: maxSamplesBytes, Discard: jetstream.DiscardOld, Duplicates: duplicateWindow, AllowDirect: true,
	}
	if !e.InProcess() {
		return e.Stream(ctx, cfg)
	}
	if e.Local != nil {
		cfg.Subjects = []string{s.carrier.filter}
	}
	cfg.Storage, cfg.MaxBytes = jetstream.FileStorage, min(maxSamplesBytes, s.cfg.Store/8)
	stream, err := e.Own().CreateOrUpdateStream(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", engine.SamplesStream, err)
	}
	return stream, nil
}

// lastReadings stores the remaining readings, if there is time.
func (s *Streams) lastReadings(ctx context.Context, e *engine.Engine) {
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	s.carrier.backlog.end()
	s.keepReadings(ctx, e)
}
