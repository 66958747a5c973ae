package streams

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
)

// journalCopy is the copy of this node's journal in the shared stream.
type journalCopy struct {
	engine         *engine.Engine
	stream         jetstream.Stream
	subject, chain string
	journal        Journal
}

// position implements destination. The error says if this node's journal does not continue
// its copy: it was truncated, and has grown since.
func (c *journalCopy) position(ctx context.Context) (after, seq uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, shipTime)
	defer cancel()
	msg, err := c.stream.GetLastMsgForSubject(ctx, c.subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, 0, nil
	case err != nil:
		return 0, 0, err
	case msg.Header.Get(originHeader) != c.chain:
		return 0, msg.Sequence, nil
	}
	after, err = strconv.ParseUint(msg.Header.Get(lastHeader), 10, 64)
	if err != nil {
		return 0, 0, err
	}
	switch same, err := c.journal.Holds(after, lastHash(msg.Data)); {
	case err != nil:
		return 0, 0, err
	case !same:
		return 0, 0, fmt.Errorf("record %d of the journal differs from its copy; run `ferrule audit verify`", after)
	}
	return after, msg.Sequence, nil
}

// lastHash returns the hash of the last line.
func lastHash(lines []byte) string {
	line := bytes.TrimSuffix(lines, []byte("\n"))
	hash, _, _ := bytes.Cut(line[bytes.LastIndexByte(line, '\n')+1:], []byte(" "))
	return string(hash)
}

// put implements destination. The server accepts a batch only after the last one that was
// read, so a lost acknowledgment does not cause a duplicate.
func (c *journalCopy) put(ctx context.Context, b batch, seq uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, shipTime)
	defer cancel()
	msg := nats.NewMsg(b.subject)
	msg.Data = b.data
	b.number(msg.Header, c.chain)
	ack, err := c.engine.Shared.PublishMsg(ctx, msg, jetstream.WithExpectLastSequenceForSubject(seq, c.subject))
	if err != nil {
		return seq, engine.AsStale(err)
	}
	return ack.Sequence, nil
}
