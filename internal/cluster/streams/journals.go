package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/concurrent"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxLines is how many bytes of a journal are copied in one message.
const maxLines = 256 << 10

// shipJournal copies this node's journal to the shared stream. It retries while the
// journal cannot be read: the node takes part in the cluster regardless.
func (s *Streams) shipJournal(ctx context.Context, h *Shared) error {
	report := s.logChange("journal not copied", "journal copied again")
	journal := s.options.Journal
	first, err := journal.Lines(ctx, 0, 1) // for the name of the chain
	for err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		report(err)
		concurrent.Sleep(ctx, shipPause)
		first, err = journal.Lines(ctx, 0, 1)
	}
	subject := s.names.Journal(first.Chain)
	ship := &shipper{
		to: &journalCopy{engine: h.engine, stream: h.journal, key: s.journalKey, subject: subject, journal: journal},
		next: func(ctx context.Context, after uint64) (batch, error) {
			lines, err := journal.Lines(ctx, after, maxLines)
			return batch{subject, lines.First, lines.Last, lines.Lines}, err
		},
	}
	return ship.run(ctx, report)
}

// Journals reads the copies of the journals of all nodes.
type Journals struct{ streams *Streams }

// Journals returns a reader, or nil for a single node.
func (s *Streams) Journals() *Journals {
	if s.cfg.Alone() {
		return nil
	}
	return &Journals{s}
}

// Read calls fn with raw lines of chains, in order within each chain, up to the last
// one. If the query says so, it follows new lines until ctx ends. It skips messages that no
// node wrote, or calls fn with them too if the query selects them.
//
// A reader that begins later than the stream does not know the message before the first
// batch of a chain. If that batch is a replay, its lines are those of a node all the same,
// with their own times.
func (j *Journals) Read(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error {
	node := q.Node
	if node == "" {
		node = "*"
	} else if err := ferrule.CheckID(node); err != nil {
		return err
	}
	r := &journalReader{streams: j.streams, query: q, fn: fn, before: make(map[string]uint64)}
	r.from.InactiveThreshold = 3 * silence
	r.from.FilterSubjects = []string{j.streams.names.Subject("journal." + node + ".*")}
	if !q.Since.IsZero() {
		r.from.DeliverPolicy, r.from.OptStartTime = jetstream.DeliverByStartTimePolicy, &q.Since
	}
	for silent := 0; ; silent++ {
		before := r.from.OptStartSeq
		err := r.read(ctx)
		switch {
		case ctx.Err() != nil && q.Follow:
			return nil
		case !errors.Is(err, errSilent):
			return err
		case r.from.OptStartSeq > before || q.Follow:
			silent = 0
		case silent == 2:
			return errors.New("cannot read the journals of other nodes: the cluster does not answer")
		}
	}
}

// journalReader is one pass through the journals.
type journalReader struct {
	streams *Streams
	query   ferrule.JournalQuery
	fn      func(ferrule.JournalLines) error
	from    jetstream.OrderedConsumerConfig
	// before is the sequence of the last message on each subject. It has all subjects that
	// nodes write; others only up to a limit, then overflow is set.
	before   map[string]uint64
	overflow bool
}

// maxForgedSubjects limits how many subjects are remembered that no node writes.
const maxForgedSubjects = 4096

// errSilent means that a reader must continue with a new consumer. One whose server died
// can be silent forever.
var errSilent = errors.New("no messages")

// silence is how long a consumer may be silent.
const silence = 10 * time.Second

// errEnough ends the reading of messages.
var errEnough = errors.New("no more messages are needed")

// eachMessage calls fn with the messages of a new consumer up to the last one, or until it
// fails. It returns errSilent if the consumer does not deliver.
func eachMessage(ctx context.Context, stream jetstream.Stream, from jetstream.OrderedConsumerConfig, follow bool, fn func(jetstream.Msg, *jetstream.MsgMetadata) error) error {
	consumer, err := stream.OrderedConsumer(ctx, from)
	if err != nil && follow {
		concurrent.Sleep(ctx, time.Second)
		return errSilent
	}
	if err != nil {
		return fmt.Errorf("reading journals: %w", err)
	}
	defer engine.DeleteConsumer(ctx, stream, consumer)
	if consumer.CachedInfo().NumPending == 0 && !follow {
		return nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("reading journals: %w", err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		msg, err := messages.Next(jetstream.NextMaxWait(silence))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return errSilent
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		if err := fn(msg, meta); err != nil || meta.NumPending == 0 && !follow {
			return err
		}
	}
}

// read reads to the end, or until the consumer is silent.
func (r *journalReader) read(ctx context.Context) error {
	h := r.streams.shared.Load()
	if h == nil {
		return fmt.Errorf("cannot read the journals of other nodes: %s", r.streams.options.Problem())
	}
	var first uint64
	return eachMessage(ctx, h.journal, r.from, r.query.Follow, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		seq := meta.Sequence.Stream
		if first == 0 { // now that the reader has its place: what was purged before it is not missed
			info, err := h.journal.Info(ctx)
			if err != nil {
				return fmt.Errorf("reading journals: %w", err)
			}
			first = max(info.State.FirstSeq, 1)
		}
		if err := r.pass(msg, seq, first); err != nil {
			return err
		}
		r.from.DeliverPolicy, r.from.OptStartTime, r.from.OptStartSeq = jetstream.DeliverByStartSequencePolicy, nil, seq+1
		return nil
	})
}

// pass passes on a message, if a node wrote it or the query selects others.
func (r *journalReader) pass(msg jetstream.Msg, seq, first uint64) error {
	lines, forgery := r.check(msg.Subject(), msg.Headers(), msg.Data(), seq, first)
	switch {
	case forgery == "":
		return r.fn(lines)
	case !r.query.Forged:
		return nil
	}
	node, chain := journalOf(msg.Subject())
	return r.fn(ferrule.JournalLines{Node: ferrule.Clean(node, ferrule.MaxWord), Chain: ferrule.Clean(chain, ferrule.MaxWord), Forgery: forgery, Message: seq})
}

// check returns the lines of a message, or why it does not count.
func (r *journalReader) check(subject string, header nats.Header, data []byte, seq, first uint64) (ferrule.JournalLines, ferrule.Forgery) {
	before, known := r.before[subject]
	b, err := openBatch(r.streams.journalKey, subject, header, data)
	unclear := !known && (r.overflow || !r.query.Since.IsZero())
	if known || err == nil || len(r.before) < maxForgedSubjects {
		r.before[subject] = seq
	} else {
		r.overflow = true
	}
	switch {
	case err != nil:
		return ferrule.JournalLines{}, ferrule.Unsealed
	case !unclear && !b.follows(before, first):
		return ferrule.JournalLines{}, ferrule.Replayed
	}
	return b.JournalLines, ""
}
