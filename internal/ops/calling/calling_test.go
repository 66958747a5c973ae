package calling

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/terminal"
	"github.com/ferrulehq/ferrule/internal/schema"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

func plainStyle(_, text string) string { return text }

// typing returns a session with a person who types lines, and what it shows.
func typing(lines ...string) (*Session, *bytes.Buffer) {
	var out bytes.Buffer
	in := io.Reader(strings.NewReader(strings.Join(append(lines, ""), "\n")))
	return &Session{Out: &out, Lines: &terminal.Reader{In: in}, Style: plainStyle}, &out
}

// TestArguments checks what becomes of what a person types.
func TestArguments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	property := func(text string, required bool) string {
		if required {
			return `{"type":"object","properties":{"x":` + text + `},"required":["x"]}`
		}
		return `{"type":"object","properties":{"x":` + text + `}}`
	}
	for _, c := range []struct {
		input string
		given string
		lines []string
		want  string
		shows string
	}{
		{input: property(`{"type":"integer","minimum":0,"maximum":180,"default":90}`, true), lines: []string{""}, want: `{"x":90}`, shows: "x (number from 0 to 180) [90]: "},
		{input: property(`{"type":"integer","minimum":0,"maximum":180,"default":90}`, false), lines: []string{""}, want: `{}`, shows: "[90]: "},
		{input: property(`{"type":"integer","maximum":180}`, true), lines: []string{"", "200", "x", "1.5", "+7"}, want: `{"x":7}`, shows: "x is required.\n"},
		{input: property(`{"type":"boolean"}`, false), lines: []string{"off"}, want: `{"x":false}`, shows: "x (yes or no) [skip]: "},
		{input: property(`{"type":"boolean"}`, true), lines: []string{"what", "YES"}, want: `{"x":true}`, shows: `x must be yes or no, got "what".`},
		{input: property(`{"enum":["a",2,null]}`, true), lines: []string{"c", "2"}, want: `{"x":2}`, shows: "x must be one of a, 2, null."},
		{input: property(`{"oneOf":[{"const":"v1","title":"First"},{"const":2}]}`, true), lines: []string{"third", "first"}, want: `{"x":"v1"}`, shows: "x (First, 2): "},
		{input: property(`{"type":"integer","enum":[18]}`, true), lines: []string{""}, want: `{"x":18}`, shows: "x (18) [18]: "},
		{input: property(`{"enum":[18]}`, false), lines: []string{""}, want: `{}`, shows: "x (18) [skip]: "},
		{input: property(`{"type":"string"}`, true), lines: []string{`""`}, want: `{"x":""}`},
		{input: property(`{"type":"string","minLength":3}`, true), lines: []string{"ab", "abc"}, want: `{"x":"abc"}`, shows: "x must"},
		{input: property(`{"type":"string","contentEncoding":"base64"}`, true), lines: []string{"/no/such/file", file}, want: `{"x":"YWJj"}`, shows: "x cannot be read"},
		{input: property(`{"type":"array","items":{"type":"integer"}}`, true), lines: []string{"[1", `["a"]`, "[1,2]"}, want: `{"x":[1,2]}`, shows: "x must be JSON"},
		{input: `{"type":"object","properties":{"x":{"type":"integer"},"y":{"type":"integer"},"z":{"type":"integer"}},"required":["x","y"]}`, given: `{"x":1}`, lines: []string{"2"}, want: `{"x":1,"y":2}`},
		{input: `{"type":"object","additionalProperties":false}`, want: `{}`},
		{input: ``, want: `{}`},
	} {
		s, out := typing(c.lines...)
		got, err := s.Arguments(t.Context(), "robot", "turn", "Turn it", json.RawMessage(c.input), json.RawMessage(c.given))
		if err != nil || string(got) != c.want || !strings.Contains(out.String(), c.shows) {
			t.Errorf("%s %q: got %s, %v; want %s and %q in\n%s", c.input, c.lines, got, err, c.want, c.shows, out)
		}
		if rest, err := s.Lines.Line(t.Context()); err != io.EOF {
			t.Errorf("%s: %q was not read, %v", c.input, rest, err)
		}
	}
	s, _ := typing()
	if _, err := s.Arguments(t.Context(), "robot", "turn", "", json.RawMessage(property(`{"type":"string"}`, true)), nil); !errors.Is(err, ErrDeclined) {
		t.Errorf("got %v", err)
	}
}

