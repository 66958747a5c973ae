package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Readings calls fn with this node's own readings as they are kept, in order, from
// after one on that it is told by its At, or from the first, and then with those that
// come, until ctx ends or fn fails. When there are no more for now, it calls fn once
// without one.
//
// If the reading that it is to go on after is no longer there, it begins with the first
// that is, says that some may be lost, and that those that are kept by then may have been
// read before.
func (b *Cluster) Readings(ctx context.Context, after string, fn func(ferrule.StoredReading) error) error {
	at, err := parsePlace(after)
	if err != nil {
		return err
	}
	r := &replay{bus: b, fn: fn, at: at}
	for ctx.Err() == nil {
		news := b.carrier.news.wait()
		if err := r.some(ctx); !errors.Is(err, errSilent) {
			return err
		}
		if !r.atEnd {
			continue
		}
		select { // who measures nothing asks for nothing
		case <-news:
		case <-ctx.Done():
		}
	}
	return nil
}

// keptAt is where a reading stands: its number in the stream, and what it is known by.
// A stream that has lost its end, or was made anew, gives numbers again.
type keptAt struct {
	seq uint64
	id  mark
}

func (k keptAt) String() string {
	if k.seq == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s %d", k.seq, cmp.Or(k.id.origin, nobody), k.id.last)
}

// nobody stands for the origin of what no node has written, and is the name of none.
const nobody = "."

func parsePlace(text string) (k keptAt, err error) {
	if text == "" {
		return k, nil
	}
	if _, err := fmt.Sscanf(text, "%d %s %d", &k.seq, &k.id.origin, &k.id.last); err != nil {
		return k, fmt.Errorf("%q is no place in the stream of readings: %w", ferrule.Clean(text, ferrule.MaxWord), err)
	}
	if k.id.origin == nobody {
		k.id.origin = ""
	}
	return k, nil
}

// follows tells whether a reading was the next that its node measured.
func (k keptAt) follows(before keptAt) bool {
	return k.id.origin == before.id.origin && k.id.last == before.id.last+1
}

// replay is one way through the readings of this node.
type replay struct {
	bus *Cluster
	fn  func(ferrule.StoredReading) error
	at  keptAt // of the last that was read
	// missed is what could not be found when it began with the first; up to until there
	// may be some that were read before.
	missed keptAt
	until  uint64
	lost   bool // to be told with the next
	level  bool // it was told that there are no more
	atEnd  bool // there were no more when the last was read
}

// some reads until nothing comes, or something goes wrong.
func (r *replay) some(ctx context.Context) error {
	r.atEnd = false
	at := r.bus.readings.Load()
	if at == nil {
		sleep(ctx, againMin)
		return errSilent
	}
	stream := *at
	info, err := stream.Info(ctx)
	if err != nil {
		sleep(ctx, time.Second)
		return errSilent
	}
	if r.at.seq > info.State.LastSeq {
		r.startOver(info.State)
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{r.bus.carrier.under}, InactiveThreshold: 3 * silence,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(1, r.at.seq),
	})
	if err != nil {
		sleep(ctx, time.Second)
		return errSilent
	}
	defer dismiss(ctx, stream, consumer)
	if consumer.CachedInfo().NumPending == 0 {
		return cmp.Or(r.caughtUp(), errSilent)
	}
	return r.follow(ctx, stream, consumer)
}

// follow passes on what a consumer brings. The first that it brings tells whether it is
// where it left off.
func (r *replay) follow(ctx context.Context, stream jetstream.Stream, consumer jetstream.Consumer) error {
	messages, err := consumer.Messages()
	if err != nil {
		return errSilent
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	found := r.at.seq == 0
	for {
		msg, err := messages.Next(jetstream.NextMaxWait(silence))
		if err != nil || ctx.Err() != nil {
			return errSilent
		}
		meta, err := msg.Metadata()
		if err != nil {
			return errSilent
		}
		at := keptAt{meta.Sequence.Stream, idOf(msg.Headers())}
		switch {
		case at == r.at:
			found = true
			if meta.NumPending == 0 {
				if err := r.caughtUp(); err != nil {
					return err
				}
			}
			continue
		case !found:
			info, err := stream.Info(ctx)
			if err != nil {
				return errSilent
			}
			r.startOver(info.State)
			return errSilent
		}
		if err := r.compare(ctx, stream, at); err != nil {
			return err
		}
		if err := r.take(msg, at, meta.NumPending); err != nil {
			return err
		}
	}
}

// startOver begins with the first that there is.
func (r *replay) startOver(s jetstream.StreamState) {
	r.at, r.missed, r.until = keptAt{}, r.at, s.LastSeq
}

// compare finds out whether readings are missing before one because they are no longer
// kept. One can also have come to stand behind a later one.
func (r *replay) compare(ctx context.Context, stream jetstream.Stream, at keptAt) error {
	switch {
	case r.missed.seq != 0:
		if at.follows(r.missed) {
			r.until = 0 // it was the last to go
		} else {
			r.lost = true
		}
		r.missed = keptAt{}
	case at.id.origin == r.at.id.origin && at.id.last > r.at.id.last+1:
		info, err := stream.Info(ctx)
		if err != nil {
			return errSilent
		}
		r.lost = r.lost || info.State.FirstSeq > r.at.seq+1
	}
	return nil
}

// take passes on what a message tells. What no node has written is passed over.
func (r *replay) take(msg jetstream.Msg, at keptAt, rest uint64) error {
	reading, err := r.bus.names.parseReading(msg.Subject(), msg.Data())
	if err == nil && reading.Node == r.bus.cfg.Node {
		if err := r.fn(ferrule.StoredReading{Reading: &reading, Position: at.String(), Lost: r.lost, MayRepeat: at.seq <= r.until, Remaining: rest}); err != nil {
			return err
		}
		r.lost, r.level = false, r.level || rest == 0
	}
	if r.at, r.atEnd = at, false; rest == 0 {
		return r.caughtUp()
	}
	return nil
}

// caughtUp notes that there are no more for now, and tells it, unless that was told.
func (r *replay) caughtUp() error {
	r.atEnd = true
	if r.level {
		return nil
	}
	r.level = true
	return r.fn(ferrule.StoredReading{Position: r.at.String()})
}
