package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/ops/audit"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// copies is the copies of nodes' journals: real files, read as they grow.
type copies struct {
	dirs   map[string]string // by node
	forged []ferrule.JournalLines
	err    error // returned after all was read

	mu    sync.Mutex
	asked []ferrule.JournalQuery
}

// Read implements control.Journals.
func (c *copies) Read(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error {
	c.mu.Lock()
	c.asked = append(c.asked, q)
	c.mu.Unlock()
	for _, l := range c.forged {
		if !q.Forged {
			break
		}
		if err := fn(l); err != nil {
			return err
		}
	}
	var one sync.Mutex
	var wg sync.WaitGroup
	for _, node := range slices.Sorted(maps.Keys(c.dirs)) {
		if q.Node != "" && q.Node != node {
			continue
		}
		r, err := journal.OpenReader(c.dirs[node])
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer r.Close()
			r.Read(ctx, q.Follow, func(l ferrule.JournalLines) error {
				one.Lock()
				defer one.Unlock()
				l.Node = node
				return fn(l)
			})
		})
	}
	wg.Wait()
	return c.err
}

func (c *copies) queries() []ferrule.JournalQuery {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked)
}

// audited is a command line, and the copies of journals that its gateway serves.
type audited struct {
	commandLine
	data string
	*copies
	stop func() // ends the gateway
}

// newAudited serves empty copies of the journals of nodes.
func newAudited(t *testing.T, nodes ...string) *audited {
	t.Helper()
	c := &audited{commandLine: newCommandLine(t), data: os.Getenv("FERRULE_DATA"), copies: &copies{dirs: make(map[string]string)}}
	if err := os.MkdirAll(c.data, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		c.dirs[node] = t.TempDir()
	}
	c.stop = serveControl(t, c.data, c.copies)
	return c
}

