package audit

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// testCalls returns a journal with small segments, and a CallLog that is not running.
func testCalls(t *testing.T) (*journal.Journal, *CallLog) {
	t.Helper()
	cfg := journal.DefaultConfig()
	cfg.SegmentSize = 1 << 20
	dir := t.TempDir()
	j, err := journal.Open(dir, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j, NewCallLog(CallLogParts{Data: dir, Lines: j.Lines, Warn: func(text string, err error) { t.Errorf("%s: %v", text, err) }})
}

func put(t *testing.T, j *journal.Journal, e ferrule.Entry) {
	t.Helper()
	if e.Device == "" {
		e.Device, e.Tool = "robot", "move"
	}
	if err := j.Append(e, false); err != nil {
		t.Fatal(err)
	}
}

// flush waits until all records can be read.
func flush(t *testing.T, j *journal.Journal) {
	t.Helper()
	if err := j.Append(ferrule.Entry{Call: "last", Phase: ferrule.Outcome, Device: "x"}, true); err != nil {
		t.Fatal(err)
	}
}

func names(calls []Call) (all []string) {
	for _, c := range calls {
		text := c.Record.Call + " " + string(c.Phase)
		if n := len(c.Steps); n > 0 {
			text += fmt.Sprint(" ", n)
		}
		all = append(all, text)
	}
	return all
}

func everything(*Call) bool { return true }

// forget removes the newest records from memory, so that queries read files.
func forget(log *CallLog) {
	log.load()
	log.recent, log.own, log.size = nil, 0, 0
}

// TestCallsJoined checks that records of one call become one line, whatever comes between.
func TestCallsJoined(t *testing.T) {
	j, log := testCalls(t)
	put(t, j, ferrule.Entry{Call: "a", Phase: ferrule.Intent})
	put(t, j, ferrule.Entry{Call: "b", Phase: ferrule.ApprovalStep, Message: "approval 1 of move on robot: requested"})
	put(t, j, ferrule.Entry{Call: "a", Phase: ferrule.Outcome})
	put(t, j, ferrule.Entry{Call: "b", Phase: ferrule.ApprovalStep, Message: "approval 1 of move on robot: allowed once by person:ben"})
	put(t, j, ferrule.Entry{Call: "b", Phase: ferrule.Intent})
	put(t, j, ferrule.Entry{Call: "c", Phase: ferrule.ApprovalStep, Message: "approval 2 of move on robot: requested"})
	put(t, j, ferrule.Entry{Phase: ferrule.Stopped, Message: "stopped by ben"})
	put(t, j, ferrule.Entry{Call: "d", Phase: ferrule.Outcome, Code: ferrule.Denied})
	put(t, j, ferrule.Entry{Call: "d", Phase: ferrule.ApprovalStep, Message: "approval 3 of move on robot: expired without an answer"})
	flush(t, j)
	want := []string{"last outcome", "d outcome 1", " stop", "c approval", "b intent 2", "a outcome 1"}
	forget(log)
	p, err := log.Page(t.Context(), PageQuery{Limit: 50, Match: everything})
	if err != nil || !slices.Equal(names(p.Calls), want) || p.More {
		t.Errorf("from the file: %q, more %v: %v", names(p.Calls), p.More, err)
	}
	if err := log.readNewest(); err != nil {
		t.Fatal(err)
	}
	if got := names(log.Recent(50, everything)); !slices.Equal(got, want) {
		t.Errorf("from memory: %q", got)
	}
	for _, c := range p.Calls {
		if open := c.Phase != ferrule.Outcome && c.Phase != ferrule.Stopped; c.Open() != open || c.MayHaveRun != (c.Phase == ferrule.Intent) || len(c.Hash) != 64 {
			t.Errorf("%s: open %v, may have run %v, hash %q", c.Record.Call, c.Open(), c.MayHaveRun, c.Hash)
		}
	}
	decided := log.Decisions(10, everything)
	if len(decided) != 2 || !strings.Contains(decided[0].Message, "expired") || !strings.Contains(decided[1].Message, "allowed") {
		t.Errorf("decisions %q", names(decided))
	}
}

// TestCallsPages checks that pages from any size add up to all calls once, across segments,
// with and without memory, and that a call whose outcome is on a newer page is not repeated.
func TestCallsPages(t *testing.T) {
	dir := t.TempDir()
	const n = 900
	synctest.Test(t, func(t *testing.T) {
		cfg := journal.DefaultConfig()
		cfg.SegmentSize = 50_000
		j, err := journal.Open(dir, cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			put(t, j, ferrule.Entry{Call: fmt.Sprint("c", i), Phase: ferrule.Intent})
			if i > 2 {
				put(t, j, ferrule.Entry{Call: fmt.Sprint("c", i-3), Phase: ferrule.Outcome})
			}
			if i%100 == 99 {
				time.Sleep(2 * time.Minute) // a checkpoint
				synctest.Wait()
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	})
	if files, err := journal.Segments(dir); err != nil || len(files) < 3 {
		t.Fatalf("%d segments: %v", len(files), err)
	}
	log := NewCallLog(CallLogParts{Data: dir})
	forget(log)
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint("c", i))
	}
	for _, memory := range []bool{false, true} {
		if memory {
			if err := log.readNewest(); err != nil {
				t.Fatal(err)
			}
		}
		for _, size := range []int{100, 33, 1000} {
			seen, at := make(map[string]int), Cursor{}
			for pages := 0; ; pages++ {
				p, err := log.Page(t.Context(), PageQuery{Before: at, Limit: size, Match: func(c *Call) bool { return c.Device == "robot" }})
				if err != nil || pages > 100 {
					t.Fatal(pages, err)
				}
				for _, c := range p.Calls {
					seen[c.Record.Call]++
				}
				if at = p.Next; !p.More {
					break
				}
				if again, err := ParseCursor(at.String()); err != nil || again.String() != at.String() {
					t.Fatalf("%q: %v", at, err)
				}
			}
			for _, call := range want {
				if seen[call] != 1 {
					t.Fatalf("memory %v, pages of %d: %s is listed %d times", memory, size, call, seen[call])
				}
			}
		}
	}
}

// TestCallsFollowed checks that new records arrive, and that watchers are called.
func TestCallsFollowed(t *testing.T) {
	j, log := testCalls(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	changed := make(chan struct{}, 1)
	stop := log.Watch(func([]string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer stop()
	go func() { done <- log.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	put(t, j, ferrule.Entry{Call: "a", Phase: ferrule.Outcome})
	flush(t, j)
	for deadline := time.After(wait.Ample); len(log.Recent(5, everything)) < 2; {
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("got %q", names(log.Recent(5, everything)))
		}
	}
	if _, seq := log.Newest(); seq < 2 {
		t.Errorf("the newest record is %d", seq)
	}
}

// TestCallsBounded checks that few records stay in memory with a long journal, and that each
// page ends.
func TestCallsBounded(t *testing.T) {
	j, log := testCalls(t)
	const n = 100_000
	for i := range n {
		device := "robot"
		if i == 10 {
			device = "rare"
		}
		put(t, j, ferrule.Entry{Call: fmt.Sprint("c", i), Phase: ferrule.Outcome, Device: device, Tool: "move", Args: []byte(`{"x":1,"y":2}`)})
	}
	flush(t, j)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	log.load()
	for range 12 {
		log.add(ferrule.JournalLines{Chain: "c", Last: 1, Lines: newestLines(t, log)}, true)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if len(log.recent) > 2*maxRecent || log.size > 2*maxRecentBytes {
		t.Errorf("%d records use %d bytes", len(log.recent), log.size)
	}
	figure.AtMost(t, "bytes of recent calls", int64(after.HeapAlloc)-int64(before.HeapAlloc), 3*maxRecentBytes)
	forget(log)
	start := time.Now()
	p, err := log.Page(t.Context(), PageQuery{Limit: 50, Match: everything})
	if err != nil || len(p.Calls) != 50 || !p.More {
		t.Errorf("a page has %d calls: %v", len(p.Calls), err)
	}
	figure.AtMost(t, "page of calls", time.Since(start), time.Second)
	found, pages, longest := false, 0, time.Duration(0)
	for at := (Cursor{}); !found && pages < 100; pages++ {
		start := time.Now()
		p, err := log.Page(t.Context(), PageQuery{Before: at, Limit: 50, Match: func(c *Call) bool { return c.Device == "rare" }})
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(start))
		if found, at = len(p.Calls) > 0, p.Next; !p.More {
			break
		}
		if !found && p.Reached.IsZero() {
			t.Error("it does not say how far it came")
		}
	}
	if !found || pages < 2 {
		t.Errorf("found %v after %d pages", found, pages)
	}
	figure.AtMost(t, "page of a search", longest, 3*pageTime)
}

// newestLines returns the newest lines of a journal.
func newestLines(t *testing.T, log *CallLog) []byte {
	t.Helper()
	r, err := journal.OpenReader(log.parts.Data)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l, err := r.Before(0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return l.Lines
}

// TestFirstQueryOfNodes checks that journals of other nodes are not read before the first query,
// and that this query has their calls.
func TestFirstQueryOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewCallLog(CallLogParts{Data: t.TempDir(), Node: "here", Warn: func(string, error) {}})
		line := fmt.Sprintf("%064d {\"seq\":1,\"time\":%q,\"call\":\"c\",\"phase\":\"outcome\",\"principal\":{\"role\":\"agent\",\"name\":\"a\"},\"device\":\"robot\",\"tool\":\"move\"}\n", 1, time.Now().Format(time.RFC3339Nano))
		var reads []bool
		log.parts.Others = func(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error {
			reads = append(reads, q.Follow)
			err := fn(ferrule.JournalLines{Node: "there", Chain: "1234567890abcdef", First: 1, Last: 1, Lines: []byte(line)})
			if q.Follow {
				<-ctx.Done()
			}
			return err
		}
		log.parts.Lines = func(ctx context.Context, _ uint64, _ int) (ferrule.JournalLines, error) {
			<-ctx.Done()
			return ferrule.JournalLines{}, ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { log.Run(ctx) })
		time.Sleep(time.Hour)
		if len(reads) != 0 {
			t.Errorf("read %d times before the first query", len(reads))
		}
		for range 2 { // what is followed begins with what was read
			if got := names(log.Recent(9, everything)); !slices.Equal(got, []string{"c outcome"}) {
				t.Errorf("got %q", got)
			}
			synctest.Wait()
		}
		if !slices.Equal(reads, []bool{false, true}) {
			t.Errorf("followed: %v", reads)
		}
		cancel()
		wg.Wait()
	})
}

// TestCallsOfNodes checks that calls of several nodes are in one order.
func TestCallsOfNodes(t *testing.T) {
	j, log := testCalls(t)
	log.parts.Node = "here"
	now := time.Now()
	line := func(seq int, call string, at time.Time) string {
		return fmt.Sprintf("%064d {\"seq\":%d,\"time\":%q,\"call\":%q,\"phase\":\"outcome\",\"principal\":{\"role\":\"agent\",\"name\":\"a\"},\"device\":\"robot\",\"tool\":\"move\"}\n", seq, seq, at.Format(time.RFC3339Nano), call)
	}
	there := ferrule.JournalLines{Node: "there", Chain: "1234567890abcdef", First: 1, Last: 2, Lines: []byte(line(1, "old", now.Add(-3*time.Hour)) + line(2, "new", now.Add(time.Hour)))}
	log.parts.Others = func(_ context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error {
		return fn(there)
	}
	put(t, j, ferrule.Entry{Call: "mine", Phase: ferrule.Outcome})
	flush(t, j)
	log.load()
	log.add(there, false)
	log.add(there, false) // a reader began again
	want := []string{"new outcome", "last outcome", "mine outcome", "old outcome"}
	if got := names(log.Recent(9, everything)); !slices.Equal(got, want) {
		t.Errorf("from memory: %q", got)
	}
	log.recent, log.own, log.since = nil, 0, time.Time{}
	var got []string
	for at := (Cursor{Time: now.Add(2 * time.Hour)}); len(got) < 10; {
		p, err := log.Page(t.Context(), PageQuery{Before: at, Limit: 1, Match: everything})
		if err != nil {
			t.Fatal(err)
		}
		if got, at = append(got, names(p.Calls)...), p.Next; !p.More || len(p.Calls) == 0 {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("page by page: %q", got)
	}
}
