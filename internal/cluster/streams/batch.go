package streams

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/cluster/seal"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// afterHeader is the sequence of the message before a batch of a journal, on its subject.
const afterHeader = "Ferrule-After"

// journalBatch is records of a journal in a sealed message. It counts only directly after
// the message that it names: anybody can publish a copy of it, but only later.
type journalBatch struct {
	ferrule.JournalLines
	after uint64 // sequence of the message before it, on its subject; 0 if it is the first
}

// follows reports whether the batch belongs after a message, or after none if before is 0.
// The stream begins with the message first: what was before it is not known.
func (b journalBatch) follows(before, first uint64) bool {
	return b.after == before || before == 0 && b.after < first
}

// sealContext returns where a batch is valid: as these records of this chain of this node,
// and in this place.
func sealContext(subject string, first, last, after uint64) string {
	return fmt.Sprintf("journal %q %d %d %d", subject, first, last, after)
}

// sealBatch returns the message of a batch after another message.
func sealBatch(key seal.Key, b batch, after uint64) *nats.Msg {
	msg := nats.NewMsg(b.subject)
	b.number(msg.Header, b.subject[strings.LastIndexByte(b.subject, '.')+1:])
	msg.Header.Set(afterHeader, strconv.FormatUint(after, 10))
	msg.Data = key.Seal(sealContext(b.subject, b.first, b.last, after), b.data)
	return msg
}

// openBatch reads a message that a node of the tenant sealed. The lines share its memory.
func openBatch(key seal.Key, subject string, header nats.Header, data []byte) (b journalBatch, err error) {
	first, err1 := strconv.ParseUint(header.Get(firstHeader), 10, 64)
	last, err2 := strconv.ParseUint(header.Get(lastHeader), 10, 64)
	after, err3 := strconv.ParseUint(header.Get(afterHeader), 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return b, err
	}
	lines, err := key.Open(sealContext(subject, first, last, after), data)
	if err != nil {
		return b, err
	}
	node, chain := journalOf(subject)
	return journalBatch{ferrule.JournalLines{Node: node, Chain: chain, First: first, Last: last, Lines: lines}, after}, nil
}

// journalOf returns the node and the chain that a subject names. If no node wrote the
// message, they may be any text.
func journalOf(subject string) (node, chain string) {
	token := strings.Split(subject, ".") // ferrule.TENANT.journal.NODE.CHAIN
	if len(token) != 5 {
		return "", ""
	}
	return token[3], token[4]
}

// lastHash returns the hash of the last line.
func lastHash(lines []byte) string {
	line := bytes.TrimSuffix(lines, []byte("\n"))
	hash, _, _ := bytes.Cut(line[bytes.LastIndexByte(line, '\n')+1:], []byte(" "))
	return string(hash)
}
