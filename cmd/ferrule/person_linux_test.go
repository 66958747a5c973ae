package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/screen"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// hostileText is what a device would write to move the cursor, to color text, or to look
// like a prompt.
const hostileText = "\x1b[2J\x1b[31mred\x1b]0;title\x07\r\u202eevil\nsecond line"

// typist is somebody at a terminal who runs a program.
type typist struct {
	t     *testing.T
	shown *screen.Screen
	keys  io.Writer
	cmd   *exec.Cmd
	ended chan struct{}
}

// atTerminal runs ferrule on a terminal of its own, in which Ctrl-C works.
func atTerminal(t *testing.T, dir string, args ...string) *typist {
	t.Helper()
	f, shown, keys := openKeyboard(t, 100, 60, nil)
	p := &typist{t: t, shown: shown, keys: keys, cmd: exec.Command("ferrule", args...), ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = dir, f, f, f
	p.cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=1")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.cmd.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
		if _, styled, unknown, _ := shown.History(); styled || unknown != "" {
			t.Errorf("unknown escape sequences %q, colored %t", unknown, styled)
		}
	})
	return p
}

// all returns everything that was shown.
func (p *typist) all() string {
	scrolled, _, _, _ := p.shown.History()
	return strings.Join(append(scrolled, p.shown.Text()), "\n")
}

// sees waits until the screen shows a text.
func (p *typist) sees(text string) {
	p.t.Helper()
	p.until(fmt.Sprintf("%q on the screen", text), func() bool { return strings.Contains(p.all(), text) })
}

// answers waits for a prompt at the end of the screen, and types a line.
func (p *typist) answers(prompt, line string) {
	p.t.Helper()
	p.until(fmt.Sprintf("the prompt %q", prompt), func() bool { return strings.HasSuffix(p.all(), prompt) })
	before := p.all()
	io.WriteString(p.keys, line+"\n")
	p.until("something after "+prompt, func() bool { return p.all() != before })
}

func (p *typist) until(what string, is func() bool) {
	p.t.Helper()
	for end := time.Now().Add(ample); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("missing %s; the screen:\n%s", what, p.all())
		}
	}
}

// ends waits for the end of the program, and checks its exit code. That only known escape
// sequences were shown is checked at the end of the test.
func (p *typist) ends(code int) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(ample):
		p.t.Fatalf("it does not end; the screen:\n%s", p.all())
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("got exit code %d, want %d; the screen:\n%s", got, code, p.all())
	}
}

// painting is the input of the painter's tool.
const painting = `{"type":"object","properties":{
	"color":{"type":"string","enum":["red","green","blue"],"description":"Which color\u001b[31m"},
	"strokes":{"type":"integer","minimum":1,"maximum":10,"default":3},
	"gloss":{"type":"boolean"},
	"title":{"type":"string","description":"A title"}
},"required":["color","gloss"]}`

// painter is a device that draws pictures, and asks where to put its name. It counts its
// calls.
func painter(calls *atomic.Int32) *mcpserver.Device {
	board := thing.New("painter", "1.0.0")
	d := mcpserver.New(board, mcpserver.Config{})
	type corner struct {
		Corner string `json:"corner" jsonschema:"Which corner"`
		Sign   bool   `json:"sign"`
	}
	thing.Tool(board, "paint", "Paint a picture "+hostileText, func(ctx context.Context, in map[string]any) (any, error) {
		asked, err := mcpserver.AskUser[corner](ctx, "corner", "Where may I sign? "+hostileText)
		if err != nil {
			return nil, err
		}
		for i := range 4 {
			mcpserver.Progress(ctx, float64(i+1), 4, "stroke "+hostileText)
			time.Sleep(50 * time.Millisecond)
		}
		calls.Add(1)
		text, _ := json.Marshal(in)
		return thing.Parts{fmt.Sprintf("%s signed at %s %t", text, asked.Corner, asked.Sign), thing.Image{MIME: "image/png", Data: []byte("a picture")}}, nil
	}, thing.WithSchema(json.RawMessage(painting)), thing.Unchecked())
	return d
}

// switchable is a lamp that can be switched and read.
func switchable(name string) *mcpserver.Device {
	board := thing.New(name, "1.0.0")
	var on atomic.Bool
	type lamp struct {
		On bool `json:"on"`
	}
	thing.Tool(board, "switch", "Switch the lamp", func(_ context.Context, want lamp) (lamp, error) {
		on.Store(want.On)
		return want, nil
	})
	thing.Tool(board, "state", "Read the lamp", func(context.Context, struct{}) (lamp, error) { return lamp{on.Load()}, nil }, thing.Reads())
	return mcpserver.New(board, mcpserver.Config{})
}