// serveControl serves the journals on the control socket of a data directory.
func serveControl(t *testing.T, data string, journals control.Journals) (stop func()) {
	t.Helper()
	socket, err := control.SocketPath(data)
	if err != nil {
		t.Fatal(err)
	}
	server, err := control.Listen(socket, control.Parts{Journals: journals, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// happened returns a record of a call some minutes after noon.
func happened(minute int, call string) ferrule.Entry {
	return ferrule.Entry{
		Time: noon.Add(time.Duration(minute) * time.Minute), Call: call, Phase: ferrule.Outcome,
		Principal: ferrule.Principal{Role: ferrule.Agent, Name: "claude"}, Device: "robot", Tool: "move",
	}
}

// appendTo appends to the journal in a directory.
func appendTo(t *testing.T, dir string, entries ...ferrule.Entry) {
	t.Helper()
	j, err := journal.Open(dir, journal.DefaultConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := j.Append(e, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// copyJournal copies a journal, or the first lines of it.
func copyJournal(t *testing.T, from, to string, lines int) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(from, journal.FileName))
	if err != nil {
		t.Fatal(err)
	}
	all := bytes.SplitAfter(data, []byte("\n"))
	part := bytes.Join(all[:min(lines, len(all))], nil)
	path := filepath.Join(to, journal.FileName)
	has, _ := os.ReadFile(path)
	if !bytes.HasPrefix(part, has) {
		writeJournal(t, to, [][]byte{part})
		return
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) // a reader may be following
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(part[len(has):]); err != nil {
		t.Fatal(err)
	}
}

func writeJournal(t *testing.T, dir string, lines [][]byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, journal.FileName), bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
}

// calls runs `ferrule audit --json`, and returns "node call" of each record.
func (c *audited) calls(args ...string) []string {
	c.t.Helper()
	var out, errs strings.Builder
	if code := run(c.t.Context(), append([]string{"audit", "--json", "--all"}, args...), &out, &errs); code != 0 {
		c.t.Errorf("audit %q: %d, %s", args, code, errs.String())
	}
	return callsIn(c.t, out.String())
}

func callsIn(t *testing.T, out string) (calls []string) {
	t.Helper()
	for line := range strings.Lines(out) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil || len(r.Chain) != 16 || r.Seq == 0 {
			t.Errorf("%s: %v", line, err)
		}
		calls = append(calls, strings.TrimSpace(r.Node+" "+r.Call))
	}
	return calls
}

func (c *audited) wantCalls(want string, args ...string) {
	c.t.Helper()
	if got := strings.Join(c.calls(args...), ", "); got != want {
		c.t.Errorf("audit %q shows %s; want %s", args, got, want)
	}
}

// TestAuditNodes checks that the records of all nodes are shown in order of time,
// including records of this node that were not copied yet.
func TestAuditNodes(t *testing.T) {
	c := newAudited(t, "a", "b", "c")
	appendTo(t, c.data, happened(1, "a1"), happened(4, "a4"), happened(7, "a7"))
	copyJournal(t, c.data, c.dirs["a"], 2)
	appendTo(t, c.dirs["b"], happened(2, "b2"), happened(5, "b5"))
	// The clock of c was set back; its chain keeps its order.
	appendTo(t, c.dirs["c"], happened(0, "c0"), happened(6, "c6"), happened(3, "c3"))
	c.wantCalls("c c0, a a1, b b2, a a4, b b5, c c6, c c3, a a7")
	c.wantCalls("c c6, c c3, a a7", "--last", "3")
	c.wantCalls("b b2, b b5", "--node", "b")
	c.wantCalls("a a1, a a4, a a7", "--node", "a")
	c.wantCalls("a1, a4, a7", "--local")
	c.wantCalls("a a4, b b5, c c6, a a7", "--since", "2026-01-31T12:04:00Z")
	for _, q := range c.queries() {
		if !q.Since.IsZero() && !q.Since.Equal(noon.Add(4*time.Minute-journal.ClockSkew)) || q.Follow {
			t.Errorf("asked for %+v", q)
		}
	}
	_, text := c.run("audit", "--all")
	lines := strings.Split(text, "\n")
	if !strings.HasPrefix(lines[0], "NODE  TIME ") || !strings.HasPrefix(lines[1], "c     2026-01-31 ") || !strings.HasPrefix(lines[2], "a     2026-01-31 ") || !strings.HasSuffix(lines[2], " ok") {
		t.Errorf("got\n%s", text)
	}
	if _, text := c.run("audit", "--all", "--node", "b"); !strings.HasPrefix(text, "TIME ") {
		t.Errorf("one node has a column of its own:\n%s", text)
	}
	c.want(0, `no records of node "d"`, "audit", "--node", "d")
	// Two nodes may have the same chain: the node name decides.
	copyJournal(t, c.data, c.dirs["c"], 3)
	if err := os.WriteFile(filepath.Join(c.data, datadir.NodeFile), []byte("a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.wantCalls("a a1, a a4, a a7", "--node", "a")
	c.wantCalls("c a1, c a4, c a7", "--node", "c")
	c.wantCalls("a a1, a a4, a a7", "--local")
}

// TestAuditFallsBack checks that the file is read if there are no other nodes, and that
// a missing gateway is reported if there are.
func TestAuditFallsBack(t *testing.T) {
	c := &audited{commandLine: newCommandLine(t), data: os.Getenv("FERRULE_DATA")}
	c.want(1, "no journal in ", "audit")
	if err := os.Mkdir(c.data, 0o700); err != nil {
		t.Fatal(err)
	}
	appendTo(t, c.data, happened(1, "a1"))
	quiet := func(args ...string) {
		t.Helper()
		if code, text := c.run(args...); code != 0 || strings.Contains(text, "gateway") {
			t.Errorf("%q: %d, %s", args, code, text)
		}
	}
	quiet("audit")
	quiet("audit", "verify")
	c.want(exitNoGateway, "no gateway is running for ", "audit", "--node", "b")
	if err := os.WriteFile(filepath.Join(c.data, datadir.NodeFile), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.want(0, "only this node's journal: the gateway is not running\n", "audit")
	c.want(0, "only this node's journal: the gateway is not running\n", "audit", "verify")
	quiet("audit", "--local")
	quiet("audit", "verify", "--local")
	serveControl(t, c.data, nil)
	quiet("audit")
	quiet("audit", "verify")
	c.want(exitUsage, "this gateway is not part of a cluster; leave out --node", "audit", "--node", "b")
}

// TestAuditCannotRead checks that copies that cannot be read are an error.
func TestAuditCannotRead(t *testing.T) {
	c := newAudited(t, "a")
	appendTo(t, c.data, happened(1, "a1"))
	copyJournal(t, c.data, c.dirs["a"], 1)
	c.err = ferrule.Errorf(ferrule.Offline, "the stream has no leader")
	c.want(exitNotReached, "the stream has no leader\n  add --local to show only this node's journal", "audit")
	c.want(exitNotReached, "the stream has no leader", "audit", "verify")
}

// TestAuditDamage checks that a damaged line is reported and does not hide other
// records.
func TestAuditDamage(t *testing.T) {
	c := &audited{commandLine: newCommandLine(t), data: os.Getenv("FERRULE_DATA")}
	if err := os.Mkdir(c.data, 0o700); err != nil {
		t.Fatal(err)
	}
	appendTo(t, c.data, happened(1, "a1"), happened(2, "a2"), happened(3, "a3"))
	data, err := os.ReadFile(filepath.Join(c.data, journal.FileName))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	lines[1] = []byte("rubbish\n")
	writeJournal(t, c.data, lines)
	code, text := c.run("audit", "--all")
	if code != 1 || strings.Count(text, "  move ") != 2 || !strings.Contains(text, "1 damaged lines, the first is one of records 1 to 3 of chain ") {
		t.Errorf("%d, %s", code, text)
	}
}

// follower runs `ferrule audit --follow`.
type follower struct {
	t     *testing.T
	lines chan string
	end   func()
}

func (c *audited) follow(args ...string) *follower {
	c.t.Helper()
	f := &follower{t: c.t, lines: make(chan string, 1000)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, append([]string{"audit", "--json", "--all", "--follow"}, args...), f, c.t.Output())
	}()
	f.end = sync.OnceFunc(func() {
		cancel()
		select {
		case code := <-ended:
			if code != 0 {
				c.t.Errorf("interrupting it exits with %d", code)
			}
		case <-time.After(wait.Ample):
			c.t.Error("it does not end")
		}
	})
	c.t.Cleanup(f.end)
	return f
}

func (f *follower) Write(p []byte) (int, error) {
	f.lines <- string(p)
	return len(p), nil
}

// sees checks that the next lines are these calls, in any order.
func (f *follower) sees(want ...string) {
	f.t.Helper()
	var got []string
	for range want {
		select {
		case line := <-f.lines:
			got = append(got, callsIn(f.t, line)...)
		case <-time.After(wait.Ample):
			f.t.Fatalf("saw %q; want %q", got, want)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		f.t.Errorf("saw %q; want %q", got, want)
	}
}

// TestAuditFollow checks that new records are shown once, of all nodes and of the file
// alone, and that an interrupt is not an error.
func TestAuditFollow(t *testing.T) {
	c := newAudited(t, "a", "b")
	appendTo(t, c.data, happened(1, "a1"), happened(3, "a3"))
	copyJournal(t, c.data, c.dirs["a"], 1)
	appendTo(t, c.dirs["b"], happened(2, "b2"))
	all, newest, robot, local := c.follow(), c.follow("--last", "1"), c.follow("--device", "robot", "--node", "b"), c.follow("--local", "--last", "1")
	all.sees("a a1", "b b2", "a a3")
	newest.sees("a a3")
	robot.sees("b b2")
	local.sees("a3")
	other := happened(4, "b4")
	other.Device = "lamp"
	appendTo(t, c.dirs["b"], other, happened(0, "b0"))
	copyJournal(t, c.data, c.dirs["a"], 2) // a record that was shown is copied later
	all.sees("b b4", "b b0")
	newest.sees("b b4", "b b0")
	robot.sees("b b0")
	appendTo(t, c.data, happened(5, "a5"))
	copyJournal(t, c.data, c.dirs["a"], 3)
	all.sees("a a5")
	newest.sees("a a5")
	local.sees("a5")
	// The journal is moved away and a new one starts.
	if err := os.Rename(filepath.Join(c.data, journal.FileName), filepath.Join(c.data, "old")); err != nil {
		t.Fatal(err)
	}
	appendTo(t, c.data, happened(6, "a6"))
	local.sees("", "a6") // the new journal names the old one
	for _, f := range []*follower{all, newest, robot, local} {
		f.end()
		if len(f.lines) > 0 {
			t.Errorf("it shows %s as well", <-f.lines)
		}
	}
	for _, q := range c.queries() {
		if q.Follow && time.Since(q.Since) > 2*journal.ClockSkew {
			t.Errorf("what comes is asked for with %+v", q)
		}
	}
}

// TestAuditInterrupted checks that an interrupt is an error only if records are missing, and
// that the end of the gateway is an error.
func TestAuditInterrupted(t *testing.T) {
	c := newAudited(t, "a")
	appendTo(t, c.data, happened(1, "a1"))
	copyJournal(t, c.data, c.dirs["a"], 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, where := range []string{"--local=false", "--local"} {
		var out strings.Builder
		if code := run(ctx, []string{"audit", where}, &out, &out); code != exitOther || !strings.Contains(out.String(), "interrupted before all records were read") {
			t.Errorf("%s: an interrupted audit exits with %d: %s", where, code, out.String())
		}
		out.Reset()
		if code := run(ctx, []string{"audit", where, "--follow"}, &out, &out); code != 0 {
			t.Errorf("%s: an interrupted one that follows exits with %d: %s", where, code, out.String())
		}
	}
	go func() {
		wait.For(t, "it follows", func() bool { q := c.queries(); return len(q) > 0 && q[len(q)-1].Follow })
		c.stop()
	}()
	c.want(exitOther, "connection to the gateway lost", "audit", "--follow")
}

// TestAuditVerify checks that damage in any chain is found, and that the file is compared
// with its copy.
func TestAuditVerify(t *testing.T) {
	for name, test := range map[string]struct {
		harm func(file, copyOfA, b [][]byte) (newFile, newCopyOfA, newB [][]byte)
		want []string // in the output; nil if the journal is intact
	}{
		"nothing":       {func(f, a, b [][]byte) (_, _, _ [][]byte) { return f, a, b }, nil},
		"the copy lags": {func(f, a, b [][]byte) (_, _, _ [][]byte) { return f, a[:3], b }, nil},
		"the end of the file is cut off": {
			func(f, a, b [][]byte) (_, _, _ [][]byte) { return f[:4], a, b },
			[]string{"local file: the end was cut off: the copy continues to record 6", `"record":5,"to":6`},
		},
		"the file goes on otherwise": {
			func(f, a, b [][]byte) (_, _, _ [][]byte) { return nil, a, b }, // see below
			[]string{"local file: record 6 differs from the copy"},
		},
		"the file is altered": {
			func(f, a, b [][]byte) (_, _, _ [][]byte) {
				f[2] = bytes.Replace(f[2], []byte("robot"), []byte("rabot"), 1)
				return f, a, b
			},
			[]string{"local file, line 3: record 3 "},
		},
		"a copy is altered": {
			func(f, a, b [][]byte) (_, _, _ [][]byte) {
				b[1] = bytes.Replace(b[1], []byte("robot"), []byte("rabot"), 1)
				return f, a, b
			},
			[]string{"copy of ", " of node b: record 2 "},
		},
		"a copy has a gap, and something twice": {
			func(f, a, b [][]byte) (_, _, _ [][]byte) { return f, a, slices.Concat(b[:1], b[2:4], b[2:]) },
			[]string{": record 2 is missing", ": records 3 to 4 appear twice"},
		},
		"a copy is out of order": {
			func(f, a, b [][]byte) (_, _, _ [][]byte) { b[3], b[4] = b[4], b[3]; return f, a, b },
			[]string{": record 4 comes after record 5"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newAudited(t, "a", "b")
			var entries []ferrule.Entry
			for i := range 6 {
				entries = append(entries, happened(i, strconv.Itoa(i)))
			}
			lines := func(call string) [][]byte {
				dir := t.TempDir()
				entries[0].Call = call
				appendTo(t, dir, entries...)
				data, err := os.ReadFile(filepath.Join(dir, journal.FileName))
				if err != nil {
					t.Fatal(err)
				}
				return bytes.SplitAfter(data, []byte("\n"))
			}
			file := lines("of a")
			file, copyOfA, b := test.harm(slices.Clone(file), slices.Clone(file), lines("of b"))
			writeJournal(t, c.dirs["a"], copyOfA)
			writeJournal(t, c.dirs["b"], b)
			if file == nil {
				writeJournal(t, c.data, copyOfA[:5])
				appendTo(t, c.data, happened(9, "otherwise"), happened(9, "and on"))
			} else {
				writeJournal(t, c.data, file)
			}
			code, text := c.run("audit", "verify")
			jsonCode, out := c.run("audit", "verify", "--json")
			intact := len(test.want) == 0
			if intact != (code == 0) || !intact && code != 1 || code != jsonCode {
				t.Errorf("exit codes %d and %d:\n%s", code, jsonCode, text)
			}
			for _, want := range test.want {
				if !strings.Contains(text, want) && !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s%s", want, text, out)
				}
			}
			if !intact && (!strings.Contains(text, "the journal is damaged: ") || !strings.Contains(text, "\nDAMAGED: ") || strings.Contains(text, "Intact")) {
				t.Errorf("got\n%s", text)
			}
			if intact && !strings.Contains(text, "\nIntact: 3 journals or segments.\n") {
				t.Errorf("no verdict in\n%s", text)
			}
			if name == "the copy lags" && !strings.Contains(text, "intact, 3 not copied yet") {
				t.Errorf("got\n%s", text)
			}
			var v audit.Verification
			first, _, _ := strings.Cut(out, "\n")
			if err := json.Unmarshal([]byte(first), &v); err != nil || len(v.Chains) != 3 || v.Wrong > 0 == intact {
				t.Errorf("%s: %+v, %v", out, v, err)
			}
			for i, node := range []string{"a", "b", "a"} {
				if v.Chains[i].Node != node || v.Chains[i].Copy == (i == 2) || len(v.Chains[i].Chain) != 16 {
					t.Errorf("chain %d is %+v", i, v.Chains[i])
				}
			}
		})
	}
}

// TestAuditVerifyUncopied checks a journal without a copy, and a missing journal.
func TestAuditVerifyUncopied(t *testing.T) {
	c := newAudited(t, "b")
	appendTo(t, c.dirs["b"], happened(1, "b1"))
	c.want(1, "no journal in ", "audit", "verify")
	c.want(1, "b     copy ", "audit", "verify")
	appendTo(t, c.data, happened(1, "a1"), happened(2, "a2"))
	c.want(0, "intact, 2 not copied yet", "audit", "verify")
}

// TestAuditVerifyForged checks that messages that no node wrote are named, up to a limit, and
// that they do not hide a damaged journal.
func TestAuditVerifyForged(t *testing.T) {
	c := newAudited(t, "b")
	appendTo(t, c.dirs["b"], happened(1, "b1"), happened(2, "b2"))
	appendTo(t, c.data, happened(1, "a1"))
	const chain = "0123456789abcdef"
	c.forged = []ferrule.JournalLines{{Node: "ghost", Chain: chain, Forgery: ferrule.Unsealed, Message: 7}}
	const one = "copy of 0123456789abcdef of node ghost: message 7 of the stream is not sealed with the secret of the tenant\n"
	c.want(1, one, "audit", "verify")
	c.want(1, "Intact: 2 journals or segments.\nFORGED: 1 message among the copies was not written by a node. It is not counted above.\n", "audit", "verify")
	c.want(1, "messages among the copies that no node wrote: 1", "audit", "verify")
	c.want(1, `"forged":[{"node":"ghost","chain":"0123456789abcdef","what":"unsealed","messages":1,"first":7,"last":7}]`, "audit", "verify", "--json")
	c.want(0, "Intact: 1 record.\n", "audit", "verify", "--local")
	for n := range uint64(3) {
		c.forged = append(c.forged, ferrule.JournalLines{Node: "b", Chain: chain, Forgery: ferrule.Replayed, Message: 8 + n})
	}
	c.want(1, one, "audit", "verify")
	c.want(1, "copy of 0123456789abcdef of node b: 3 messages, from 8 to 10 of the stream, are forged: a replay of what a node wrote\n", "audit", "verify")
	if _, text := c.run("audit"); strings.Contains(text, "ghost") || strings.Contains(text, "damaged") {
		t.Errorf("forged messages are shown:\n%s", text)
	}
	for n := range uint64(200) {
		c.forged = append(c.forged, ferrule.JournalLines{Node: strconv.FormatUint(n, 10), Chain: chain, Forgery: ferrule.Unsealed, Message: 20 + n})
	}
	c.want(1, "and 102 more forged messages\n", "audit", "verify")
	c.want(1, "FORGED: 204 messages among the copies were not written by a node. They are not counted above.\n", "audit", "verify")
	data, err := os.ReadFile(filepath.Join(c.dirs["b"], journal.FileName))
	if err != nil {
		t.Fatal(err)
	}
	writeJournal(t, c.dirs["b"], [][]byte{bytes.Replace(data, []byte("robot"), []byte("rabot"), 1)})
	c.want(1, "\nDAMAGED: ", "audit", "verify")
	c.want(1, "\nFORGED: 204 ", "audit", "verify")
	c.want(1, "the journal is damaged: ", "audit", "verify")
}

// TestAuditVerdict checks the verdict on a signed journal, on one that was rewritten with new
// hashes, on one whose end was cut off, and on single segments, with a key that is kept
// elsewhere.
func TestAuditVerdict(t *testing.T) {
	c := &audited{commandLine: newCommandLine(t), data: os.Getenv("FERRULE_DATA")}
	if err := os.Mkdir(c.data, 0o700); err != nil {
		t.Fatal(err)
	}
	c.want(1, "no key in "+c.data+": the gateway creates it when it starts", "audit", "key")
	for i := range 5 {
		appendTo(t, c.data, happened(i, strconv.Itoa(i)))
	}
	_, key := c.run("audit", "key")
	elsewhere := filepath.Join(t.TempDir(), "node.pub")
	if err := os.WriteFile(elsewhere, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	c.want(0, "Intact: 5 records.\nSigned up to record 5 at ", "audit", "verify")
	c.want(0, ", with the key in the data directory. Add --key to compare with a key that you keep elsewhere.\n", "audit", "verify")
	for _, given := range []string{strings.TrimSpace(key), elsewhere} {
		if code, text := c.run("audit", "verify", "--key", given); code != 0 || !strings.HasPrefix(text, "Intact: 5 records.\nSigned up to record 5 at ") || strings.Contains(text, "elsewhere") {
			t.Errorf("with %s: %d, %s", given, code, text)
		}
	}
	c.want(1, "--key: must be a public key such as ed25519:", "audit", "verify", "--key", "nonsense")
	c.want(1, "journal.head is signed with another key", "audit", "verify", "--key", "ed25519:"+strings.Repeat("A", 43)+"=")

	path := filepath.Join(c.data, journal.FileName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	writeJournal(t, c.data, lines[:3])
	c.want(1, "the end was cut off: record 5 was signed at ", "audit", "verify", "--key", elsewhere)
	c.want(1, "DAMAGED: 1 finding.\n", "audit", "verify", "--key", elsewhere)
	// Somebody writes other records, with correct hashes, and a key of their own.
	if err := errors.Join(os.Remove(path), os.Remove(filepath.Join(c.data, journal.HeadFile)), os.Remove(filepath.Join(c.data, journal.KeyFile))); err != nil {
		t.Fatal(err)
	}
	appendTo(t, c.data, happened(0, "another"))
	c.want(0, "Intact: 1 record.\n", "audit", "verify")
	c.want(1, "journal.head is signed with another key", "audit", "verify", "--key", elsewhere)
}

// TestAuditExport checks that sealed segments are copied to an archive once, verified there,
// and removed on request.
func TestAuditExport(t *testing.T) {
	c := &audited{commandLine: newCommandLine(t), data: os.Getenv("FERRULE_DATA")}
	if err := os.Mkdir(c.data, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		cfg := journal.DefaultConfig()
		cfg.SegmentSize = 1000
		j, err := journal.Open(c.data, cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			j.Append(happened(i, strconv.Itoa(i)), true)
			if i%10 == 9 {
				time.Sleep(2 * time.Minute)
				synctest.Wait()
			}
		}
		j.Close()
	})
	archive := filepath.Join(t.TempDir(), "archive")
	c.want(0, ": records 1 to ", "audit", "export", archive)
	all, _ := filepath.Glob(filepath.Join(archive, "*.log"))
	if len(all) != 4 {
		t.Fatalf("exported %q", all)
	}
	_, key := c.run("audit", "key")
	verify := append([]string{"audit", "verify", "--key", strings.TrimSpace(key)}, all...)
	c.want(0, "Intact: 4 journals or segments.\n", verify...)
	c.want(0, "Signed up to record ", verify...)
	c.want(0, `"old":true,"removed":true`, "audit", "export", archive, "--remove", "--json")
	if left, _ := filepath.Glob(filepath.Join(c.data, journal.SegmentDir, "*")); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
	c.want(0, ", beginning with record 48", "audit", "verify", "--key", strings.TrimSpace(key))
	c.want(0, "no sealed segments yet", "audit", "export", archive)
	data, err := os.ReadFile(all[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(all[1], bytes.Replace(data, []byte("robot"), []byte("rabot"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	c.want(1, all[1]+", line 2: record ", verify...)
	c.want(1, "DAMAGED: 1 finding.\n", verify...)
}
