package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule"
)

// Journals is the journals of all nodes, as far as they were copied.
type Journals struct{ bus *Bus }

// Journals reads the journals of all nodes. It is nil for a node by itself.
func (b *Bus) Journals() *Journals {
	if b.cfg.alone() {
		return nil
	}
	return &Journals{b}
}

// Read calls fn with raw lines of chains, in order within each chain, until all that
// there is was read. If the query says so, it goes on with what comes, until ctx
// ends.
func (j *Journals) Read(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error {
	h := j.bus.home.Load()
	if h == nil {
		return fmt.Errorf("the journals of other nodes cannot be read: %s", j.bus.State().Why)
	}
	node := q.Node
	if node == "" {
		node = "*"
	} else if err := ferrule.CheckID(node); err != nil {
		return err
	}
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: []string{j.bus.names.subject("journal." + node + ".*")}}
	if !q.Since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &q.Since
	}
	consumer, err := h.journal.OrderedConsumer(ctx, cfg)
	if err != nil {
		return fmt.Errorf("reading journals: %w", err)
	}
	if consumer.CachedInfo().NumPending == 0 && !q.Follow {
		return nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("reading journals: %w", err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		msg, err := messages.Next()
		if ctx.Err() != nil && q.Follow {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading journals: %w", err)
		}
		lines, err := journalLines(msg)
		if err != nil {
			continue // it was not written by a node
		}
		if err := fn(lines); err != nil {
			return err
		}
		if meta, err := msg.Metadata(); !q.Follow && (err != nil || meta.NumPending == 0) {
			return err
		}
	}
}

// journalLines reads what a node has shipped.
func journalLines(msg jetstream.Msg) (ferrule.JournalLines, error) {
	token := strings.Split(msg.Subject(), ".") // ferrule.TENANT.journal.NODE.CHAIN
	first, err1 := strconv.ParseUint(msg.Headers().Get(firstHeader), 10, 64)
	last, err2 := strconv.ParseUint(msg.Headers().Get(lastHeader), 10, 64)
	return ferrule.JournalLines{Node: token[3], Chain: token[4], First: first, Last: last, Lines: msg.Data()}, errors.Join(err1, err2)
}
