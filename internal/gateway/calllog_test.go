package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/measure/plot"
)

// journalOf returns a data directory with a journal of some records.
func journalOf(t *testing.T, entries ...ferrule.Entry) string {
	t.Helper()
	dir := t.TempDir()
	j, err := journal.Open(dir, journal.DefaultConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := j.Append(e, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCallLog checks that each call of a time range is returned once, with the time when
// it was made, including calls through other nodes and without calls that did not run.
func TestCallLog(t *testing.T) {
	start := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	at := func(minutes float64, call, device, tool string, phase ferrule.Phase) ferrule.Entry {
		return ferrule.Entry{Time: start.Add(time.Duration(minutes * float64(time.Minute))), Call: call, Device: device, Tool: tool, Phase: phase}
	}
	failed := func(e ferrule.Entry, code ferrule.Code, maybe bool) ferrule.Entry {
		e.Code, e.MayHaveRun = code, maybe
		return e
	}
	took := func(e ferrule.Entry, d time.Duration) ferrule.Entry {
		e.Took = ferrule.Duration(d)
		return e
	}
	read := at(6, "7", "robot", "file:///x", ferrule.Outcome)
	read.Operation = ferrule.ReadResource
	dir := journalOf(t,
		at(-20, "0", "robot", "early", ferrule.Intent),
		at(-0.5, "1", "robot", "slow", ferrule.Intent), at(0.5, "1", "robot", "slow", ferrule.Outcome),
		at(1, "2", "robot", "write", ferrule.Intent), at(1.1, "2", "robot", "write", ferrule.Outcome),
		at(2, "3", "lamp", "write", ferrule.Intent),
		took(at(3, "4", "robot", "look", ferrule.Outcome), 30*time.Second),
		failed(at(4, "5", "robot", "denied", ferrule.Outcome), ferrule.Denied, false),
		at(5, "6", "robot", "lost", ferrule.Intent), failed(at(5.2, "6", "robot", "lost", ferrule.Outcome), ferrule.Unanswered, true),
		read,
		at(8, "11", "robot", "cut off", ferrule.Intent),
		at(9, "8", "robot", "late", ferrule.Intent), failed(at(11, "8", "robot", "late", ferrule.Outcome), ferrule.Failed, true),
		at(12, "9", "robot", "after", ferrule.Intent),
		at(40, "10", "robot", "long after", ferrule.Intent),
	)
	list := func(d callLog) (string, error) {
		all, err := d.Calls(t.Context(), "robot", start, start.Add(10*time.Minute))
		var words []string
		for _, e := range all {
			words = append(words, fmt.Sprintf("%s@%v%s", e.Tool, e.Time.Sub(start), e.Code))
		}
		return strings.Join(words, " "), err
	}
	const here = "write@1m0s look@2m30s lost@5m0sunanswered cut off@8m0sunanswered late@9m0sfailed"
	if got, err := list(callLog{data: dir}); err != nil || got != here {
		t.Errorf("got %s, %v", got, err)
	}
	there := journalOf(t, at(1, "2", "robot", "write", ferrule.Intent), at(7, "n-1", "robot", "blink", ferrule.Intent), at(7.1, "n-1", "robot", "blink", ferrule.Outcome))
	both := callLog{data: dir, others: func(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error {
		if want := start.Add(-journal.ClockSkew); !q.Since.Equal(want) || q.Follow || q.Node != "" {
			t.Errorf("asked for %+v", q)
		}
		r, err := journal.OpenReader(there)
		if err != nil {
			return err
		}
		defer r.Close()
		return r.Read(ctx, false, fn)
	}}
	if got, err := list(both); err != nil || got != strings.Replace(here, "cut off", "blink@7m0s cut off", 1) {
		t.Errorf("got %s, %v", got, err)
	}
	both.others = func(context.Context, ferrule.JournalQuery, func(ferrule.JournalLines) error) error {
		return errors.New("the cluster does not answer")
	}
	if got, err := list(both); err == nil || !strings.Contains(err.Error(), "other nodes") || got != here {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestCallLogLimit checks that of too many calls, those that may have changed something
// and the newest are returned.
func TestCallLogLimit(t *testing.T) {
	start := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	var entries []ferrule.Entry
	for i := range 2000 {
		e := ferrule.Entry{Time: start.Add(time.Duration(i) * time.Second), Call: fmt.Sprint(i), Device: "robot", Tool: "look", Phase: ferrule.Outcome}
		if i%20 == 0 {
			e.Tool, e.Phase = "write", ferrule.Intent
		}
		entries = append(entries, e)
	}
	all, err := callLog{data: journalOf(t, entries...)}.Calls(t.Context(), "robot", start, start.Add(time.Hour))
	if err != nil || len(all) != plot.MaxCalls {
		t.Fatalf("%d calls, %v", len(all), err)
	}
	writes := 0
	for i, e := range all {
		if e.Tool == "write" {
			writes++
		}
		if i > 0 && e.Time.Before(all[i-1].Time) {
			t.Errorf("%v before %v", e.Time, all[i-1].Time)
		}
	}
	if last := all[len(all)-1]; writes != 100 || last.Call != "1999" {
		t.Errorf("%d calls write, the last is %s", writes, last.Call)
	}
}
