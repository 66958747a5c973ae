package streams

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

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
		to: &journalCopy{h.engine, h.journal, subject, first.Chain, journal},
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
// one. If the query says so, it follows new lines until ctx ends.
func (j *Journals) Read(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error {
	node := q.Node
	if node == "" {
		node = "*"
	} else if err := ferrule.CheckID(node); err != nil {
		return err
	}
	r := &journalReader{streams: j.streams, follow: q.Follow, fn: fn}
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
	follow  bool
	fn      func(ferrule.JournalLines) error
	from    jetstream.OrderedConsumerConfig
}

// errSilent means that a reader must continue with a new consumer. One whose server died
// can be silent forever.
var errSilent = errors.New("no messages")

// silence is how long a consumer may be silent.
const silence = 10 * time.Second

// read reads to the end, or until the consumer is silent.
func (r *journalReader) read(ctx context.Context) error {
	h := r.streams.shared.Load()
	if h == nil {
		return fmt.Errorf("cannot read the journals of other nodes: %s", r.streams.options.Problem())
	}
	consumer, err := h.journal.OrderedConsumer(ctx, r.from)
	if err != nil && r.follow {
		concurrent.Sleep(ctx, time.Second)
		return errSilent
	}
	if err != nil {
		return fmt.Errorf("reading journals: %w", err)
	}
	defer engine.DeleteConsumer(ctx, h.journal, consumer)
	if consumer.CachedInfo().NumPending == 0 && !r.follow {
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
		if last, err := r.pass(msg); err != nil || last && !r.follow {
			return err
		}
	}
}

// pass passes on a message, and reports whether it is the last one.
func (r *journalReader) pass(msg jetstream.Msg) (last bool, err error) {
	meta, err := msg.Metadata()
	if err != nil {
		return false, err
	}
	if lines, err := journalLines(msg); err == nil { // else no node wrote it
		if err := r.fn(lines); err != nil {
			return false, err
		}
	}
	r.from.DeliverPolicy, r.from.OptStartTime, r.from.OptStartSeq = jetstream.DeliverByStartSequencePolicy, nil, meta.Sequence.Stream+1
	return meta.NumPending == 0, nil
}

// journalLines parses a message of a shipper.
func journalLines(msg jetstream.Msg) (ferrule.JournalLines, error) {
	token := strings.Split(msg.Subject(), ".") // ferrule.TENANT.journal.NODE.CHAIN
	first, err1 := strconv.ParseUint(msg.Headers().Get(firstHeader), 10, 64)
	last, err2 := strconv.ParseUint(msg.Headers().Get(lastHeader), 10, 64)
	return ferrule.JournalLines{Node: token[3], Chain: token[4], First: first, Last: last, Lines: msg.Data()}, errors.Join(err1, err2)
}