// startPainter starts a gateway with a painter that may ask, and with lamps.
func startPainter(t *testing.T, calls *atomic.Int32) commandLine {
	t.Helper()
	c := newCommandLine(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"overlays/painter.yaml": questionsOf("painter"), "ferrule.yaml": "overlays: " + filepath.Join(dir, "overlays") + "\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--config", filepath.Join(dir, "ferrule.yaml"), "--http", "painter=" + serveThing(t, painter(calls))}
	for _, name := range []string{"lamp-1", "lamp-2"} {
		args = append(args, "--http", name+"="+serveThing(t, switchable(name)))
	}
	c.up(args...)
	for _, name := range []string{"painter", "lamp-1", "lamp-2"} {
		c.until(name, ferrule.StateOnline)
	}
	return c
}

// TestPersonAtTerminal is a person's session: arguments by prompts, a question of the
// device, progress with numbers, and a picture in a file.
func TestPersonAtTerminal(t *testing.T) {
	var calls atomic.Int32
	c := startPainter(t, &calls)
	dir := t.TempDir()
	p := atTerminal(t, dir, "call", "painter", "paint", "--output", "picture.png")
	p.sees("paint of painter. Paint a picture")
	p.answers("color (red, green, blue):", "pink")
	p.sees("color must be one of red, green, blue.")
	p.answers("color (red, green, blue):", "green")
	p.answers("gloss (yes or no):", "maybe")
	p.sees(`gloss must be yes or no, got "maybe".`)
	p.answers("gloss (yes or no):", "y")
	p.answers("strokes (number from 1 to 10) [3]:", "11")
	p.sees("strokes must be")
	p.answers("strokes (number from 1 to 10) [3]:", "7")
	p.answers("title (text) [skip]:", "")
	p.sees("The device asks:")
	p.sees("  | painter: Where may I sign?")
	p.sees("  | second line")
	p.answers("corner (text):", "top left")
	p.answers("sign (yes or no):", "yes")
	p.ends(0)
	for _, want := range []string{"#] 4 of 4 (100%) stroke", "picture.png (image/png, 9 bytes).", `signed at top left true`, `\"strokes\":7`} {
		p.sees(want)
	}
	if strings.Contains(p.all(), `\"title\"`) {
		t.Errorf("a skipped argument was sent:\n%s", p.all())
	}
	if data, err := os.ReadFile(filepath.Join(dir, "picture.png")); err != nil || string(data) != "a picture" {
		t.Errorf("got %q, %v", data, err)
	}
	if calls.Load() != 1 {
		t.Errorf("it painted %d times", calls.Load())
	}

	// Ctrl-D before the call: nothing ran. Ctrl-C at the question of the device: the call
	// was sent, and the device says what it did.
	p = atTerminal(t, dir, "call", "painter", "paint")
	p.sees("color (red, green, blue):")
	io.WriteString(p.keys, "\x04")
	p.ends(exitNotRun)
	p.sees("paint was not called: not confirmed")
	p = atTerminal(t, dir, "call", "painter", "paint", "color=red")
	p.answers("gloss (yes or no):", "no") // only what is required is asked for
	p.sees("corner (text):")
	io.WriteString(p.keys, "\x03")
	p.ends(exitMaybe)
	p = atTerminal(t, dir, "call", "painter", "paint", "color=red", "gloss=true")
	p.sees("corner (text):")
	io.WriteString(p.keys, "\x04") // declines
	p.ends(exitRefused)
	if calls.Load() != 1 {
		t.Errorf("it painted %d times", calls.Load())
	}

	// Without a terminal nothing is asked.
	c.want(exitNotRun, "color is missing; gloss is missing", "call", "painter", "paint")
	p = atTerminal(t, dir, "call", "painter", "paint", "--json")
	p.ends(exitNotRun)
}

