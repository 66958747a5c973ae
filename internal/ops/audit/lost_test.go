package audit

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
)

// began returns the intent of a call some minutes after noon.
func began(minute int, call string) ferrule.Entry {
	e := happened(minute, call)
	e.Phase = ferrule.Intent
	return e
}

// ended returns the outcome of a call some minutes after noon.
func ended(minute int, call string, took time.Duration) ferrule.Entry {
	e := happened(minute, call)
	e.Took = ferrule.Duration(took)
	return e
}

// lostCalls is a journal of a gateway that crashed twice during calls.
var lostCalls = []ferrule.Entry{
	began(0, "a"), ended(1, "a", time.Minute), began(2, "lost1"), began(3, "b"), // crash
	began(10, "c"), began(11, "d"), ended(12, "d", time.Minute), ended(13, "look", 3*time.Minute/2), ended(14, "c", 4*time.Minute),
	began(20, "lost2"), // crash
	began(40, "e"), ended(41, "e", time.Minute),
}

// inOrder is how lostCalls are listed.
var inOrder = []string{"a ok", "lost1 no outcome (may have run)", "b no outcome (may have run)", "c ok", "d ok", "look ok", "lost2 no outcome (may have run)", "e ok"}

// TestLostCallsInOrder checks that calls without an outcome are listed when they began, by the
// command line and by the console alike.
func TestLostCallsInOrder(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(dir, journal.DefaultConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range lostCalls {
		put(t, j, e)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	list := func(q Query) (all []string) {
		q.Local, q.All = true, true
		f, err := q.Filter(noon.Add(24 * time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		err = Read(t.Context(), Parts{Data: dir, Flush: func() error { return nil }, Show: func(r Record, _ bool) error {
			if r.Phase != ferrule.JournalCheckpoint {
				all = append(all, r.Call+" "+r.Outcome())
			}
			return nil
		}}, f)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if got := list(Query{}); !slices.Equal(got, inOrder) {
		t.Errorf("got  %q\nwant %q", got, inOrder)
	}
	for n := 1; n <= len(inOrder); n++ {
		if got, want := list(Query{Last: n, Tool: "move"}), inOrder[len(inOrder)-n:]; !slices.Equal(got, want) {
			t.Errorf("last %d: got %q; want %q", n, got, want)
		}
	}
	if got, want := list(Query{Outcome: "may-have-run", Last: 2}), []string{inOrder[2], inOrder[6]}; !slices.Equal(got, want) {
		t.Errorf("may have run: got %q; want %q", got, want)
	}
	var records []string
	for _, e := range lostCalls {
		records = append(records, (&Record{Entry: e}).Call+" "+(&Record{Entry: e}).Outcome())
	}
	if got := list(Query{Records: true}); !slices.Equal(got, records) {
		t.Errorf("records: got  %q\nwant %q", got, records)
	}

	log := NewCallLog(CallLogParts{Data: dir})
	isCall := func(c *Call) bool { return c.Phase == ferrule.Outcome || c.Open() }
	page, err := log.Page(t.Context(), PageQuery{Limit: 50, Match: isCall})
	if err != nil {
		t.Fatal(err)
	}
	for name, calls := range map[string][]Call{"a page": page.Calls, "memory": log.Recent(50, isCall)} {
		var got []string
		for _, c := range slices.Backward(calls) {
			got = append(got, c.Record.Call+" "+c.Outcome())
		}
		if !slices.Equal(got, inOrder) {
			t.Errorf("%s of the console: got  %q\nwant %q", name, got, inOrder)
		}
	}
}

// lostReader returns a reader with a small memory, and what it shows.
func lostReader(t *testing.T, limit int) (take func(...ferrule.Entry), r *reader, shown *[]string) {
	t.Helper()
	shown = new([]string)
	r = &reader{join: newJoiner(false), read: make(map[origin]uint64), Parts: Parts{Flush: func() error { return nil }}}
	r.order = newOrder(0, limit, func(r Record) error {
		*shown = append(*shown, r.Call+" "+r.Outcome())
		return nil
	})
	seq := 0
	return func(entries ...ferrule.Entry) {
		t.Helper()
		var lines strings.Builder
		for _, e := range entries {
			seq++
			e.Seq = uint64(seq)
			data, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&lines, "%064d %s\n", seq, data)
		}
		if err := r.take(ferrule.JournalLines{Chain: "1234567890abcdef", Last: uint64(seq), Lines: []byte(lines.String())}); err != nil || r.damaged > 0 {
			t.Fatal(err, r.firstDamage)
		}
	}, r, shown
}

// TestLostCallsInLongJournal checks that a long journal is listed in order with little memory.
func TestLostCallsInLongJournal(t *testing.T) {
	take, r, shown := lostReader(t, 100*512)
	var want []string
	for i := range 1000 {
		call := fmt.Sprint("c", i)
		if want = append(want, call+" ok"); i%100 == 50 {
			want[i] = call + " no outcome (may have run)"
		}
		if take(began(i, call)); i%100 != 50 && i != 7 {
			take(ended(i, call, 0))
		}
		if i == 500 {
			take(ended(i, "c7", 0)) // a job that went on after a restart
		}
		if n := len(r.order.waiting); n > 101 {
			t.Fatalf("%d are waiting", n)
		}
	}
	if err := r.drain(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	i := slices.Index(*shown, "c7 ok")
	if i < 400 || (*shown)[7] != "c7 no outcome (may have run)" {
		t.Fatalf("the job is line %d, and line 7 is %q", i, (*shown)[7])
	}
	got := slices.Delete(slices.Clone(*shown), i, i+1)
	if got[7] = "c7 ok"; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestLostCallsReplaced checks that a late outcome replaces the call that still waits, also if
// only one of both is selected.
func TestLostCallsReplaced(t *testing.T) {
	for outcome, want := range map[string]string{"": "job ok, a ok", "ok": "job ok, a ok", "may-have-run": ""} {
		take, r, shown := lostReader(t, 3*600)
		r.filter.Outcome = outcome
		take(began(0, "job"), began(20, "a"), ended(21, "a", 0), ended(22, "job", 0))
		if err := r.drain(t.Context(), nil); err != nil || strings.Join(*shown, ", ") != want {
			t.Errorf("%s: %q, %v", outcome, *shown, err)
		}
	}
}

// TestLostCallsFollowed checks that a call is shown while records are followed, too: once
// when it cannot have an outcome any more, and again if it has one.
func TestLostCallsFollowed(t *testing.T) {
	take, r, shown := lostReader(t, 0)
	take(began(0, "running"))
	if err := r.drain(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		e    ferrule.Entry
		want string
	}{
		{began(1, "lost"), "running no outcome (may have run)"},
		{began(2, "a"), ""},
		{ended(3, "a", time.Minute), "a ok"},
		{ended(10, "running", 10*time.Minute), "running ok"},
		{began(11, "b"), ""},
		{ended(12, "b", time.Minute), "lost no outcome (may have run), b ok"},
	} {
		take(step.e)
		if got := strings.Join(*shown, ", "); got != step.want {
			t.Errorf("%s %s: shown %q; want %q", step.e.Call, step.e.Phase, got, step.want)
		}
		*shown = nil
	}
}
