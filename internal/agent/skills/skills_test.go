package skills_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/skills"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// board returns the manifest of a board, with what an overlay adds.
func board() *ferrule.Manifest {
	m := &ferrule.Manifest{
		Model: "Sim Board", Version: "1.2", Title: "a board", Instructions: "Switch on the fan first.",
		Tools: []ferrule.Tool{
			{Name: "read", Text: "Reads a pin.", Effect: ferrule.Reads, Input: json.RawMessage(`{"type":"object","properties":{"pin":{"type":"integer"}}}`)},
			{Name: "heat", Text: "Heats.", Effect: ferrule.Endangers, Secrets: []string{"code"}, Deadline: ferrule.Duration(time.Minute)},
			{Name: "blink", Effect: ferrule.Changes, Idempotent: true},
		},
		Pins: []ferrule.Pin{{Number: 7, Name: "led", Type: "digital_output"}, {Number: 2, Text: "A button.", Sampling: &ferrule.Sampling{Interval: ferrule.Duration(time.Second), Size: 20}}},
		Stop: &ferrule.Action{Tool: "blink"},
	}
	low := json.Number("0")
	m.Tools[1].Limits = &ferrule.Limits{Rate: &ferrule.Rate{Calls: 6, Per: ferrule.Duration(time.Minute)}, Range: map[string]ferrule.Range{"b": {Min: low}, "a": {Min: low}}}
	m.Tools[1].Lease = &ferrule.Lease{For: ferrule.Duration(time.Minute), Then: ferrule.Undo{Tool: "blink"}}
	return m
}

func all(m *ferrule.Manifest) (tools []*ferrule.Tool) {
	for i := range m.Tools {
		tools = append(tools, &m.Tools[i])
	}
	return tools
}

func make1(m *ferrule.Manifest) *skills.Skill { return skills.Kind("0123456789abcdef", m, all(m)) }

// TestSameBytes checks that the skill of a Kind does not depend on the order in which the
// device lists its tools and pins, or on what is not part of the Kind.
func TestSameBytes(t *testing.T) {
	want := make1(board())
	for range 200 {
		m := board()
		rand.Shuffle(len(m.Tools), func(i, j int) { m.Tools[i], m.Tools[j] = m.Tools[j], m.Tools[i] })
		rand.Shuffle(len(m.Pins), func(i, j int) { m.Pins[i], m.Pins[j] = m.Pins[j], m.Pins[i] })
		m.Notes = []string{fmt.Sprint(rand.Int())}
		for i := range m.Tools {
			if m.Tools[i].Name == "read" {
				m.Tools[i].Input = json.RawMessage(`{ "properties": {"pin": {"type": "integer"}}, "type": "object" }`)
			}
		}
		if got := make1(m); !reflect.DeepEqual(got, want) {
			t.Fatalf("got\n%+v\nwant\n%+v", got, want)
		}
	}
	changed := board()
	changed.Tools[0].Text = "Reads a pin!"
	if got := make1(changed); got.Name == want.Name {
		t.Error("another text has the same name")
	}
	m := board()
	if got := skills.Kind("0123456789abcdef", m, all(m)[:2]); got.Name == want.Name || strings.Contains(text(got), "blink") {
		t.Error("a hidden tool is in the skill")
	}
}

func text(s *skills.Skill) (text string) {
	for _, f := range s.Files {
		text += f.Text
	}
	return text
}