// TestPersonCallsMany checks one confirmation for all devices, and one outcome for each.
func TestPersonCallsMany(t *testing.T) {
	var calls atomic.Int32
	c := startPainter(t, &calls)
	p := atTerminal(t, t.TempDir(), "call", "*", "switch", "on=true")
	p.sees("switch of 2 devices:")
	p.sees("Left out, because they have no such tool: painter.")
	p.answers("Call it on all of them? [y/N]", "n")
	p.ends(exitNotRun)
	p.sees("switch was not called: not confirmed")
	for _, name := range []string{"lamp-1", "lamp-2"} {
		c.want(0, `"on":false`, "call", name, "state")
	}
	p = atTerminal(t, t.TempDir(), "call", "lamp-?", "switch")
	p.answers("on (yes or no):", "on")
	p.answers("Call it on all of them? [y/N]", "yes")
	p.ends(0)
	p.sees("lamp-1  done")
	p.sees("lamp-2  done")
	c.want(0, "lamp-1  done  {\"on\":true}\nlamp-2  done  {\"on\":true}\n", "call", "lamp-*", "state")

	c.want(exitUsage, "switch of 2 devices needs confirmation: add --yes", "call", "lamp-*", "switch", "on=true")
	c.want(exitNotRun, "no device matches", "call", "robot-*", "switch", "--yes")
	c.want(exitNotRun, "no device that matches", "call", "lamp-*", "fly", "--yes")
	c.want(exitUsage, "--output names one file", "call", "lamp-*", "state", "--output", "x")
	c.want(exitNotRun, "lamp-1  invalid", "call", "lamp-*", "switch", "on=7", "--yes")

	// One of them is released: the other one was called, so the exit code says so.
	c.want(0, "lamp-2 is released", "release", "lamp-2")
	c.want(exitMaybe, "the call succeeded on 1 of 2 devices, may have run on 0, and did not run on 1", "call", "lamp-*", "switch", "on=false", "--yes")
	c.want(exitMaybe, "lamp-2  busy", "call", "lamp-*", "switch", "on=false", "--yes")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"call", "lamp-*", "state", "--json"}, &stdout, &stderr)
	var out []struct {
		Device string
		Result map[string]bool
		Error  *ferrule.Error
	}
	if err := json.Unmarshal(stdout.Bytes(), &out); err != nil || code != exitMaybe || len(out) != 2 || out[0].Result == nil || out[1].Error == nil || out[1].Error.Code != ferrule.Busy {
		t.Errorf("got %d, %v and\n%s\n%s", code, err, &stdout, &stderr)
	}
	c.want(exitUsage, "switch of 1 device needs confirmation: add --yes", "call", "lamp-2*", "switch", "on=true")
	c.want(exitNotReached, "the call did not run on any of 1 device", "call", "lamp-2*", "switch", "on=false", "--yes")
}

// TestDescribe checks what `ferrule describe` says, without escape sequences of the device.
func TestDescribe(t *testing.T) {
	var calls atomic.Int32
	c := startPainter(t, &calls)
	p := atTerminal(t, t.TempDir(), "describe", "painter")
	p.ends(0)
	for _, want := range []string{"painter  painter 1.0.0  online", "connected      http at 127.0.0.1:", "protocol mcp", "trust          adopted as ", "may ask its callers questions", "paint  changes", `color: string "red" or "green" or "blue"`} {
		p.sees(want)
	}
	c.want(0, `"signals":[]`, "describe", "painter", "--json")
	c.want(exitNotRun, `there is no device "toaster"`, "describe", "toaster")
}

// promptLine matches a prompt with its answer in a recorded session.
var promptLine = regexp.MustCompile(`(?m)^(  \S+ \(.*\)(?: \[.*\])?:) ?(.*)$`)

// TestPersonPage runs the session in the documentation.
func TestPersonPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/use-devices-at-a-terminal.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```text\n$ ferrule ")
	session, _, _ := strings.Cut(rest, "```")
	command, want, ok := strings.Cut(strings.TrimSpace(session), "\n")
	if !ok {
		t.Fatal("the page has no session")
	}
	c := newCommandLine(t)
	c.up("--tcp", "robot="+startSim(t, sim.Config{}).Addrs()[0])
	c.until("robot", ferrule.StateOnline)
	p := atTerminal(t, t.TempDir(), strings.Fields(command)...)
	for _, prompt := range promptLine.FindAllStringSubmatch(want, -1) {
		p.answers(prompt[1], prompt[2])
	}
	p.ends(0)
	p.until("the session of the page", func() bool { return p.all() == want })
}

// TestReleaseCtrlC: Ctrl-C ends the command, and the port is taken back at once.
func TestReleaseCtrlC(t *testing.T) {
	c := newCommandLine(t)
	c.up("--tcp", "robot="+startSim(t, sim.Config{}).Addrs()[0])
	c.until("robot", ferrule.StateOnline)
	p := atTerminal(t, t.TempDir(), "release", "robot", "--", "sh", "-c", "echo begun; sleep 600")
	p.sees("begun")
	c.until("robot", ferrule.StateReleased)
	io.WriteString(p.keys, "\x03")
	p.ends(130)
	p.sees("robot is online.")
	if d := c.device("robot"); d.State != string(ferrule.StateOnline) {
		t.Errorf("got %+v", d)
	}
}
