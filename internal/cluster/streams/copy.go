package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/cluster/seal"
)

// journalCopy is the copy of this node's journal in the shared stream. Messages on its
// subject that this node did not write do not count. Each is read once in a run of the node,
// however many there are.
type journalCopy struct {
	engine  *engine.Engine
	stream  jetstream.Stream
	key     seal.Key
	subject string
	journal Journal

	// What is known about the subject in the stream that was created then: all messages up to
	// seen were read, and last is the last record of the batches among them.
	created time.Time
	known   bool
	seen    uint64
	last    uint64
	hash    string // of the last record
	// stale is whether the server has refused a batch since then.
	stale bool
}

// position implements destination. The error says if this node's journal does not continue
// its copy: it was truncated, and has grown since.
func (c *journalCopy) position(ctx context.Context) (after, seq uint64, err error) {
	if err := c.update(ctx); err != nil {
		return 0, 0, err
	}
	if c.last == 0 {
		return 0, c.seen, nil
	}
	switch same, err := c.journal.Holds(c.last, c.hash); {
	case err != nil:
		return 0, 0, err
	case !same:
		return 0, 0, fmt.Errorf("record %d of the journal differs from its copy; run `ferrule audit verify`", c.last)
	}
	return c.last, c.seen, nil
}

// put implements destination. The server accepts a batch only after the message that it
// names, so a lost acknowledgment does not cause a duplicate.
func (c *journalCopy) put(ctx context.Context, b batch, seq uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, shipTime)
	defer cancel()
	ack, err := c.engine.Shared.PublishMsg(ctx, sealBatch(c.key, b, seq), jetstream.WithExpectLastSequenceForSubject(seq, c.subject))
	if err != nil {
		err = engine.AsStale(err)
		c.stale = errors.Is(err, engine.ErrStale)
		return seq, err
	}
	c.seen, c.last, c.hash = ack.Sequence, b.last, lastHash(b.data)
	return ack.Sequence, nil
}

// update reads the messages that are not known yet.
func (c *journalCopy) update(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, shipTime)
	defer cancel()
	info, err := c.stream.Info(limited)
	if err != nil {
		return err
	}
	newest, err := c.stream.GetLastMsgForSubject(limited, c.subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		newest, err = &jetstream.RawStreamMsg{}, nil
	}
	if err != nil {
		return err
	}
	// A server that lost its last messages has fewer than it had confirmed.
	lost := c.stale && newest.Sequence <= c.seen
	if c.stale = false; lost || !info.Created.Equal(c.created) {
		c.created, c.known, c.seen, c.last = info.Created, false, 0, 0
	}
	if newest.Sequence <= c.seen {
		c.known = true
		return nil
	}
	var found *journalBatch
	if first := info.State.FirstSeq; c.known {
		_, found, err = c.scan(ctx, c.seen+1, newest.Sequence, c.seen, first)
	} else {
		found, err = c.search(ctx, newest, first)
	}
	if err != nil {
		return err
	}
	if c.known, c.seen = true, newest.Sequence; found != nil {
		c.last, c.hash = found.Last, lastHash(found.Lines)
	}
	return nil
}

// firstWindow is how many sequences are searched first if the newest message does not count.
const firstWindow = 64

// search finds the newest batch that counts. Mostly it is the newest message; if not, it
// searches backward in windows that grow.
func (c *journalCopy) search(ctx context.Context, newest *jetstream.RawStreamMsg, first uint64) (*journalBatch, error) {
	if b, err := openBatch(c.key, c.subject, newest.Header, newest.Data); err == nil {
		next, err := c.next(ctx, b.after+1)
		if err != nil || next == newest.Sequence {
			return &b, err
		}
	}
	for to, size := newest.Sequence, uint64(firstWindow); ; size *= 4 {
		from := uint64(1)
		if to > size {
			from = to - size
		}
		begin, found, err := c.scan(ctx, from, to, 0, first)
		if err != nil || found != nil || from == 1 {
			return found, err
		}
		to = begin // the message before it is in the next window
	}
}

// next returns the sequence of the first message from a sequence on.
func (c *journalCopy) next(ctx context.Context, from uint64) (seq uint64, err error) {
	err = c.each(ctx, from, func(_ jetstream.Msg, at uint64) bool {
		seq = at
		return false
	})
	return seq, err
}

// scan returns the sequence of the first message in a range, and the last batch in it that
// counts. Before is the sequence of the message before the range. If it is 0 and the range
// does not begin with 1, that message is not known, and the first in the range does not count.
func (c *journalCopy) scan(ctx context.Context, from, to, before, first uint64) (begin uint64, found *journalBatch, err error) {
	judge := before != 0 || from == 1
	err = c.each(ctx, from, func(msg jetstream.Msg, seq uint64) bool {
		if begin == 0 {
			begin = seq
		}
		if judge {
			if b, err := openBatch(c.key, c.subject, msg.Headers(), msg.Data()); err == nil && b.follows(before, first) {
				found = &b
			}
		}
		judge, before = true, seq
		return seq < to
	})
	return begin, found, err
}

// each calls fn with messages on the subject from a sequence on, until it returns false or
// there are no more.
func (c *journalCopy) each(ctx context.Context, from uint64, fn func(msg jetstream.Msg, seq uint64) bool) error {
	err := eachMessage(ctx, c.stream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{c.subject}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, InactiveThreshold: 3 * silence,
	}, false, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		if !fn(msg, meta.Sequence.Stream) {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
