package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Journals is the journals of all nodes, as far as they were copied.
type Journals struct{ bus *Cluster }

// Journals reads the journals of all nodes. It is nil for a node by itself.
func (b *Cluster) Journals() *Journals {
	if b.cfg.alone() {
		return nil
	}
	return &Journals{b}
}

// Read calls fn with raw lines of chains, in order within each chain, until all that
// there is was read. If the query says so, it goes on with what comes, until ctx
// ends.
func (j *Journals) Read(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error {
	node := q.Node
	if node == "" {
		node = "*"
	} else if err := ferrule.CheckID(node); err != nil {
		return err
	}
	r := &reading{bus: j.bus, follow: q.Follow, fn: fn}
	r.from.InactiveThreshold = 3 * silence
	r.from.FilterSubjects = []string{j.bus.names.subject("journal." + node + ".*")}
	if !q.Since.IsZero() {
		r.from.DeliverPolicy, r.from.OptStartTime = jetstream.DeliverByStartTimePolicy, &q.Since
	}
	for silent := 0; ; silent++ {
		before := r.from.OptStartSeq
		err := r.some(ctx)
		switch {
		case ctx.Err() != nil && q.Follow:
			return nil
		case !errors.Is(err, errSilent):
			return err
		case r.from.OptStartSeq > before || q.Follow:
			silent = 0
		case silent == 2:
			return errors.New("the journals of other nodes cannot be read: the cluster does not answer")
		}
	}
}

// reading is one way through the journals of nodes.
type reading struct {
	bus    *Cluster
	follow bool
	fn     func(ferrule.JournalLines) error
	from   jetstream.OrderedConsumerConfig
}

// errSilent is why a reader begins anew where it was. One whose server has died can
// be silent for ever.
var errSilent = errors.New("nothing comes")

// silence is how long nothing may come.
const silence = 10 * time.Second

// some reads until the end, or until nothing comes.
func (r *reading) some(ctx context.Context) error {
	h := r.bus.home.Load()
	if h == nil {
		return fmt.Errorf("the journals of other nodes cannot be read: %s", r.bus.State().Why)
	}
	consumer, err := h.journal.OrderedConsumer(ctx, r.from)
	if err != nil && r.follow {
		sleep(ctx, time.Second)
		return errSilent
	}
	if err != nil {
		return fmt.Errorf("reading journals: %w", err)
	}
	defer dismiss(ctx, h.journal, consumer)
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
		if last, err := r.take(msg); err != nil || last && !r.follow {
			return err
		}
	}
}

// take passes on what one message tells, and says whether it is the last there is.
func (r *reading) take(msg jetstream.Msg) (last bool, err error) {
	meta, err := msg.Metadata()
	if err != nil {
		return false, err
	}
	if lines, err := journalLines(msg); err == nil { // else it was not written by a node
		if err := r.fn(lines); err != nil {
			return false, err
		}
	}
	r.from.DeliverPolicy, r.from.OptStartTime, r.from.OptStartSeq = jetstream.DeliverByStartSequencePolicy, nil, meta.Sequence.Stream+1
	return meta.NumPending == 0, nil
}

// journalLines reads what a node has shipped.
func journalLines(msg jetstream.Msg) (ferrule.JournalLines, error) {
	token := strings.Split(msg.Subject(), ".") // ferrule.TENANT.journal.NODE.CHAIN
	first, err1 := strconv.ParseUint(msg.Headers().Get(firstHeader), 10, 64)
	last, err2 := strconv.ParseUint(msg.Headers().Get(lastHeader), 10, 64)
	return ferrule.JournalLines{Node: token[3], Chain: token[4], First: first, Last: last, Lines: msg.Data()}, errors.Join(err1, err2)
}

// dismiss tells the server that a reader has ended: it keeps a thousand at most, each for
// minutes.
func dismiss(ctx context.Context, stream jetstream.Stream, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
	defer cancel()
	stream.DeleteConsumer(ctx, consumer.CachedInfo().Name) // or it ends by itself
}
