// Package transcript runs the transcripts of reference pages against devices, so that a page
// and the program cannot differ.
//
// A transcript is a fenced block. Its first line has the language and the devices that it is
// about:
//
//	```mcpu thing sim
//	> {"jsonrpc":"2.0","id":1,"method":"get_info"}
//	< {"result":{"device":"…"},
//	    "jsonrpc":"2.0","id":1}
//	```
//
// A line with > is sent, one with < is received. Lines with > that follow each other are sent in
// one write. >> sends a part without a line end, in a write of its own. Four spaces continue the
// line above, # is a comment or a condition that the test establishes, and … stands for any text.
package transcript

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// Transcript is one conversation.
type Transcript struct {
	Line    int      // of the page
	Targets []string // the devices
	Steps   []Step
}

// Step is one line. Kind is >, >>, < or #.
type Step struct{ Kind, Text string }

// Read returns the transcripts of a page in a language. There must be one at least.
func Read(t testing.TB, path, language string) []Transcript {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := parse(string(page), language)
	if err != nil {
		t.Fatalf("%s:%v", path, err)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no transcripts", path)
	}
	return all
}

// For returns the transcripts of a target.
func For(all []Transcript, target string) (some []Transcript) {
	for _, s := range all {
		if slices.Contains(s.Targets, target) {
			some = append(some, s)
		}
	}
	return some
}

func parse(page, language string) (all []Transcript, err error) {
	inside, fenced := false, false
	for i, line := range strings.Split(page, "\n") {
		words, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && fenced:
			inside, fenced = false, false
		case fence:
			fields := strings.Fields(words)
			fenced = true
			if inside = len(fields) > 0 && fields[0] == language; !inside {
				continue
			}
			if len(fields) == 1 {
				return nil, fmt.Errorf("%d: the transcript names no device", i+1)
			}
			all = append(all, Transcript{Line: i + 1, Targets: fields[1:]})
		case inside:
			if err := all[len(all)-1].add(line); err != nil {
				return nil, fmt.Errorf("%d: %w", i+1, err)
			}
		}
	}
	if fenced {
		return nil, fmt.Errorf("%d: the last block has no end", strings.Count(page, "\n")+1)
	}
	return all, nil
}

// add adds a line.
func (s *Transcript) add(line string) error {
	if more, ok := strings.CutPrefix(line, "    "); ok && len(s.Steps) > 0 {
		s.Steps[len(s.Steps)-1].Text += more
		return nil
	}
	kind, text, _ := strings.Cut(line, " ")
	switch kind {
	case ">", ">>", "<", "#":
		s.Steps = append(s.Steps, Step{kind, text})
		return nil
	}
	return fmt.Errorf("%q is not a line of a transcript", line)
}

// Run has the conversation with a device that ends its messages with a line feed. Establish is
// called with each condition; it may be nil. Probe is a request without a line end, and its
// answer: they show at the end that nothing more was sent than the page says.
func (s Transcript) Run(t testing.TB, device io.ReadWriter, establish func(condition string), probe, answer string) {
	t.Helper()
	in := bufio.NewReader(device)
	write := func(text string) {
		t.Helper()
		if _, err := io.WriteString(device, text); err != nil {
			t.Fatalf("line %d: %v", s.Line, err)
		}
	}
	expect := func(want string) {
		t.Helper()
		got, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("line %d: got %q and %v, want %s", s.Line, got, err, want)
		}
		if got = strings.TrimRight(got, "\r\n"); !Match(want, got) {
			t.Fatalf("line %d: the page and the device differ\ngot  %s\nwant %s", s.Line, got, want)
		}
	}
	together := ""
	for i, step := range s.Steps {
		switch step.Kind {
		case ">":
			together += step.Text + "\n"
			if i+1 == len(s.Steps) || s.Steps[i+1].Kind != ">" {
				write(together)
				together = ""
			}
		case ">>":
			write(step.Text)
		case "<":
			expect(step.Text)
		case "#":
			if establish == nil {
				t.Fatalf("line %d: nothing establishes %q", s.Line, step.Text)
			}
			establish(step.Text)
		}
	}
	write(probe + "\n")
	expect(answer)
}

// Match reports whether a text is as a pattern says. … in it stands for any text.
func Match(pattern, text string) bool {
	parts := strings.Split(pattern, "…")
	last := len(parts) - 1
	if last == 0 {
		return pattern == text
	}
	rest, ok := strings.CutPrefix(text, parts[0])
	for _, part := range parts[1:last] {
		if !ok {
			return false
		}
		_, rest, ok = strings.Cut(rest, part)
	}
	return ok && strings.HasSuffix(rest, parts[last])
}
