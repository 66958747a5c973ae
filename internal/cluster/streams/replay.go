package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/concurrent"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Readings calls fn with this node's stored readings, in order, and then with new ones,
// until ctx ends or fn fails. It starts after a StoredReading.Position, or with the first
// reading if that is empty. When it first reaches the end, it calls fn without a reading.
//
// If the reading at that position no longer exists, it starts with the first one that
// does, sets Lost if readings are missing, and sets MayRepeat on those that may have been
// passed before.
func (s *Streams) Readings(ctx context.Context, after string, fn func(ferrule.StoredReading) error) error {
	at, err := parsePosition(after)
	if err != nil {
		return err
	}
	r := &replay{streams: s, fn: fn, at: at}
	for ctx.Err() == nil {
		news := s.carrier.news.wait()
		if err := r.read(ctx); !errors.Is(err, errSilent) {
			return err
		}
		if !r.atEnd {
			continue
		}
		select { // a node that measures nothing sends no requests
		case <-news:
		case <-ctx.Done():
		}
	}
	return nil
}

// ReadingsStream returns the stream of this node's readings, nil while it is not open.
func (s *Streams) ReadingsStream() jetstream.Stream {
	if stream := s.readings.Load(); stream != nil {
		return *stream
	}
	return nil
}

// position is the place of a reading: its sequence in the stream, and its ID. A stream
// that lost its end, or was created again, reuses sequences.
type position struct {
	seq uint64
	id  mark
}

func (p position) String() string {
	if p.seq == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s %d", p.seq, cmp.Or(p.id.origin, noOrigin), p.id.last)
}

// noOrigin stands for the origin of a message that no node wrote.
const noOrigin = "."

func parsePosition(text string) (p position, err error) {
	if text == "" {
		return p, nil
	}
	if _, err := fmt.Sscanf(text, "%d %s %d", &p.seq, &p.id.origin, &p.id.last); err != nil {
		return p, fmt.Errorf("invalid position in the stream of readings %q: %w", ferrule.Clean(text, ferrule.MaxWord), err)
	}
	if p.id.origin == noOrigin {
		p.id.origin = ""
	}
	return p, nil
}

// follows reports whether a reading is the next one that its node measured.
func (p position) follows(before position) bool {
	return p.id.origin == before.id.origin && p.id.last == before.id.last+1
}

// replay is one pass through the readings of this node.
type replay struct {
	streams *Streams
	fn      func(ferrule.StoredReading) error
	at      position // of the last reading
	// missing is the position that was not found when the replay started over. Readings
	// up to repeatUntil may have been passed before.
	missing     position
	repeatUntil uint64
	lost        bool // reported with the next reading
	reported    bool // the end was reported
	atEnd       bool // the last reading was the last one stored
}

// streamPause is the pause while the stream is not open.
const streamPause = 250 * time.Millisecond

// read reads until the consumer is silent or fails.
func (r *replay) read(ctx context.Context) error {
	r.atEnd = false
	stream := r.streams.ReadingsStream()
	if stream == nil {
		concurrent.Sleep(ctx, streamPause)
		return errSilent
	}
	info, err := stream.Info(ctx)
	if err != nil {
		concurrent.Sleep(ctx, time.Second)
		return errSilent
	}
	if r.at.seq > info.State.LastSeq {
		r.startOver(info.State)
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{r.streams.carrier.filter}, InactiveThreshold: 3 * silence,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(1, r.at.seq),
	})
	if err != nil {
		concurrent.Sleep(ctx, time.Second)
		return errSilent
	}
	defer engine.DeleteConsumer(ctx, stream, consumer)
	if consumer.CachedInfo().NumPending == 0 {
		return cmp.Or(r.reachEnd(), errSilent)
	}
	return r.follow(ctx, stream, consumer)
}

// follow passes on the messages of a consumer. The first one shows whether the last
// reading still exists.
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
		at := position{meta.Sequence.Stream, readingID(msg.Headers())}
		switch {
		case at == r.at:
			found = true
			if meta.NumPending == 0 {
				if err := r.reachEnd(); err != nil {
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
		if err := r.checkLost(ctx, stream, at); err != nil {
			return err
		}
		if err := r.pass(msg, at, meta.NumPending); err != nil {
			return err
		}
	}
}

// startOver continues with the first reading that exists.
func (r *replay) startOver(s jetstream.StreamState) {
	r.at, r.missing, r.repeatUntil = position{}, r.at, s.LastSeq
}

// checkLost sets lost if readings before a position no longer exist. A number may also
// be missing because that reading follows a later one.
func (r *replay) checkLost(ctx context.Context, stream jetstream.Stream, at position) error {
	switch {
	case r.missing.seq != 0:
		if at.follows(r.missing) {
			r.repeatUntil = 0 // only readings that were passed before are gone
		} else {
			r.lost = true
		}
		r.missing = position{}
	case at.id.origin == r.at.id.origin && at.id.last > r.at.id.last+1:
		info, err := stream.Info(ctx)
		if err != nil {
			return errSilent
		}
		r.lost = r.lost || info.State.FirstSeq > r.at.seq+1
	}
	return nil
}

// pass passes on a message. It skips one that no node wrote.
func (r *replay) pass(msg jetstream.Msg, at position, remaining uint64) error {
	reading, err := parseReading(r.streams.names, msg.Subject(), msg.Data())
	if err == nil && reading.Node == r.streams.cfg.Node {
		if err := r.fn(ferrule.StoredReading{Reading: &reading, Position: at.String(), Lost: r.lost, MayRepeat: at.seq <= r.repeatUntil, Remaining: remaining}); err != nil {
			return err
		}
		r.lost, r.reported = false, r.reported || remaining == 0
	}
	if r.at, r.atEnd = at, false; remaining == 0 {
		return r.reachEnd()
	}
	return nil
}

// reachEnd notes that all stored readings were passed, and reports it the first time.
func (r *replay) reachEnd() error {
	r.atEnd = true
	if r.reported {
		return nil
	}
	r.reported = true
	return r.fn(ferrule.StoredReading{Position: r.at.String()})
}
