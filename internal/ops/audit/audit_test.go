package audit

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// happened returns a record of a call some minutes after noon.
func happened(minute int, call string) ferrule.Entry {
	return ferrule.Entry{
		Time: noon.Add(time.Duration(minute) * time.Minute), Call: call, Phase: ferrule.Outcome,
		Principal: ferrule.Principal{Role: ferrule.Agent, Name: "claude"}, Device: "robot", Tool: "move",
	}
}

// TestFilter checks which records a query selects.
func TestFilter(t *testing.T) {
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
	point := ferrule.Entry{Time: base.Time, Phase: ferrule.JournalCheckpoint}
	failed := with(func(e *ferrule.Entry) { e.Code, e.MayHaveRun = ferrule.Unanswered, true })
	denied := with(func(e *ferrule.Entry) { e.Code = ferrule.Denied })
	intent := with(func(e *ferrule.Entry) { e.Phase = ferrule.Intent })
	local := with(func(e *ferrule.Entry) { e.Principal.Name = "local/codex" })
	gap := ferrule.Entry{Time: base.Time, Phase: ferrule.JournalGap}
	wrongToken := ferrule.Entry{Time: base.Time, Phase: ferrule.Access, Tool: string(ferrule.AccessTokenUsed), Code: ferrule.Denied}
	look := with(func(e *ferrule.Entry) { e.Tool = "look" })
	failedLook := with(func(e *ferrule.Entry) { e.Tool, e.Code = "look", ferrule.Unanswered })
	for _, test := range []struct {
		query Query
		e     ferrule.Entry
		want  bool
	}{
		{Query{}, base, true},
		{Query{}, gap, true},
		{Query{}, wrongToken, true},
		{Query{Outcome: "access"}, wrongToken, true},
		{Query{Outcome: "access"}, base, false},
		{Query{Outcome: "access", Tool: "token_used"}, wrongToken, true},
		{Query{Outcome: "access", Tool: "login"}, wrongToken, false},
		{Query{Outcome: "denied"}, wrongToken, true},
		{Query{Device: "robot"}, wrongToken, false},
		{Query{Device: "robot"}, base, true},
		{Query{Device: "lamp"}, base, false},
		{Query{Tool: "move"}, base, true},
		{Query{Tool: "stop"}, base, false},
		{Query{Principal: "agent:claude"}, base, true},
		{Query{Principal: "claude"}, base, true},
		{Query{Principal: "person:claude"}, base, false},
		{Query{Principal: "agent"}, base, false},
		{Query{Principal: "agent:local/codex"}, local, true},
		{Query{Principal: "agent:local"}, local, true},
		{Query{Principal: "local"}, local, true},
		{Query{Principal: "codex"}, local, false},
		{Query{Principal: "agent:local"}, base, false},
		{Query{Outcome: "ok"}, base, true},
		{Query{Outcome: "ok"}, denied, false},
		{Query{Outcome: "ok"}, intent, false},
		{Query{Outcome: "error"}, denied, true},
		{Query{Outcome: "error"}, base, false},
		{Query{Outcome: "denied"}, denied, true},
		{Query{Outcome: "denied"}, failed, false},
		{Query{Outcome: "may-have-run"}, failed, true},
		{Query{Outcome: "may-have-run"}, denied, false},
		{Query{Outcome: "intent"}, intent, true},
		{Query{Outcome: "intent"}, base, false},
		{Query{Outcome: "gap"}, gap, true},
		{Query{Since: "2h"}, base, true},
		{Query{Since: "30m"}, base, false},
		{Query{Until: "30m"}, base, true},
		{Query{Until: "2h"}, base, false},
		{Query{Since: "1h"}, base, true},
		{Query{Until: "1h"}, base, false},
		{Query{Since: "2h", Until: "30m"}, base, true},
		{Query{}, look, false},
		{Query{All: true}, look, true},
		{Query{Device: "robot"}, look, false},
		{Query{Tool: "look"}, look, true},
		{Query{}, failedLook, true},
		{Query{}, point, false},
		{Query{All: true}, point, true},
	} {
		f, err := test.query.Filter(now)
		r := Record{Entry: test.e, Began: test.e.Time, changes: test.e.Tool == "move"}
		if err != nil || f.Matches(r) != test.want {
			t.Errorf("%+v of %+v: %t, %v", test.query, test.e, f.Matches(r), err)
		}
	}
	for want, wrong := range map[string]Query{
		"--last must be 0 or more, got -1":                            {Last: -1},
		"--local and --node exclude":                                  {Local: true, Node: "b"},
		"--follow and --until exclude":                                {Follow: true, Until: "1h"},
		"--outcome must be one of ok, error, may-have-run, intent":    {Outcome: "fine"},
		`--since: must be 2h, 7d, 2026-01-31, "2026-01-31 15:04" or `: {Since: "yesterday"},
		`got "-2h"`:                      {Until: "-2h"},
		"--since must be before --until": {Since: "1h", Until: "2h"},
	} {
		if _, err := wrong.Filter(now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %s", wrong, err, want)
		}
	}
}

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
		got, err := ParseTime(text, now)
		if want == "" {
			if err == nil {
				t.Errorf("%q is accepted as %v", text, got)
			}
			continue
		}
		if wanted, _ := time.Parse(time.RFC3339Nano, want); err != nil || !got.Equal(wanted) {
			t.Errorf("%q: %v, %v; want %s", text, got, err, want)
		}
	}
}

