package streams

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/cluster/seal"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func newKey(t testing.TB) seal.Key {
	t.Helper()
	key, err := seal.New([]byte("0123456789abcdef0123456789abcdef"), "journal", "acme")
	if err != nil {
		t.Fatal(err)
	}
	return key
}

const chain = "0123456789abcdef"

var journalSubject = engine.Names{Tenant: "acme", Node: "north"}.Journal(chain)

// TestReplay checks which messages a reader accepts, and what it remembers of others.
func TestReplay(t *testing.T) {
	key := newKey(t)
	one, two := sealBatch(key, batch{journalSubject, 1, 3, []byte("x\n")}, 7), sealBatch(key, batch{journalSubject, 4, 4, []byte("y\n")}, 9)
	type message struct {
		*nats.Msg
		seq  uint64
		want ferrule.Forgery
	}
	forged := func(n int) *nats.Msg {
		return &nats.Msg{Subject: fmt.Sprint("ferrule.acme.journal.ghost.", n), Data: []byte("x")}
	}
	on := func(subject string, m *nats.Msg) *nats.Msg {
		return &nats.Msg{Subject: subject, Header: m.Header, Data: m.Data}
	}
	before := message{on(journalSubject, forged(0)), 7, ferrule.Unsealed}
	for name, test := range map[string]struct {
		query    ferrule.JournalQuery
		first    uint64
		messages []message
	}{
		"in order":                {messages: []message{before, {one, 9, ""}, {two, 12, ""}}},
		"again":                   {messages: []message{before, {one, 9, ""}, {one, 10, ferrule.Replayed}, {two, 12, ferrule.Replayed}}},
		"too early":               {messages: []message{before, {two, 8, ferrule.Replayed}, {one, 9, ferrule.Replayed}}},
		"without the one before":  {messages: []message{{one, 9, ferrule.Replayed}}},
		"another node":            {messages: []message{{on("ferrule.acme.journal.south."+chain, one), 9, ferrule.Unsealed}}},
		"another chain":           {messages: []message{{on("ferrule.acme.journal.north.fedcba9876543210", one), 9, ferrule.Unsealed}}},
		"another tenant":          {messages: []message{{on("ferrule.globex.journal.north."+chain, one), 9, ferrule.Unsealed}}},
		"forged between":          {messages: []message{before, {one, 9, ""}, {on(journalSubject, forged(0)), 11, ferrule.Unsealed}, {two, 12, ferrule.Replayed}}},
		"since":                   {query: ferrule.JournalQuery{Since: time.Unix(1, 0)}, messages: []message{{two, 12, ""}, {two, 13, ferrule.Replayed}}},
		"the stream begins later": {first: 9, messages: []message{{one, 9, ""}, {two, 12, ""}}},
	} {
		r := &journalReader{streams: &Streams{journalKey: key}, query: test.query, before: make(map[string]uint64)}
		for i, m := range test.messages {
			lines, forgery := r.check(m.Subject, m.Header, m.Data, m.seq, max(test.first, 1))
			if forgery != m.want || forgery == "" && (lines.Node != "north" || lines.Chain != chain || len(lines.Lines) != 2) {
				t.Errorf("%s: message %d is %q, want %q: %+v", name, i, forgery, m.want, lines)
			}
		}
	}
	r := &journalReader{streams: &Streams{journalKey: key}, before: make(map[string]uint64)}
	for n := range 2 * maxForgedSubjects {
		r.check(forged(n).Subject, nil, nil, uint64(n+1), 1)
	}
	if len(r.before) != maxForgedSubjects {
		t.Errorf("%d subjects are remembered, limit is %d", len(r.before), maxForgedSubjects)
	}
	for _, m := range []message{{one, 1 << 20, ""}, {one, 1<<20 + 1, ferrule.Replayed}} {
		if _, forgery := r.check(m.Subject, m.Header, m.Data, m.seq, 1); forgery != m.want {
			t.Errorf("after many subjects a message is %q, want %q", forgery, m.want)
		}
	}
}

// countedStream counts the consumers of a stream, and the messages from where they begin.
type countedStream struct {
	jetstream.Stream
	starts []uint64
}

func (s *countedStream) OrderedConsumer(ctx context.Context, cfg jetstream.OrderedConsumerConfig) (jetstream.Consumer, error) {
	s.starts = append(s.starts, cfg.OptStartSeq)
	return s.Stream.OrderedConsumer(ctx, cfg)
}

// anyJournal has every record.
type anyJournal struct{ Journal }

func (anyJournal) Holds(uint64, string) (bool, error) { return true, nil }

// journalStream creates a stream of journals, and returns how to write to it.
func journalStream(t *testing.T) (stream jetstream.Stream, publish func(*nats.Msg) uint64) {
	t.Helper()
	t.Parallel()
	s := clustertest.StartServer(t, &server.Options{Port: server.RANDOM_PORT, StoreDir: t.TempDir()})
	js := clustertest.Connect(t, s.ClientURL())
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: engine.JournalStream, Subjects: []string{"ferrule.*.journal.*.*"}, AllowDirect: true})
	if err != nil {
		t.Fatal(err)
	}
	return stream, func(msg *nats.Msg) uint64 {
		ack, err := js.PublishMsg(t.Context(), msg)
		if err != nil {
			t.Fatal(err)
		}
		return ack.Sequence
	}
}