// TestContent checks what the files say.
func TestContent(t *testing.T) {
	s := make1(board())
	for file, want := range map[string][]string{
		"SKILL.md": {"- `heat`: can do harm; do not repeat", "- `read`: reads, safe to repeat", "Ferrule calls `blink`", "references/pins.md", "skill://ferrule/use-ferrule/SKILL.md"},
		"references/tools.md": {"> Reads a pin.\n", `{"properties":{"pin":{"type":"integer"}},"type":"object"}`, "`{\"rate\":\"6/m\",\"range\":{\"a\":{\"min\":0},\"b\":{\"min\":0}}}`",
			"undoes a call after 1m0s, by calling `blink`", "Secret arguments: `code`", "up to 1m0s"},
		"references/device.md": {"> Sim Board\n", "> Switch on the fan first.\n"},
		"references/pins.md":   {"Name: `led`", "> A button.", "every 1s and keeps 20"},
	} {
		f := s.File(s.URI + "/" + file)
		if f == nil {
			t.Fatalf("%s is missing", file)
		}
		for _, w := range want {
			if !strings.Contains(f.Text, w) {
				t.Errorf("%s lacks %q:\n%s", file, w, f.Text)
			}
		}
	}
	if main := s.File(s.Main()).Text; strings.Contains(main, "fan") || strings.Contains(main, "Reads a pin") {
		t.Errorf("SKILL.md has a text of the device:\n%s", main)
	}
	check(t, s)
}

// TestDirectories checks the entries of each directory.
func TestDirectories(t *testing.T) {
	s := make1(board())
	names := func(uri string) (names []string) {
		for _, c := range s.Children(uri) {
			names = append(names, c.Name)
			if (c.File == nil) != (c.Name == "references") || c.URI != uri+"/"+c.Name {
				t.Errorf("%+v", c)
			}
		}
		return names
	}
	if got := names(s.URI); !slices.Equal(got, []string{"SKILL.md", "references"}) {
		t.Errorf("got %q", got)
	}
	if got := names(s.URI + "/references"); !slices.Equal(got, []string{"device.md", "pins.md", "tools.md"}) {
		t.Errorf("got %q", got)
	}
	for _, uri := range []string{s.Main(), s.URI + "/", s.URI + "/ref", "skill://ferrule", "", s.URI + "/references/tools.md"} {
		if got := s.Children(uri); got != nil {
			t.Errorf("%q is a directory: %+v", uri, got)
		}
	}
}

var naming = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// check checks what holds for each skill.
func check(t *testing.T, s *skills.Skill) {
	t.Helper()
	if !naming.MatchString(s.Name) || len(s.Name) > 64 || !strings.HasSuffix(s.URI, "/"+s.Name) || !strings.HasPrefix(s.URI, skills.Root) {
		t.Errorf("name %q at %s", s.Name, s.URI)
	}
	if len(s.Description) > 1024 || s.Description == "" || strings.ContainsAny(s.Description, "\n\"\\") {
		t.Errorf("description %q", s.Description)
	}
	front := "---\nname: " + s.Name + "\ndescription: \"" + s.Description + "\"\n---\n\n"
	if f := s.File(s.Main()); f == nil || !strings.HasPrefix(f.Text, front) {
		t.Errorf("SKILL.md: %+v", f)
	}
	size := 0
	for _, f := range s.Files {
		size += f.Size
	}
	if len(s.Files) > 512 || size > 16<<20 || len(s.Files) < 2 {
		t.Errorf("%d files, %d bytes", len(s.Files), size)
	}
	for _, f := range s.Files {
		sum := sha256.Sum256([]byte(f.Text))
		if f.Digest != "sha256:"+hex.EncodeToString(sum[:]) || len(f.Text) != f.Size || f.Size > 300<<10 {
			t.Errorf("%s: %s, %d bytes", f.Path, f.Digest, len(f.Text))
		}
		if ferrule.Clean(f.Text, len(f.Text)) != f.Text {
			t.Errorf("%s has hidden characters", f.Path)
		}
	}
}

// outside returns the lines of a file that are neither quoted nor in a code block, without
// code spans: what a reader takes for words of Ferrule.
func outside(text string) string {
	var b strings.Builder
	fence := ""
	for _, line := range strings.Split(text, "\n") {
		switch ticks := line[:len(line)-len(strings.TrimLeft(line, "`"))]; {
		case fence != "":
			if line == fence {
				fence = ""
			}
		case len(ticks) >= 3 && strings.TrimLeft(line, "`") == "json":
			fence = ticks
		case !strings.HasPrefix(line, "> "):
			b.WriteString(spans(line) + "\n")
		}
	}
	return b.String()
}

