package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// carrier brings readings to the stream that keeps them: in order, each once, and
// several at once, because there are thousands a second. If one does not get there, it
// looks which of those that were on their way did, and goes on with the others; only
// then can one come to stand behind a later one.
type carrier struct {
	backlog backlog
	// under is the subject that this node's readings stand under.
	under string
	js    jetstream.JetStream
	// stream is nil until it was opened.
	stream jetstream.Stream
	// news rings when some have got there, or may have.
	news bell
	// notFit is told of what can never get there.
	notFit func(subject string, err error)

	// kept is where the last reading stands of which it is known, in the stream that
	// was made then; sent is the number of the last that was sent.
	kept uint64
	made time.Time
	sent uint64
}

// flight is a reading on its way.
type flight struct {
	number uint64
	jetstream.PubAckFuture
}

// How readings are sent.
const (
	mostFlying = 256
	// sameFor is how long a server knows a reading that came before: longer than
	// anything is on its way.
	sameFor = 30 * time.Second
)

// carry brings readings until ctx ends, or something goes wrong, or there are no more.
// Done is called when one has got there.
func (c *carrier) carry(ctx context.Context, done func()) error {
	if err := c.lookBack(ctx); err != nil {
		return err
	}
	c.news.ring()
	flying, err := c.send(ctx, done)
	for _, f := range flying { // nothing is on its way when it is looked which have come
		select {
		case <-f.Ok():
		case <-f.Err():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// send sends readings, and returns those that are still on their way.
func (c *carrier) send(ctx context.Context, done func()) (flying []flight, err error) {
	for {
		more := c.backlog.more.wait()
		for len(flying) < mostFlying {
			p, ok := c.backlog.next(c.sent)
			if !ok {
				break
			}
			f, err := c.js.PublishMsgAsync(&nats.Msg{Subject: p.subject, Data: p.data},
				jetstream.WithMsgID(c.backlog.id(p.last)), jetstream.WithRetryAttempts(0))
			if errors.Is(err, nats.ErrMaxPayload) { // it was taken before the servers could be asked
				c.notFit(p.subject, err)
				c.backlog.forget(p.last)
				continue
			}
			if err != nil {
				return flying, err
			}
			flying, c.sent = append(flying, flight{p.last, f}), p.last
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
		if len(flying) == mostFlying {
			more = nil // there is no room for them
		}
		first := flying[0]
		select {
		case ack := <-first.Ok():
			c.kept = ack.Sequence
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

// lookBack looks which of the readings that were sent have got there, unless all have
// that were.
func (c *carrier) lookBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, shipTime)
	defer cancel()
	info, err := c.stream.Info(ctx)
	if err != nil {
		return err
	}
	if !info.Created.Equal(c.made) {
		c.made, c.kept = info.Created, 0
		if c.sent == 0 {
			c.kept = info.State.LastSeq
		}
	}
	if p, ok := c.backlog.next(0); !ok || p.last > c.sent {
		return nil
	}
	c.sent = 0
	if info.State.LastSeq <= c.kept {
		return nil
	}
	consumer, err := c.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{c.under}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: c.kept + 1, HeadersOnly: true,
	})
	if err != nil {
		return err
	}
	defer dismiss(ctx, c.stream, consumer)
	for left := consumer.CachedInfo().NumPending; left > 0; {
		batch, err := consumer.Fetch(int(min(left, mostFlying)), jetstream.FetchMaxWait(requestTime))
		if err != nil {
			return err
		}
		got := uint64(0)
		for msg := range batch.Messages() {
			got++
			if id := idOf(msg.Headers()); id.origin == c.backlog.name {
				c.backlog.forget(id.last)
			}
		}
		if got == 0 || batch.Error() != nil {
			return errors.Join(errSilent, batch.Error())
		}
		left -= min(left, got)
	}
	return nil
}

// keepReadings opens the stream of readings and brings them there, until ctx ends, or
// the store of an engine in this process is beyond help.
func (b *Cluster) keepReadings(ctx context.Context, e *engine) error {
	say := b.told("readings are", "kept")
	for failures := 0; ; {
		err := b.keepSome(ctx, e, func() { failures = 0; say(nil) })
		if ctx.Err() != nil || errors.Is(err, io.EOF) {
			return err
		}
		if failures++; failures > 1 {
			switch {
			case e.server == nil:
				err = b.because(e, err)
			case b.stuck(err):
				return errStuck
			}
			say(err)
		}
		sleep(ctx, shipPause)
	}
}

func (b *Cluster) keepSome(ctx context.Context, e *engine, done func()) error {
	stream, err := b.openReadings(ctx, e)
	if err != nil {
		return err
	}
	b.readings.Store(&stream)
	b.carrier.js, b.carrier.stream = e.own(), stream
	return b.carrier.carry(ctx, done)
}

// own is the JetStream that this node keeps by itself; of one that has joined, that of
// the cluster.
func (e *engine) own() jetstream.JetStream {
	if e.local != nil {
		return e.local
	}
	return e.home
}

// openReadings opens the stream of readings, or makes it. A leaf's takes no readings
// but its own: a hub that heard that it wants others would send them.
func (b *Cluster) openReadings(ctx context.Context, e *engine) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	cfg := jetstream.StreamConfig{
		Name: samplesStream, Description: "what devices measured", Subjects: []string{names{"*", "*"}.sample("*", "*", false)},
		MaxAge: samplesAge, MaxBytes: samplesBytes, Discard: jetstream.DiscardOld, Duplicates: sameFor, AllowDirect: true,
	}
	if e.server == nil {
		return b.stream(ctx, e, cfg)
	}
	if e.local != nil {
		cfg.Subjects = []string{b.carrier.under}
	}
	cfg.Storage, cfg.MaxBytes = jetstream.FileStorage, min(samplesBytes, b.cfg.Store/8)
	stream, err := e.own().CreateOrUpdateStream(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", samplesStream, err)
	}
	return stream, nil
}

// lastReadings brings what is left of them, if there is time.
func (b *Cluster) lastReadings(ctx context.Context, e *engine) {
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	b.carrier.backlog.end()
	b.keepReadings(ctx, e)
}