// TestFlood checks that the position is found before many messages that do not count, and
// that each of them is read once.
func TestFlood(t *testing.T) {
	stream, publish := journalStream(t)
	key := newKey(t)
	replayed := sealBatch(key, batch{journalSubject, 1, 3, []byte("x\n")}, 0)
	flood := func(n int) (last uint64) {
		for range n {
			publish(&nats.Msg{Subject: journalSubject, Data: []byte("x")})
			last = publish(replayed)
			publish(&nats.Msg{Subject: "ferrule.acme.journal.south." + chain, Data: []byte("x")})
		}
		return last
	}
	counted := &countedStream{Stream: stream}
	newCopy := func() *journalCopy {
		return &journalCopy{stream: counted, key: key, subject: journalSubject, journal: anyJournal{}}
	}
	running := newCopy()
	want := func(when string, c *journalCopy, wantAfter, wantSeq uint64, wantStarts string) {
		t.Helper()
		counted.starts = nil
		after, seq, err := c.position(t.Context())
		if starts := strings.Trim(fmt.Sprint(counted.starts), "[]"); err != nil || after != wantAfter || seq != wantSeq || starts != wantStarts {
			t.Errorf("%s: the position is %d after message %d, read from %s: %v", when, after, seq, starts, err)
		}
	}
	want("at first", running, 0, 0, "")
	last := flood(100)
	want("after a flood", running, 0, last, "1")
	want("again", running, 0, last, "")
	genuine := publish(sealBatch(key, batch{journalSubject, 1, 5, []byte("x\n")}, last))
	want("after a batch", running, 5, genuine, fmt.Sprint(last+1))
	want("after a start", newCopy(), 5, genuine, fmt.Sprint(last+1))
	last = flood(1000)
	want("after another flood", running, 5, last, fmt.Sprint(genuine+1))
	c := newCopy()
	counted.starts = nil
	if after, seq, err := c.position(t.Context()); err != nil || after != 5 || seq != last || len(counted.starts) > 6 {
		t.Errorf("after a start, the position is %d after message %d, read from %v: %v", after, seq, counted.starts, err)
	}
	want("after a start, again", c, 5, last, "")
}

// TestPurged checks that batches count after those before them were purged.
func TestPurged(t *testing.T) {
	stream, publish := journalStream(t)
	s := &Streams{journalKey: newKey(t), names: engine.Names{Tenant: "acme", Node: "north"}}
	s.shared.Store(&Shared{journal: stream})
	for n := range uint64(3) {
		publish(sealBatch(s.journalKey, batch{journalSubject, n + 1, n + 1, []byte("x\n")}, n))
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(2)); err != nil {
		t.Fatal(err)
	}
	var read []string
	err := s.Journals().Read(t.Context(), ferrule.JournalQuery{Forged: true}, func(l ferrule.JournalLines) error {
		read = append(read, fmt.Sprint(l.First, l.Forgery))
		return nil
	})
	if want := "[2 3]"; err != nil || fmt.Sprint(read) != want {
		t.Errorf("read %v, want %s: %v", read, want, err)
	}
}

// TestLostBatch checks that a batch that the server has lost is copied again.
func TestLostBatch(t *testing.T) {
	stream, publish := journalStream(t)
	key := newKey(t)
	c := &journalCopy{stream: stream, key: key, subject: journalSubject, journal: anyJournal{}}
	var batches []uint64
	for n := range uint64(2) {
		batches = append(batches, publish(sealBatch(key, batch{journalSubject, n + 1, n + 1, []byte("x\n")}, n)))
		if after, _, err := c.position(t.Context()); err != nil || after != n+1 {
			t.Fatalf("the position is %d: %v", after, err)
		}
	}
	for i, want := range []uint64{1, 0} {
		if err := stream.DeleteMsg(t.Context(), batches[1-i]); err != nil {
			t.Fatal(err)
		}
		c.stale = true // the server refuses what follows the lost one
		if after, seq, err := c.position(t.Context()); err != nil || after != want || seq != want {
			t.Errorf("the position is %d after message %d, want %d: %v", after, seq, want, err)
		}
	}
}

// FuzzBatch checks that a batch is read only as it was sealed.
func FuzzBatch(f *testing.F) {
	key := newKey(f)
	f.Add(journalSubject, "1", "3", "0", []byte("x\n"), true)
	f.Add(journalSubject, "1", "3", "", []byte("x\n"), false)
	f.Add("ferrule.acme", "-1", "18446744073709551616", "+7", sealBatch(key, batch{journalSubject, 1, 3, []byte("x\n")}, 0).Data, false)
	f.Fuzz(func(t *testing.T, subject, first, last, after string, data []byte, sealed bool) {
		header := nats.Header{firstHeader: {first}, lastHeader: {last}, afterHeader: {after}}
		if sealed {
			var from, to, before uint64
			fmt.Sscan(first, &from)
			fmt.Sscan(last, &to)
			fmt.Sscan(after, &before)
			msg := sealBatch(key, batch{subject, from, to, data}, before)
			header, data = msg.Header, msg.Data
		}
		b, err := openBatch(key, subject, header, data)
		if err != nil {
			if sealed {
				t.Error(err)
			}
			return
		}
		if again := sealBatch(key, batch{subject, b.First, b.Last, b.Lines}, b.after); string(again.Data) != string(data) {
			t.Errorf("%q was read as %+v", data, b)
		}
		lastHash(b.Lines)
	})
}