// spans removes the code spans of a line, as CommonMark has them.
func spans(line string) (rest string) {
	run := regexp.MustCompile("`+")
	for {
		at := run.FindStringIndex(line)
		if at == nil {
			return rest + line
		}
		rest += line[:at[0]]
		fence := line[at[0]:at[1]]
		line = line[at[1]:]
		end := 0
		for {
			next := run.FindStringIndex(line[end:])
			if next == nil { // not a span
				rest, end = rest+fence, -1
				break
			}
			if line[end+next[0]:end+next[1]] == fence {
				line = line[end+next[1]:]
				break
			}
			end += next[1]
		}
	}
}

// FuzzHostile checks that nothing that a device says can be taken for words of Ferrule.
func FuzzHostile(f *testing.F) {
	f.Add("IGNORE", "IGNORE")
	f.Add("`x` IGNORE", "a\n\nIGNORE")
	f.Add("a\n# IGNORE", "```\nIGNORE\n~~~")
	f.Add("\r\nIGNORE---\n", "\u2028IGNORE\u202e<!-- IGNORE -->")
	f.Add("``", "`````\n> IGNORE")
	f.Fuzz(func(t *testing.T, name, said string) {
		// The marker stands for all that a device says: it is in each name and text.
		const marker = "Q7Z"
		name, said = name+marker, said+"\n"+marker+"\n"+said+marker
		schema, err := json.Marshal(map[string]string{"description": said})
		if err != nil {
			t.Skip()
		}
		m := &ferrule.Manifest{
			Model: said, Version: name, Title: said, Platform: said, Instructions: said,
			Tools: []ferrule.Tool{{Name: name, Text: said, Input: schema, Secrets: []string{name}, Class: said, Title: said, Lease: &ferrule.Lease{Then: ferrule.Undo{Tool: name}}}},
			Pins:  []ferrule.Pin{{Name: name, Type: said, Text: said}},
			Stop:  &ferrule.Action{Tool: name},
		}
		for range 2 { // as it is, and after the check of manifests
			s := make1(m)
			check(t, s)
			for _, file := range s.Files {
				if got := outside(file.Text); strings.Contains(got, marker) {
					t.Errorf("%s:\n%s\nof\n%s", file.Path, got, file.Text)
				}
			}
			m.Bound()
		}
	})
}

// TestLimits checks the sizes of the skill of the largest manifest.
func TestLimits(t *testing.T) {
	m := &ferrule.Manifest{Model: strings.Repeat("M", 1000), Instructions: strings.Repeat("x", 1<<20)}
	for i := range 2000 {
		m.Tools = append(m.Tools, ferrule.Tool{
			Name: fmt.Sprintf("tool%d%s", i, strings.Repeat("n", 200)), Text: strings.Repeat("y", 10000),
			Input: json.RawMessage(`{"description":"` + strings.Repeat("z", 70_000) + `"}`),
		})
		m.Pins = append(m.Pins, ferrule.Pin{Number: i, Text: strings.Repeat("p", 10000)})
	}
	s := make1(m)
	check(t, s)
	for file, want := range map[string]string{"SKILL.md": "more, in `references/tools.md`", "references/tools.md": "more tools are left out", "references/pins.md": "more pins are left out"} {
		if f := s.File(s.URI + "/" + file); f == nil || !strings.Contains(f.Text, want) {
			t.Errorf("%s does not say %q", file, want)
		}
	}
}

// TestGateway checks that the gateway's skill names only tools that exist.
func TestGateway(t *testing.T) {
	every := skills.Gateway(func(string) bool { return true })
	check(t, every)
	names := regexp.MustCompile(`gateway__(\w+)`)
	for _, m := range names.FindAllStringSubmatch(text(every), -1) {
		if m[1] == "call_tool" {
			continue // there whenever find_tools is
		}
		without := skills.Gateway(func(tool string) bool { return tool != m[1] })
		if strings.Contains(text(without), m[0]) {
			t.Errorf("%s is named if it does not exist", m[0])
		}
		check(t, without)
	}
	for _, word := range []string{"may have run", "approve", "stop_devices", "Measurements", "wait_for", "find_devices"} {
		if !strings.Contains(text(every), word) {
			t.Errorf("the skill lacks %q", word)
		}
	}
}
