package entity_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/entity"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/template"
	"github.com/ferrulehq/ferrule/internal/schema"
)

var update = flag.Bool("update", false, "rewrite what testdata expects")

// TestScripts describes the entities in testdata and runs their scripts. A script has lines
// of the form
//
//	call TOOL ARGUMENTS
//	said TOPIC PAYLOAD
//
// The result lists tools and states, what each call publishes, or why it is refused, and
// what each message says. It marks the states that confirm the last call with a +.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parts := map[string]*txtar.File{}
			for i := range archive.Files {
				parts[archive.Files[i].Name] = &archive.Files[i]
			}
			got := play(t, string(parts["config"].Data), string(parts["script"].Data))
			if *update {
				parts["want"].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if want := string(parts["want"].Data); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// play runs a script against a config, which is a topic and a payload.
func play(t *testing.T, config, script string) string {
	t.Helper()
	topic, payload, _ := strings.Cut(config, "\n")
	at, ok := discovery.ParseTopic("homeassistant", topic)
	if !ok {
		t.Fatal("not a topic of discovery:", topic)
	}
	message, err := discovery.Parse(at, []byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	d := entity.Describe(&message.Entities[0])
	var out strings.Builder
	for _, tool := range d.Tools {
		fmt.Fprintf(&out, "tool %s (%s)%s %s\n", tool.Name, tool.Class, marks(tool), tool.Input)
		for _, topic := range tool.Topics { // equal devices have different ones
			if shown := fmt.Sprint(tool.Tool); strings.Contains(shown, topic) {
				t.Errorf("%s shows the topic %s: %s", tool.Name, topic, shown)
			}
		}
	}
	for _, s := range d.States {
		fmt.Fprintf(&out, "state %s%s\n", s.Name, stateMarks(s))
	}
	for _, note := range d.Notes {
		fmt.Fprintf(&out, "note %s\n", note)
	}
	var last entity.Command
	for line := range strings.Lines(script) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 3)
		fmt.Fprintf(&out, "> %s\n", strings.Join(words, " "))
		switch words[0] {
		case "call":
			last = call(t, &out, d, words[1], words[2])
		case "said":
			said(&out, d, last, words[1], words[2])
		default:
			t.Fatal("unknown line:", line)
		}
	}
	return out.String()
}

func marks(tool entity.Tool) (text string) {
	if tool.UserOnly {
		text += " user only"
	}
	if len(tool.Secrets) > 0 {
		text += fmt.Sprintf(" secret %v", tool.Secrets)
	}
	if tool.Quarantine != "" {
		text += fmt.Sprintf(" quarantine %q", tool.Quarantine)
	}
	return text
}

func stateMarks(s entity.State) (text string) {
	for _, mark := range []struct {
		is   bool
		text string
	}{{s.Unit != "", s.Unit}, {s.Signal, "signal"}, {s.Discrete, "discrete"}, {s.Event, "event"}, {s.Secret, "secret"}} {
		if mark.is {
			text += " " + mark.text
		}
	}
	return text
}

// call writes what a call publishes, and what has to confirm it.
func call(t *testing.T, out *strings.Builder, d entity.Described, name, text string) (c entity.Command) {
	t.Helper()
	at := slices.IndexFunc(d.Tools, func(tool entity.Tool) bool { return tool.Name == name })
	if at < 0 {
		t.Fatal("no such tool:", name)
	}
	tool := d.Tools[at]
	compiled, err := schema.Compile(tool.Input)
	if err != nil {
		t.Fatal(err)
	}
	args := map[string]any{}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&args); err != nil {
		t.Fatal(err)
	}
	if violations := compiled.Check(args); len(violations) > 0 {
		fmt.Fprintf(out, "  refused: %s\n", strings.Join(violations, "; "))
		return c
	}
	if c, err = tool.Command(args); err != nil {
		fmt.Fprintf(out, "  refused: %v\n", err)
		return entity.Command{}
	}
	for _, p := range c.Publish {
		if !slices.Contains(tool.Topics, p.Topic) {
			t.Errorf("%s publishes to %s, which is not in its topics %q", name, p.Topic, tool.Topics)
		}
		fmt.Fprintf(out, "  publish %s %s\n", p.Topic, p.Payload)
	}
	for _, e := range c.Expect {
		if !slices.ContainsFunc(d.States, func(s entity.State) bool { return s.Name == e.State }) {
			t.Errorf("%s is confirmed by %s, which is not a state", name, e.State)
		}
		word := "expect"
		if e.Fresh {
			word = "expect again"
		}
		fmt.Fprintf(out, "  %s %s within %v\n", word, e.State, c.Window)
	}
	if c.Rest != "" {
		fmt.Fprintf(out, "  until %s rests\n", c.Rest)
	}
	return c
}