// TestOutcomes checks that every code is in Outcomes.
func TestOutcomes(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../ferrule/error.go", nil, 0)
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
			if err != nil || !slices.Contains(Outcomes, code) {
				t.Errorf("%s is missing", code)
			}
		}
		return true
	})
	if codes < 10 {
		t.Errorf("only %d codes found", codes)
	}
}

// TestOrder checks that the number of waiting records is bounded, that records are sorted
// as far as they wait, and that each chain keeps its order.
func TestOrder(t *testing.T) {
	var shown []Record
	most := 0
	show := func(r Record) error { shown = append(shown, r); return nil }
	o, j := newOrder(0, 600*512, show), newJoiner(true)
	add := func(node string, e ferrule.Entry) {
		for _, r := range j.add(Record{Node: node, Chain: "x", Entry: e}) {
			if err := o.add(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 1000 { // two nodes whose records come within a window, in any order
		first := i/100*100 + rand.IntN(100)
		for _, node := range []string{"a", "b"} {
			add(node, happened(first, fmt.Sprint(i)))
		}
		most = max(most, len(o.waiting))
	}
	if err := o.drain(); err != nil || len(shown) != 2000 || most > 600 {
		t.Errorf("%d shown, at most %d waiting, %v", len(shown), most, err)
	}
	last := map[string]int{"a": -1, "b": -1}
	for _, r := range shown {
		n, _ := strconv.Atoi(r.Call)
		if n != last[r.Node]+1 {
			t.Fatalf("%s: record %d after %d", r.Node, n, last[r.Node])
		}
		last[r.Node] = n
	}
	shown = nil
	add("a", happened(9999, "now"))
	if len(shown) != 1 {
		t.Error("a new record waits")
	}

	shown, o = nil, newOrder(3, 0, show)
	for i := range 1000 {
		add(fmt.Sprint(i%7), happened(i*389%1000, ""))
		if len(o.waiting) > 3 {
			t.Fatalf("%d are waiting", len(o.waiting))
		}
	}
	if o.drain(); len(shown) != 3 || len(o.waiting) != 0 || o.size != 0 {
		t.Errorf("%d shown", len(shown))
	}
}

// TestJoin checks that a call is one record: its outcome, with the time of its intent, or
// its intent if the outcome is missing.
func TestJoin(t *testing.T) {
	intent := func(minute int, call string) Record {
		e := happened(minute, call)
		e.Phase = ferrule.Intent
		return Record{Chain: "x", Entry: e}
	}
	outcome := func(minute int, call string) Record { return Record{Chain: "x", Entry: happened(minute, call)} }
	list := func(records []Record) (all []string) {
		for _, r := range records {
			all = append(all, fmt.Sprintf("%s %s at %s, looked: %t", r.Call, r.Outcome(), r.Began.Format("04"), r.isLook()))
		}
		return all
	}
	input := []Record{intent(1, "a"), intent(2, "lost"), outcome(3, "b"), outcome(4, "a")}
	elsewhere := outcome(5, "lost")
	elsewhere.Chain = "y"
	j := newJoiner(false)
	var got []string
	for _, r := range append(input, elsewhere) {
		got = append(got, list(j.add(r))...)
	}
	got = append(got, list(j.rest())...)
	want := []string{"b ok at 03, looked: true", "a ok at 01, looked: false", "lost ok at 05, looked: true", "lost no outcome (may have run) at 02, looked: false"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	got, j = nil, newJoiner(true)
	for _, r := range input {
		got = append(got, list(j.add(r))...)
	}
	got = append(got, list(j.rest())...)
	want = []string{"a no outcome at 01, looked: false", "lost no outcome at 02, looked: false", "b ok at 03, looked: true", "a ok at 04, looked: false"}
	if !slices.Equal(got, want) {
		t.Errorf("separate: got  %q\nwant %q", got, want)
	}
	j = newJoiner(false)
	shown := 0
	for i := range maxOpen + 10 {
		shown += len(j.add(intent(0, fmt.Sprint(i))))
	}
	if n := len(j.open); n > maxOpen || shown+n != maxOpen+10 {
		t.Errorf("%d are open, %d were shown", n, shown)
	}
}

// TestRecordJSON checks that a record is shown with all that the gateway knew of its caller.
func TestRecordJSON(t *testing.T) {
	e := ferrule.Entry{Phase: ferrule.Access, Tool: string(ferrule.AccessConsent), From: "192.0.2.1", Principal: ferrule.Principal{
		Role: ferrule.Agent, Name: "oauth:anna/claude.ai", Auth: ferrule.AuthOAuth, User: "anna", Scopes: ferrule.LimitTo(ferrule.ScopeChange), Devices: "kitchen-*", Groups: "operator",
	}}
	got, err := json.Marshal(Record{Entry: e})
	want := `"principal":{"role":"agent","name":"oauth:anna/claude.ai","auth":"oauth","user":"anna","scopes":"read change","devices":"kitchen-*","groups":"operator"},"from":"192.0.2.1"`
	if err != nil || !strings.Contains(string(got), want) {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestTable checks the columns of a table, also of hostile texts.
func TestTable(t *testing.T) {
	var out strings.Builder
	table := &Table{Out: &out, Style: func(_, cell string) string { return cell }}
	moved, read, refused := happened(0, "a"), happened(1, "b"), happened(2, "c")
	moved.Args, moved.Took = []byte(`{"x":1}`), ferrule.Duration(1234567*time.Nanosecond)
	read.Operation, read.Tool = ferrule.ReadResource, "robot://log"
	refused.Tool, refused.Code, refused.MayHaveRun = "st\x1b[31mop\n", ferrule.Failed, true
	refused.Args = []byte(`"` + strings.Repeat("x", 1000) + `"`)
	gap := ferrule.Entry{Time: noon, Phase: ferrule.JournalGap, Message: "3 records missing: they could not be written"}
	login := ferrule.Entry{Time: noon, Phase: ferrule.Access, Tool: string(ferrule.AccessLogin), Principal: ferrule.Principal{Role: ferrule.Person, Name: "anna"}, From: "192.0.2.1", Message: "by a\nlink"}
	wrong := ferrule.Entry{Time: noon, Phase: ferrule.Access, Tool: string(ferrule.AccessTokenUsed), Principal: ferrule.Principal{Role: ferrule.Unverified}, Code: ferrule.Denied, Message: "unknown token"}
	for _, e := range []ferrule.Entry{moved, read, refused, gap, login, wrong} {
		if err := table.Add(Record{Entry: e, Began: noon.Local()}, false); err != nil {
			t.Fatal(err)
		}
	}
	if out.Len() > 0 {
		t.Error("printed before the widths are known")
	}
	table.Flush()
	at := noon.Local().Format(time.DateTime)
	want := "TIME                 CALLER        DEVICE  TOOL              ARGUMENTS                                         OUTCOME                TOOK\n" +
		at + "  agent:claude  robot   move              {\"x\":1}                                           ok                     1.23ms\n" +
		at + "  agent:claude  robot   read robot://log  -                                                 ok\n" +
		at + "  agent:claude  robot   st [31mop         \"" + strings.Repeat("x", 46) + "…  failed (may have run)\n" +
		at + "  3 records missing: they could not be written\n" +
		at + "  person:anna   -       login             ok, from 192.0.2.1: by a link\n" +
		at + "  unverified    -       token_used        denied: unknown token\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	out.Reset()
	moved.Call, moved.Client = "watch-abcdefghij-1", ferrule.Client{Name: ferrule.WatchClient, Version: "abcdefghij"}
	if table.Add(Record{Entry: moved, Began: noon}, false); !strings.Contains(out.String(), "  agent:claude, watch abcdefghij  ") {
		t.Errorf("the call of a watch is shown as %s", out.String())
	}
	moved.Call = "c1" // a program that only calls itself so
	out.Reset()
	if table.Add(Record{Entry: moved, Began: noon}, false); strings.Count(out.String(), "\n") != 1 {
		t.Errorf("a new line is not shown at once: %q", out.String())
	}
}
