package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// copies is the copies of nodes' journals: real files, read as they grow.
type copies struct {
	dirs map[string]string // by node
	err  error             // what reading fails with, in the end

	mu    sync.Mutex
	asked []ferrule.JournalQuery
}

// Read implements control.Journals.
func (c *copies) Read(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error {
	c.mu.Lock()
	c.asked = append(c.asked, q)
	c.mu.Unlock()
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

// audited is a person at a node, and what the gateway there knows of all nodes.
type audited struct {
	commandLine
	data string
	*copies
	stop func() // ends the gateway
}

// audit serves copies of the journals of nodes. Nobody has written them yet.
func audit(t *testing.T, nodes ...string) *audited {
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

// serveControl serves the control socket of a data directory, as far as journals go.
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

// happened is what a test has recorded: so many minutes after noon.
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
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) // somebody may be following
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
	if code := run(c.t.Context(), append([]string{"audit", "--json"}, args...), &out, &errs); code != 0 {
		c.t.Errorf("audit %q: %d, %s", args, code, errs.String())
	}
	return callsIn(c.t, out.String())
}

func callsIn(t *testing.T, out string) (calls []string) {
	t.Helper()
	for line := range strings.Lines(out) {
		var r record
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

// TestAuditNodes: records of all nodes are shown in order of time, with their node;
// those of this node that were not copied yet are, too.
func TestAuditNodes(t *testing.T) {
	c := audit(t, "a", "b", "c")
	appendTo(t, c.data, happened(1, "a1"), happened(4, "a4"), happened(7, "a7"))
	copyJournal(t, c.data, c.dirs["a"], 2)
	appendTo(t, c.dirs["b"], happened(2, "b2"), happened(5, "b5"))
	// The clock of c is set back: it stays in order by itself.
	appendTo(t, c.dirs["c"], happened(0, "c0"), happened(6, "c6"), happened(3, "c3"))
	c.wantCalls("c c0, a a1, b b2, a a4, b b5, c c6, c c3, a a7")
	c.wantCalls("c c6, c c3, a a7", "--last", "3")
	c.wantCalls("b b2, b b5", "--node", "b")
	c.wantCalls("a a1, a a4, a a7", "--node", "a")
	c.wantCalls("a1, a4, a7", "--local")
	c.wantCalls("a a4, b b5, c c6, a a7", "--since", "2026-01-31T12:04:00Z")
	for _, q := range c.queries() {
		if !q.Since.IsZero() && !q.Since.Equal(noon.Add(4*time.Minute-skew)) || q.Follow {
			t.Errorf("asked for %+v", q)
		}
	}
	_, text := c.run("audit")
	lines := strings.Split(text, "\n")
	if !strings.HasPrefix(lines[0], "c             1  ") || !strings.HasPrefix(lines[1], "a             1  ") || !strings.Contains(lines[1], " ok ") {
		t.Errorf("got\n%s", text)
	}
	if _, text := c.run("audit", "--node", "b"); !strings.HasPrefix(text, "     1  ") {
		t.Errorf("one node has a column of its own:\n%s", text)
	}
	c.want(0, `there are no records of a node "d"`, "audit", "--node", "d")
	// A node that says its name is not taken for another with the same beginning.
	copyJournal(t, c.data, c.dirs["c"], 3)
	if err := os.WriteFile(filepath.Join(c.data, nodeFile), []byte("a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.wantCalls("a a1, a a4, a a7", "--node", "a")
	c.wantCalls("c a1, c a4, c a7", "--node", "c")
	c.wantCalls("a a1, a a4, a a7", "--local")
}

// TestAuditFallsBack: without other nodes the file is read; who expects others is
// told, or gets no answer that looks like one.
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
	if err := os.WriteFile(filepath.Join(c.data, nodeFile), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.want(0, "only this node's journal: the gateway is not running\n", "audit")
	c.want(0, "only this node's journal: the gateway is not running\n", "audit", "verify")
	quiet("audit", "--local")
	quiet("audit", "verify", "--local")
	serveControl(t, c.data, nil)
	quiet("audit")
	quiet("audit", "verify")
	c.want(exitUsage, "this gateway stands alone and has no other nodes; leave out --node", "audit", "--node", "b")
}

// TestAuditCannotRead: copies that cannot be read are not passed over in silence.
func TestAuditCannotRead(t *testing.T) {
	c := audit(t, "a")
	appendTo(t, c.data, happened(1, "a1"))
	copyJournal(t, c.data, c.dirs["a"], 1)
	c.err = ferrule.Errorf(ferrule.Offline, "the stream has no leader")
	c.want(exitNotReached, "the stream has no leader\n  --local shows this node's journal alone", "audit")
	c.want(exitNotReached, "the stream has no leader", "audit", "verify")
}

// TestAuditDamage: a line that is no record hides no other, and is told of.
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
	code, text := c.run("audit")
	if code != 1 || strings.Count(text, "robot move") != 2 || !strings.Contains(text, "1 lines are damaged, and first one of records 1 to 3 of chain ") {
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
	go func() { ended <- run(ctx, append([]string{"audit", "--json", "--follow"}, args...), f, c.t.Output()) }()
	f.end = sync.OnceFunc(func() {
		cancel()
		select {
		case code := <-ended:
			if code != 0 {
				c.t.Errorf("interrupting it exits with %d", code)
			}
		case <-time.After(10 * time.Second):
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

// sees wants the next lines to be of these calls, in any order.
func (f *follower) sees(want ...string) {
	f.t.Helper()
	var got []string
	for range want {
		select {
		case line := <-f.lines:
			got = append(got, callsIn(f.t, line)...)
		case <-time.After(20 * time.Second):
			f.t.Fatalf("saw %q; want %q", got, want)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		f.t.Errorf("saw %q; want %q", got, want)
	}
}

// TestAuditFollow: what comes is shown once, of all nodes and of the file alone; an
// interrupt is no error.
func TestAuditFollow(t *testing.T) {
	c := audit(t, "a", "b")
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
	copyJournal(t, c.data, c.dirs["a"], 2) // what was shown already comes to be copied
	all.sees("b b4", "b b0")
	newest.sees("b b4", "b b0")
	robot.sees("b b0")
	appendTo(t, c.data, happened(5, "a5"))
	copyJournal(t, c.data, c.dirs["a"], 3)
	all.sees("a a5")
	newest.sees("a a5")
	local.sees("a5")
	// The journal is moved away, and another begins.
	if err := os.Rename(filepath.Join(c.data, journal.FileName), filepath.Join(c.data, "old")); err != nil {
		t.Fatal(err)
	}
	appendTo(t, c.data, happened(6, "a6"))
	local.sees("a6")
	for _, f := range []*follower{all, newest, robot, local} {
		f.end()
		if len(f.lines) > 0 {
			t.Errorf("it shows %s as well", <-f.lines)
		}
	}
	for _, q := range c.queries() {
		if q.Follow && time.Since(q.Since) > 2*skew {
			t.Errorf("what comes is asked for with %+v", q)
		}
	}
}

// TestAuditEnds: an interrupt ends a reading, which is an error only if there was
// more to be shown; so is it that the gateway goes away.
func TestAuditEnds(t *testing.T) {
	c := audit(t, "a")
	appendTo(t, c.data, happened(1, "a1"))
	copyJournal(t, c.data, c.dirs["a"], 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, where := range []string{"--local=false", "--local"} {
		var out strings.Builder
		if code := run(ctx, []string{"audit", where}, &out, &out); code != exitOther || !strings.Contains(out.String(), "interrupted; not all was read") {
			t.Errorf("%s: an interrupted audit exits with %d: %s", where, code, out.String())
		}
		out.Reset()
		if code := run(ctx, []string{"audit", where, "--follow"}, &out, &out); code != 0 {
			t.Errorf("%s: an interrupted one that follows exits with %d: %s", where, code, out.String())
		}
	}
	go func() {
		eventually(t, ample, "it follows", func() bool { q := c.queries(); return len(q) > 0 && q[len(q)-1].Follow })
		c.stop()
	}()
	c.want(exitOther, "connection to the gateway lost", "audit", "--follow")
}

// TestAuditVerify: every chain is checked, and this node's file against its copy.
func TestAuditVerify(t *testing.T) {
	for name, test := range map[string]struct {
		harm func(file, copyOfA, b [][]byte) (newFile, newCopyOfA, newB [][]byte)
		want []string // in the output; none if all is whole
	}{
		"nothing":       {func(f, a, b [][]byte) (_, _, _ [][]byte) { return f, a, b }, nil},
		"the copy lags": {func(f, a, b [][]byte) (_, _, _ [][]byte) { return f, a[:3], b }, nil},
		"the end of the file is cut off": {
			func(f, a, b [][]byte) (_, _, _ [][]byte) { return f[:4], a, b },
			[]string{"the file here: its end was cut off: the copy goes on to record 6", `"record":5,"to":6`},
		},
		"the file goes on otherwise": {
			func(f, a, b [][]byte) (_, _, _ [][]byte) { return nil, a, b }, // see below
			[]string{"the file here: record 6 is another than in the copy"},
		},
		"the file is altered": {
			func(f, a, b [][]byte) (_, _, _ [][]byte) {
				f[2] = bytes.Replace(f[2], []byte("robot"), []byte("rabot"), 1)
				return f, a, b
			},
			[]string{"the file here, line 3: record 3 or the one before it was altered"},
		},
		"a copy is altered": {
			func(f, a, b [][]byte) (_, _, _ [][]byte) {
				b[1] = bytes.Replace(b[1], []byte("robot"), []byte("rabot"), 1)
				return f, a, b
			},
			[]string{"the copy of b's ", ": record 2 or the one before it was altered"},
		},
		"a copy has a hole, and something twice": {
			func(f, a, b [][]byte) (_, _, _ [][]byte) { return f, a, slices.Concat(b[:1], b[2:4], b[2:]) },
			[]string{": record 2 is missing", ": records 3 to 4 appear twice"},
		},
		"a copy is out of order": {
			func(f, a, b [][]byte) (_, _, _ [][]byte) { b[3], b[4] = b[4], b[3]; return f, a, b },
			[]string{": record 4 comes after record 5"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := audit(t, "a", "b")
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
			whole := len(test.want) == 0
			if whole != (code == 0) || !whole && code != 1 || code != jsonCode {
				t.Errorf("exit codes %d and %d:\n%s", code, jsonCode, text)
			}
			for _, want := range test.want {
				if !strings.Contains(text, want) && !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s%s", want, text, out)
				}
			}
			if !whole && !strings.Contains(text, "the journal is not whole: findings: ") {
				t.Errorf("got\n%s", text)
			}
			if name == "the copy lags" && !strings.Contains(text, "whole; not copied yet: 3") {
				t.Errorf("got\n%s", text)
			}
			var v verification
			first, _, _ := strings.Cut(out, "\n")
			if err := json.Unmarshal([]byte(first), &v); err != nil || len(v.Chains) != 3 || v.Wrong > 0 == whole {
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

// TestAuditVerifyUncopied: a journal of which there is no copy is whole, and said to
// be without one; one that is not there is told of after the copies.
func TestAuditVerifyUncopied(t *testing.T) {
	c := audit(t, "b")
	appendTo(t, c.dirs["b"], happened(1, "b1"))
	c.want(1, "no journal in ", "audit", "verify")
	c.want(1, "b     copy ", "audit", "verify")
	appendTo(t, c.data, happened(1, "a1"), happened(2, "a2"))
	c.want(0, "whole; not copied yet: 2", "audit", "verify")
}

// TestAuditFilter: which records are meant by what is asked for.
func TestAuditFilter(t *testing.T) {
	now := time.Now()
	base := ferrule.Entry{
		Time: now.Add(-time.Hour), Phase: ferrule.Outcome, Device: "robot", Tool: "move",
		Principal: ferrule.Principal{Role: ferrule.Agent, Name: "claude"},
	}
	with := func(change func(*ferrule.Entry)) ferrule.Entry {
		e := base
		change(&e)
		return e
	}
	failed := with(func(e *ferrule.Entry) { e.Code, e.MayHaveRun = ferrule.Unanswered, true })
	denied := with(func(e *ferrule.Entry) { e.Code = ferrule.Denied })
	intent := with(func(e *ferrule.Entry) { e.Phase = ferrule.Intent })
	gap := ferrule.Entry{Time: base.Time, Phase: ferrule.JournalGap}
	look := with(func(e *ferrule.Entry) { e.Device, e.Tool = ferrule.GatewayID, "status" })
	for _, test := range []struct {
		asked asked
		e     ferrule.Entry
		want  bool
	}{
		{asked{}, base, true},
		{asked{}, gap, true},
		{asked{device: "robot"}, base, true},
		{asked{device: "lamp"}, base, false},
		{asked{tool: "move"}, base, true},
		{asked{tool: "stop"}, base, false},
		{asked{principal: "agent:claude"}, base, true},
		{asked{principal: "claude"}, base, true},
		{asked{principal: "person:claude"}, base, false},
		{asked{principal: "agent"}, base, false},
		{asked{outcome: "ok"}, base, true},
		{asked{outcome: "ok"}, denied, false},
		{asked{outcome: "ok"}, intent, false},
		{asked{outcome: "error"}, denied, true},
		{asked{outcome: "error"}, base, false},
		{asked{outcome: "denied"}, denied, true},
		{asked{outcome: "denied"}, failed, false},
		{asked{outcome: "may-have-run"}, failed, true},
		{asked{outcome: "may-have-run"}, denied, false},
		{asked{outcome: "intent"}, intent, true},
		{asked{outcome: "intent"}, base, false},
		{asked{outcome: "gap"}, gap, true},
		{asked{since: "2h"}, base, true},
		{asked{since: "30m"}, base, false},
		{asked{until: "30m"}, base, true},
		{asked{until: "2h"}, base, false},
		{asked{since: "1h"}, base, true},
		{asked{until: "1h"}, base, false},
		{asked{since: "2h", until: "30m"}, base, true},
		{asked{}, look, false},
		{asked{all: true}, look, true},
		{asked{device: "gateway"}, look, true},
		{asked{tool: "status"}, look, true},
	} {
		f, err := test.asked.filter(now)
		if err != nil || f.has(test.e) != test.want {
			t.Errorf("%+v of %+v: %t, %v", test.asked, test.e, f.has(test.e), err)
		}
	}
	for want, wrong := range map[string]asked{
		"--last: want 0 or more, got -1":                             {last: -1},
		"leave out --node, or --local":                               {local: true, node: "b"},
		"--follow goes on with what comes, which --until leaves out": {follow: true, until: "1h"},
		"--outcome: want one of ok, error, may-have-run, intent":     {outcome: "fine"},
		`--since: want 2h, 7d, 2026-01-31, "2026-01-31 15:04" or `:   {since: "yesterday"},
		`got "-2h"`: {until: "-2h"},
		"--since is not before --until: nothing lies between them": {since: "1h", until: "2h"},
	} {
		if _, err := wrong.filter(now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %s", wrong, err, want)
		}
	}
}

// TestParseTime: the times that are understood.
func TestParseTime(t *testing.T) {
	zone := time.FixedZone("here", 2*60*60)
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, zone)
	for text, want := range map[string]string{
		"2h": "2026-01-31T10:00:00+02:00", "90m": "2026-01-31T10:30:00+02:00", "1h30m": "2026-01-31T10:30:00+02:00", "0s": "2026-01-31T12:00:00+02:00",
		"7d": "2026-01-24T12:00:00+02:00", "2026-01-30": "2026-01-30T00:00:00+02:00",
		"2026-01-30 15:04": "2026-01-30T15:04:00+02:00", "2026-01-30 15:04:05": "2026-01-30T15:04:05+02:00",
		"2026-01-30T15:04": "2026-01-30T15:04:00+02:00", "2026-01-30T15:04:05": "2026-01-30T15:04:05+02:00",
		"2026-01-30T15:04:05Z": "2026-01-30T15:04:05Z", "2026-01-30T15:04:05.5+01:00": "2026-01-30T15:04:05.5+01:00",
		"": "", "d": "", "-1d": "", "99999d": "", "-2h": "", "2 h": "", "15:04": "", "2026-02-30": "", "now": "",
	} {
		got, err := parseTime(text, now)
		if want == "" {
			if err == nil {
				t.Errorf("%q is understood as %v", text, got)
			}
			continue
		}
		if wanted, _ := time.Parse(time.RFC3339Nano, want); err != nil || !got.Equal(wanted) {
			t.Errorf("%q: %v, %v; want %s", text, got, err, want)
		}
	}
}

// TestAuditActs: a record of what is no tool says what was asked for.
func TestAuditActs(t *testing.T) {
	var out strings.Builder
	a := &app{stdout: &out}
	read, used := happened(0, "a"), happened(1, "b")
	read.Operation, read.Tool = ferrule.ReadResource, "robot://log"
	for _, e := range []ferrule.Entry{read, used} {
		if err := a.printRecord(record{Entry: e}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := out.String(); !strings.Contains(got, "  robot read robot://log ") || !strings.Contains(got, "  robot move ") {
		t.Errorf("got %s", got)
	}
}

// TestOutcomes: every code can be asked for.
func TestOutcomes(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../internal/ferrule/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Code" {
			codes++
			code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil || !slices.Contains(outcomes, code) {
				t.Errorf("%s cannot be asked for", code)
			}
		}
		return true
	})
	if codes < 10 {
		t.Errorf("%d codes were seen", codes)
	}
}

// TestHold: what is held is bounded; of chains that come one after the other, as
// many records as are held are brought into order, and each chain always is.
func TestHold(t *testing.T) {
	var shown []record
	most := 0
	h := newHold(0, func(r record) error { shown = append(shown, r); return nil })
	h.most = 600 * 512
	for i := range 1000 { // two nodes whose records come within a window, in any order
		first := i/100*100 + rand.IntN(100)
		for _, node := range []string{"a", "b"} {
			h.add(record{node, node, happened(first, fmt.Sprint(i))})
		}
		most = max(most, len(h.held))
	}
	if err := h.drain(); err != nil || len(shown) != 2000 || most > 600 {
		t.Errorf("%d shown, at most %d held, %v", len(shown), most, err)
	}
	last := map[string]int{"a": -1, "b": -1}
	for _, r := range shown {
		n, _ := strconv.Atoi(r.Call)
		if n != last[r.Node]+1 {
			t.Fatalf("%s: record %d stands after %d", r.Node, n, last[r.Node])
		}
		last[r.Node] = n
	}
	shown = nil
	h.add(record{"a", "a", happened(9999, "now")})
	if len(shown) != 1 {
		t.Error("what comes is held")
	}

	shown, h = nil, newHold(3, func(r record) error { shown = append(shown, r); return nil })
	for i := range 1000 {
		h.add(record{fmt.Sprint(i % 7), "x", happened(i*389%1000, "")})
		if len(h.held) > 3 {
			t.Fatalf("%d are held", len(h.held))
		}
	}
	if h.drain(); len(shown) != 3 || len(h.held) != 0 || h.size != 0 {
		t.Errorf("%d shown", len(shown))
	}
}