// said writes what the states read in a message.
func said(out *strings.Builder, d entity.Described, last entity.Command, topic, payload string) {
	for _, s := range d.States {
		if s.Topic != topic {
			continue
		}
		text := payload
		if s.Template != nil {
			var err error
			if text, err = s.Template.Render(template.Payload([]byte(payload))); err != nil {
				continue
			}
		}
		v, ok := s.Convert(text)
		if !ok {
			continue
		}
		mark := "  "
		for _, e := range last.Expect {
			if e.State == s.Name && e.Matches(v) {
				mark = " +"
			}
		}
		fmt.Fprintf(out, "%s%s = %s", mark, s.Name, v.JSON)
		if !math.IsNaN(v.Number) && fmt.Sprint(v.Number) != string(v.JSON) {
			fmt.Fprintf(out, " (%v)", v.Number)
		}
		out.WriteString("\n")
	}
}

// TestCodes checks that no code appears in what is shown of an alarm panel, and that errors
// do not have one.
func TestCodes(t *testing.T) {
	for _, code := range []string{`"471108"`, `471108`} {
		d := describeEntity(t, "alarm_control_panel", "house", `{"cmd_t":"p/set","stat_t":"p","cmd_tpl":"{{ code.x.y }}","code":`+code+`}`)
		shown := fmt.Sprintf("%+v %+v", d.States, d.Notes)
		for _, tool := range d.Tools {
			text, err := json.Marshal(tool.Tool)
			if err != nil || !slices.Contains(tool.Secrets, "code") {
				t.Errorf("%s: secrets %q, %v", tool.Name, tool.Secrets, err)
			}
			shown += string(text)
			for _, given := range []string{"471108", "471109", ""} {
				_, err := tool.Command(map[string]any{"mode": "home", "code": given})
				if err == nil || strings.Contains(err.Error(), "4711") || (given == "471108") == (err.Error() == "wrong code") {
					t.Errorf("%s with %q: %v", tool.Name, given, err)
				}
			}
		}
		if strings.Contains(shown, "471108") {
			t.Error("the code is shown:", shown)
		}
	}
}

// TestOddLimits describes devices whose limits make no sense. Tools have usual ones, or are
// in quarantine; no number that is not one is published.
func TestOddLimits(t *testing.T) {
	for _, number := range []string{`0`, `-1`, `1e300`, `-1e300`, `1e999`, `"nan"`, `"inf"`, `"x"`, `null`, `[]`, `0.001`} {
		for component, config := range map[string]string{
			"light":      `{"schema":"json","cmd_t":"c","stat_t":"s","sup_clrm":["color_temp","white"],"bri_scl":N,"white_scale":N,"min_mireds":N}`,
			"cover":      `{"set_pos_t":"c","pos_t":"s","pos_open":N,"tilt_cmd_t":"c","tilt_max":N}`,
			"valve":      `{"cmd_t":"c","stat_t":"s","reports_position":true,"pos_clsd":N}`,
			"climate":    `{"temp_cmd_t":"c","temp_stat_t":"s","min_temp":N,"temp_step":N,"hum_cmd_t":"c","max_hum":N}`,
			"fan":        `{"pct_cmd_t":"c","pct_stat_t":"s","spd_rng_max":N}`,
			"humidifier": `{"hum_cmd_t":"c","hum_stat_t":"s","min_hum":N}`,
		} {
			d := describeEntity(t, component, "x", strings.ReplaceAll(config, "N", number))
			for _, tool := range d.Tools {
				if _, err := schema.Compile(tool.Input); err != nil {
					t.Errorf("%s %s %s: %v", component, number, tool.Name, err)
				}
				c, err := tool.Command(map[string]any{"on": true, "position": json.Number("50"), "tilt": json.Number("50"), "percentage": json.Number("50"), "temperature": json.Number("20"), "humidity": json.Number("50")})
				for _, p := range c.Publish {
					if strings.ContainsAny(string(p.Payload), "fF") && tool.Quarantine == "" && component != "light" {
						t.Errorf("%s %s %s: publishes %s", component, number, tool.Name, p.Payload)
					}
				}
				if err != nil {
					t.Errorf("%s %s %s: %v", component, number, tool.Name, err)
				}
			}
			for _, s := range d.States {
				if v, ok := s.Convert("50"); ok && !json.Valid(v.JSON) {
					t.Errorf("%s %s %s: %s", component, number, s.Name, v.JSON)
				}
			}
		}
	}
}
