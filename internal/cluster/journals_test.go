package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// copied is what a node reads of the copies of all journals.
type copied struct {
	lines map[string][]string // by node
	last  map[string]uint64   // by node
}

// readCopies reads the copies. It returns nil while they cannot be read.
func (s *testNode) readCopies() *copied {
	c := &copied{lines: make(map[string][]string), last: make(map[string]uint64)}
	err := s.cluster.Journals().Read(s.t.Context(), ferrule.JournalQuery{}, func(l ferrule.JournalLines) error {
		c.lines[l.Node], c.last[l.Node] = append(c.lines[l.Node], slices.Collect(strings.Lines(string(l.Lines)))...), l.Last
		return nil
	})
	if err != nil {
		return nil
	}
	return c
}

// appendCall appends a record, and returns its number.
func appendCall(t *testing.T, j *journal.Journal, call string) uint64 {
	t.Helper()
	if err := j.Append(ferrule.Entry{Call: call, Phase: ferrule.Intent, Device: "robot", Tool: "move"}, true); err != nil {
		t.Fatal(err)
	}
	for after := uint64(0); ; {
		l, err := j.Lines(t.Context(), after, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if after = l.Last; strings.Contains(string(l.Lines), fmt.Sprintf("%q", call)) {
			return after
		}
	}
}

// nextLine returns a line that continues a chain of hashes. Making it needs no secret.
func nextLine(t *testing.T, after string, e ferrule.Entry) string {
	t.Helper()
	before, err := hex.DecodeString(after[:64])
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256(append(before, body...))
	return fmt.Sprintf("%x %s\n", hash, body)
}

// joinServers starts NATS servers, and returns the config of nodes that join them as a user.
func joinServers(t *testing.T) (config func(user string) Config, attacker jetstream.JetStream) {
	t.Helper()
	t.Parallel()
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	conn, err := nats.Connect(servers.URLsAs("acme"), nats.Timeout(wait.Ample), nats.CustomInboxPrefix("ferrule.acme.inbox.attacker"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if attacker, err = jetstream.New(conn, jetstream.WithDefaultTimeout(wait.Ample)); err != nil {
		t.Fatal(err)
	}
	return func(user string) Config {
		cfg := DefaultConfig()
		cfg.Mode, cfg.Tenant, cfg.Shards, cfg.Replicas, cfg.Secret = Join, "acme", 2, 1, servers.Secret
		cfg.Servers = strings.Split(servers.URLsAs(user), ",")
		return cfg
	}, attacker
}

// forge publishes on a node's subject. Headers are those of a batch of records.
func forge(t *testing.T, js jetstream.JetStream, subject string, first, last uint64, data string, headers nats.Header) {
	t.Helper()
	msg := nats.NewMsg(subject)
	msg.Data = []byte(data)
	msg.Header.Set("Ferrule-Origin", subject[strings.LastIndexByte(subject, '.')+1:])
	msg.Header.Set("Ferrule-First", fmt.Sprint(first))
	msg.Header.Set("Ferrule-Last", fmt.Sprint(last))
	for name, values := range headers {
		msg.Header[name] = values
	}
	if _, err := js.PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
}

// TestForgedCopies checks that a NATS client without the secret of the tenant cannot add to
// the copy of a journal, nor end the copying, nor cause a second upload, whether the node runs
// meanwhile or is started again.
func TestForgedCopies(t *testing.T) {
	config, attacker := joinServers(t)
	reader := node(t, "reader", config("acme-operator"))
	wait.For(t, "the streams are there", func() bool { return reader.cluster.State().Working })
	j, dir := realJournal(t, t.TempDir()), t.TempDir()
	writer := nodeWith(t, "writer", config("acme"), j, dir)
	other := realJournal(t, t.TempDir())
	nodeWith(t, "other", config("acme"), other, t.TempDir())
	appendCall(t, other, "other")

	var calls []string
	write := func() { // and wait for the copy
		t.Helper()
		calls = append(calls, fmt.Sprint("call", len(calls)))
		last := appendCall(t, j, calls[len(calls)-1])
		wait.For(t, fmt.Sprintf("record %d is copied", last), func() bool {
			c := reader.readCopies()
			return c != nil && c.last["writer"] >= last && len(c.lines["other"]) > 0
		})
		lines := reader.readCopies().lines["writer"]
		for i, line := range lines {
			_, body, _ := strings.Cut(line, " ")
			var e ferrule.Entry
			if err := json.Unmarshal([]byte(body), &e); err != nil || e.Seq != uint64(i+1) || e.Call == "forged" {
				t.Fatalf("line %d of %d is %s: %v", i+1, len(lines), line, err)
			}
		}
	}
	write()
	stream, err := reader.cluster.engine.Load().Shared.Stream(t.Context(), engine.JournalStream)
	if err != nil {
		t.Fatal(err)
	}
	subject := engine.Names{Tenant: "acme", Node: "writer"}.Journal(j.Chain())
	newest := func(subject string) *jetstream.RawStreamMsg {
		msg, err := stream.GetLastMsgForSubject(t.Context(), subject)
		if err != nil {
			t.Fatal(err)
		}
		return msg
	}
	replay := func(msg *jetstream.RawStreamMsg, subject string) {
		maps.DeleteFunc(msg.Header, func(name string, _ []string) bool { return !strings.HasPrefix(name, "Ferrule-") })
		if _, err := attacker.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: msg.Header, Data: msg.Data}); err != nil {
			t.Fatal(err)
		}
	}
	forgeries := []struct {
		name string
		do   func()
	}{
		{"a byte without headers", func() {
			if _, err := attacker.Publish(t.Context(), subject, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}},
		{"the next record", func() {
			copied := reader.readCopies()
			lines, next := copied.lines["writer"], copied.last["writer"]+1
			forge(t, attacker, subject, next, next, nextLine(t, lines[len(lines)-1], ferrule.Entry{Seq: next, Call: "forged", Phase: ferrule.Outcome}), nil)
		}},
		{"a record far ahead", func() { forge(t, attacker, subject, 1<<40, 1<<40, "x\n", nil) }},
		{"numbers that are none", func() { forge(t, attacker, subject, 0, 0, "x\n", nats.Header{"Ferrule-Last": {"many"}}) }},
		{"the newest batch again", func() { replay(newest(subject), subject) }},
		{"the first batch again", func() {
			first, err := stream.GetMsg(t.Context(), 1, jetstream.WithGetMsgSubject(subject))
			if err != nil {
				t.Fatal(err)
			}
			replay(first, subject)
		}},
		{"the batch of another node", func() {
			replay(newest(engine.Names{Tenant: "acme", Node: "other"}.Journal(other.Chain())), subject)
		}},
		{"the batch of another node, with its headers", func() {
			msg := newest(engine.Names{Tenant: "acme", Node: "other"}.Journal(other.Chain()))
			msg.Header.Set("Ferrule-Origin", j.Chain())
			replay(msg, subject)
		}},
		{"the batch as that of a node that does not exist", func() {
			replay(newest(subject), engine.Names{Tenant: "acme", Node: "ghost"}.Journal(j.Chain()))
		}},
	}
	for _, f := range forgeries {
		t.Log(f.name)
		f.do()
		write()
		f.do()
		writer.stop()
		f.do()
		writer = nodeWith(t, "writer", config("acme"), j, dir)
		write()
	}
	if c := reader.readCopies(); len(c.lines) != 2 {
		t.Errorf("nodes %v have journals", c.last)
	}
}

// TestUnsealedCopies checks that a node copies its journal again, once, after a version that
// did not seal copies.
func TestUnsealedCopies(t *testing.T) {
	config, attacker := joinServers(t)
	reader := node(t, "reader", config("acme-operator"))
	wait.For(t, "the streams are there", func() bool { return reader.cluster.State().Working })
	j, dir := realJournal(t, t.TempDir()), t.TempDir()
	for n := range 3 {
		appendCall(t, j, fmt.Sprint("call", n))
	}
	old, err := j.Lines(t.Context(), 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	forge(t, attacker, engine.Names{Tenant: "acme", Node: "writer"}.Journal(old.Chain), old.First, old.Last, string(old.Lines), nil)
	for n := range 3 {
		writer := nodeWith(t, "writer", config("acme"), j, dir)
		last := appendCall(t, j, fmt.Sprint("new", n))
		var c *copied
		wait.For(t, fmt.Sprintf("record %d is copied", last), func() bool {
			c = reader.readCopies()
			return c != nil && c.last["writer"] >= last
		})
		if got := uint64(len(c.lines["writer"])); got != c.last["writer"] {
			t.Errorf("%d lines of %d records are copied", got, c.last["writer"])
		}
		writer.stop()
	}
}