// TestQuestion checks the answers to a device.
func TestQuestion(t *testing.T) {
	form := json.RawMessage(`{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}`)
	for _, c := range []struct {
		q     ferrule.Question
		lines []string
		want  string
	}{
		{ferrule.Question{Text: "How many?", Schema: form}, []string{"many", "3"}, `{"given":true,"value":{"x":3}}`},
		{ferrule.Question{Text: "How many?", Schema: form}, nil, `{"given":false}`},
		{ferrule.Question{Text: "Sure?"}, []string{"y"}, `{"given":true,"value":{}}`},
		{ferrule.Question{Text: "Sure?"}, []string{""}, `{"given":false}`},
		{ferrule.Question{Text: "Log in", URL: "https://example.com/login"}, []string{"yes"}, `{"given":true,"value":{}}`},
	} {
		s, out := typing(c.lines...)
		a, err := s.Question(t.Context(), c.q)
		got, _ := json.Marshal(a)
		if err != nil || string(got) != c.want || !strings.Contains(out.String(), "  | "+c.q.Text) || !strings.Contains(out.String(), c.q.URL) {
			t.Errorf("%+v: got %s, %v and\n%s", c.q, got, err, out)
		}
	}
	s, _ := typing("x")
	for _, target := range []ferrule.AskTarget{ferrule.Model, ferrule.Roots} {
		if a, err := s.Question(t.Context(), ferrule.Question{Target: target}); err == nil {
			t.Errorf("got %+v", a)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if a, err := s.Question(over, ferrule.Question{Text: "Sure?"}); err == nil {
		t.Errorf("got %+v after the end of the call", a)
	}
	if line, err := s.Lines.Line(t.Context()); line != "x" || err != nil {
		t.Errorf("the line was lost: %q, %v", line, err)
	}
}

// TestQuestionsInTurn: a line that was typed before a question was shown does not answer it.
func TestQuestionsInTurn(t *testing.T) {
	in, keys := io.Pipe()
	out := &syncBuffer{}
	s := &Session{Out: out, Lines: &terminal.Reader{In: in}, Style: plainStyle}
	ask := func(text string) <-chan ferrule.Answer {
		answer := make(chan ferrule.Answer, 1)
		go func() {
			a, err := s.Question(t.Context(), ferrule.Question{Text: text})
			if err != nil {
				t.Error(err)
			}
			answer <- a
		}()
		wait.For(t, "the question is shown: "+text, func() bool { return strings.Contains(out.String(), text) })
		return answer
	}
	first := ask("Is lamp one free?")
	io.WriteString(keys, "y\ny\n") // too often
	if a := <-first; !a.Given {
		t.Error("the first question was not answered")
	}
	io.WriteString(keys, "y\n")
	io.WriteString(keys, "") // the line before was read
	second := ask("May I open the gate?")
	select {
	case a := <-second:
		t.Fatalf("got %+v before an answer was typed", a)
	case <-time.After(50 * time.Millisecond):
	}
	io.WriteString(keys, "n\n")
	if a := <-second; a.Given {
		t.Error("an answer to the first question opened the gate")
	}
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestQuestionLooks: whatever a device asks, no line of the terminal begins with its text.
func TestQuestionLooks(t *testing.T) {
	const fake = "Delete all? [y/N]"
	for _, width := range []int{60, 80, 0} {
		for _, pad := range []string{strings.Repeat(" ", 70), strings.Repeat("x", 76), strings.Repeat("界", 39), strings.Repeat(" ", 76) + strings.Repeat("x ", 90)} {
			s, out := typing("wrong", "", "1")
			columns := 80
			if width > 0 {
				columns = width
				s.Width = func() int { return width }
			}
			schema, _ := json.Marshal(map[string]any{"type": "object", "properties": map[string]any{"a" + pad: map[string]any{"type": "string", "description": pad + fake, "enum": []string{pad + fake, "1"}}}, "required": []string{"a" + pad}})
			if _, err := s.Question(t.Context(), ferrule.Question{Text: "Ready?" + pad + fake, Schema: schema}); err != nil {
				t.Fatal(err)
			}
			shows := false
			typed := strings.ReplaceAll(out.String(), ":     ", ": \n    ") // Enter
			for line := range strings.SplitSeq(typed, "\n") {
				shows = shows || strings.HasPrefix(line, "  | ")
				n := 0
				for _, r := range line {
					if n++; r > unicode.MaxASCII {
						n++
					}
				}
				if n > columns || line != "" && line[0] != ' ' && line != "The device asks:" {
					t.Errorf("width %d: %d columns: %q", width, n, line)
				}
			}
			if !shows {
				t.Errorf("no question in %s", out)
			}
		}
	}
}

// TestQuestionFile: a device does not get a file because a person named it.
func TestQuestionFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, out := typing(file)
	a, err := s.Question(t.Context(), ferrule.Question{Text: "Where is your key?", Schema: json.RawMessage(`{"type":"object","properties":{"key":{"type":"string","contentEncoding":"base64"}}}`)})
	if err != nil || a.Given || !strings.Contains(out.String(), "Files are not sent as answers") {
		t.Errorf("got %+v, %v and\n%s", a, err, out)
	}
}

// FuzzQuestion checks that nothing of a device moves the cursor or begins a line.
func FuzzQuestion(f *testing.F) {
	f.Add("Which\x1b[2J one?\r", `{"type":"object","properties":{"a\u001b[1A":{"type":"string","description":"\u001b]0;x\u0007","default":"\u009b"}}}`, "7")
	f.Add("x\ny", `{"type":"object","properties":{"n":{"enum":["\u202e",1]}},"required":["n"]}`, "1")
	f.Fuzz(func(t *testing.T, text, input, line string) {
		s, out := typing(line, line, line)
		a, err := s.Question(t.Context(), ferrule.Question{Text: text, Schema: json.RawMessage(input)})
		if err == nil && a.Given {
			if _, _, err := schema.DecodeArgs(a.Value); err != nil {
				t.Errorf("invalid answer %s: %v", a.Value, err)
			}
		}
		s.Progress(ferrule.Progress{Message: text, Done: 1, Total: 2})
		s.Progress(ferrule.Progress{Message: text})
		s.Progress(ferrule.Progress{Log: &ferrule.Log{Level: text, Data: json.RawMessage(input)}})
		for _, r := range out.String() {
			if r != '\n' && (unicode.IsControl(r) || !ferrule.Visible(string(r))) {
				t.Fatalf("shows %q in %q", r, out)
			}
		}
	})
}

// TestProgress checks that a bar fits its terminal, whatever a device reports.
func TestProgress(t *testing.T) {
	for _, width := range []int{0, 5, 20, 80, 300} {
		for _, p := range []ferrule.Progress{
			{Done: 1, Total: 4}, {Done: 9, Total: 4, Message: strings.Repeat("☂", 200)}, {Done: 1e300, Total: 5e-324}, {Done: 0, Total: math.MaxFloat64, Message: "x"},
		} {
			text := barText(p.Done, p.Total, p.Message, width)
			if n := len([]rune(text)); n > max(width, 1) {
				t.Errorf("%d columns for %d: %s", n, width, text)
			}
		}
	}
	if got, want := barText(1, 4, "turning", 60), "[#########............................] 1 of 4 (25%) turning"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, c := range []struct {
		done, total float64
		want        string
	}{{5.00025, 12, "5 of 12 (42%)"}, {5.26, 12, "5.3 of 12 (44%)"}, {0.1234, 1, "0.12 of 1 (12%)"}, {1234, 5000, "1234 of 5000 (25%)"}, {0.00025, 0.001, "0.00025 of 0.001 (25%)"}} {
		if got := counts(c.done, c.total); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	var out bytes.Buffer
	s := &Session{Out: &out, Style: plainStyle, Width: func() int { return 40 }}
	for _, p := range []ferrule.Progress{{Done: 1, Total: 2}, {Done: 2, Total: 2}, {Message: "a\nb"}, {Done: math.NaN(), Total: 1}, {Done: math.Inf(1)}, {Done: 7}, {Done: 1, Total: -1, Message: "c"}} {
		s.Progress(p)
	}
	s.End()
	want := "\r[##########............] 1 of 2 (50%)\x1b[K\r[#####################] 2 of 2 (100%)\x1b[K\na b\n7\nc\n"
	if got := out.String(); strings.Count(got, "\r") != 2 || !strings.HasSuffix(got, "\x1b[K\na b\n7\nc\n") {
		t.Errorf("got  %q\nwant %q or so", got, want)
	}
}

// TestProgressQuoted checks that words of a device never begin a line of the terminal: they could
// look like a message of the program.
func TestProgressQuoted(t *testing.T) {
	const fake = "Error: run this"
	for _, width := range []func() int{nil, func() int { return 40 }} {
		for _, p := range []ferrule.Progress{
			{Message: fake, Said: true}, {Message: fake, Said: true, Done: 1, Total: 2}, {Log: &ferrule.Log{Level: fake}},
			{Message: strings.Repeat("x", 75) + " " + fake, Said: true}, {Message: strings.Repeat("x", 67) + fake, Said: true, Done: 1, Total: 2},
			{Message: strings.Repeat("\u6c49", 9) + fake, Said: true, Done: 1, Total: 2},
			{Log: &ferrule.Log{Level: "info", Data: json.RawMessage(`"` + strings.Repeat("x", 60) + " " + fake + `"`)}},
		} {
			var out bytes.Buffer
			s := &Session{Out: &out, Style: plainStyle, Width: width}
			s.Progress(p)
			s.End()
			columns := 80
			if width != nil {
				columns = width()
			}
			for line := range strings.SplitSeq(strings.TrimSuffix(out.String(), "\n"), "\n") {
				line = strings.TrimSuffix(strings.TrimPrefix(line, "\r"), "\x1b[K")
				own := strings.HasPrefix(line, "[") || strings.HasPrefix(line, "1 of 2")
				if !own && !strings.HasPrefix(line, "  | ") {
					t.Errorf("%+v begins the line %q", p, line)
				}
				if wide := strings.Count(line, "\u6c49") + len([]rune(line)); wide > columns {
					t.Errorf("%+v fills %d of %d columns: %q", p, wide, columns, line)
				}
			}
		}
	}
	var out bytes.Buffer
	s := &Session{Out: &out, Style: plainStyle}
	s.Progress(ferrule.Progress{Message: "waiting for robot: 1 ahead"})
	if got := out.String(); got != "waiting for robot: 1 ahead\n" {
		t.Errorf("the program's own words are %q", got)
	}
}

// TestMany checks the order of outcomes, the number of calls at a time, and that nothing
// is called after Ctrl-C.
func TestMany(t *testing.T) {
	var all []Selected
	for i := range 40 {
		all = append(all, Selected{Device: fmt.Sprintf("lamp-%02d", i)})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	called, running, most := 0, 0, 0
	call := func(context.Context, Selected) (*ferrule.Result, error) {
		mu.Lock()
		called++
		running++
		most = max(most, running)
		if called == 20 {
			cancel()
		}
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		running--
		mu.Unlock()
		return &ferrule.Result{Value: json.RawMessage("1")}, nil
	}
	var shown []string
	outcomes := Many(ctx, all, call, func(o Outcome) { shown = append(shown, o.Device) })
	done := 0
	for i, o := range outcomes {
		if o.Device != all[i].Device || shown[i] != o.Device {
			t.Fatalf("outcome %d is of %s, shown as %s", i, o.Device, shown[i])
		}
		if o.Err == nil {
			done++
		} else if ferrule.AsError(o.Err).MayHaveRun() {
			t.Errorf("got %v", o.Err)
		}
	}
	if done != called || called < 20 || called > 20+parallel || most > parallel || most < 2 {
		t.Errorf("%d calls, %d at a time, %d done", called, most, done)
	}
}

// TestTotal checks the outcome of several devices.
func TestTotal(t *testing.T) {
	result := &ferrule.Result{Value: json.RawMessage(`{"on":true}`)}
	offline, failed := ferrule.Errorf(ferrule.Offline, "unplugged"), ferrule.Errorf(ferrule.Failed, "stuck\x1b[2J")
	for _, c := range []struct {
		all  []Outcome
		code ferrule.Code
		may  bool
	}{
		{all: []Outcome{{Result: result}, {Result: result}}},
		{all: []Outcome{{Result: result}, {Err: offline}}, code: ferrule.Unanswered, may: true},
		{all: []Outcome{{Err: offline}, {Err: failed}}, code: ferrule.Unanswered, may: true},
		{all: []Outcome{{Err: offline}, {Err: ferrule.Errorf(ferrule.Denied, "no")}}, code: ferrule.Offline},
		{all: []Outcome{{Err: io.EOF}}, code: ferrule.Unanswered, may: true},
	} {
		err := Total(c.all)
		if c.code == "" {
			if err != nil {
				t.Errorf("got %v", err)
			}
			continue
		}
		if e := ferrule.AsError(err); e.Code != c.code || e.MayHaveRun() != c.may {
			t.Errorf("%v: got %+v", c.all, e)
		}
	}
	if got := (Outcome{Device: "lamp", Err: failed}).Text(); got != "lamp  failed  stuck [2J  (The device reported an error; the action may be partly done.)" {
		t.Errorf("got %q", got)
	}
	if got := (Outcome{Device: "lamp", Result: result}).Text(); got != `lamp  done  {"on":true}` {
		t.Errorf("got %q", got)
	}
}

// TestComplete checks that values are offered, and none that a shell would run.
func TestComplete(t *testing.T) {
	about := builtin.DescribeDeviceOutput{
		Tools: []builtin.DescribedTool{{Name: "set", Input: schema.AnyObject(`{"type":"object","properties":{
			"mode":{"enum":["slow","fast","$(reboot)","a b","` + "`x`" + `"],"description":"How fast\u001b[1m"},
			"on":{"type":"boolean"},"led_pin":{"type":"integer"},"angle":{"type":"integer","default":90},"evil;name":{"type":"boolean"}
		},"required":["on"]}`)}},
		Pins: []builtin.DescribedPin{{Number: 2, Name: "led", Text: "LED"}, {Number: 13}},
	}
	for _, c := range []struct {
		given []string
		typed string
		want  string
	}{
		{nil, "", "angle= led_pin= mode= on="},
		{[]string{"on=true", "mode:=1"}, "", "angle= led_pin="},
		{nil, "mode=", "mode=slow mode=fast"},
		{nil, "on=t", "on=true on=false"},
		{nil, "led_pin=", "led_pin=2 led_pin=13"},
		{nil, "angle=", "angle=90"},
		{nil, "evil;name=", ""},
		{nil, "unknown=", ""},
	} {
		words, _ := Complete(about, "set", c.given, c.typed)
		var got []string
		for _, w := range words {
			got = append(got, w.Word)
			if strings.ContainsRune(w.Text, '\x1b') {
				t.Errorf("got %q", w)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q after %q: got %q, want %q", c.typed, c.given, got, c.want)
		}
	}
}

// TestSelect checks which devices a pattern stands for.
func TestSelect(t *testing.T) {
	tools := map[string][]builtin.DescribedTool{
		"lamp-1": {{Name: "on", Effect: "changes"}}, "lamp-2": {{Name: "on", Effect: "reads"}}, "lamp-hub": {{Name: "off"}}, "fan": {{Name: "on"}},
	}
	devices := []builtin.DescribedDevice{{ID: "fan"}, {ID: "lamp-1"}, {ID: "lamp-2"}, {ID: "lamp-hub"}, {ID: "lamp-new", Trust: "pending"}}
	describe := func(id string) (builtin.DescribeDeviceOutput, error) {
		return builtin.DescribeDeviceOutput{Tools: tools[id]}, nil
	}
	all, lack, err := Select("lamp-*", "on", devices, describe)
	if err != nil || len(all) != 2 || all[0].Device != "lamp-1" || all[1].Device != "lamp-2" || strings.Join(lack, " ") != "lamp-hub" || OnlyReads(all) || !OnlyReads(all[1:]) {
		t.Errorf("got %+v, %v, %v", all, lack, err)
	}
	for pattern, want := range map[string]string{"[": "invalid pattern", "door-*": "no device matches", "lamp-hub*": "no device that matches"} {
		if _, _, err := Select(pattern, "on", devices, describe); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", pattern, err)
		}
	}
}
