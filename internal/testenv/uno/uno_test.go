//go:build linux

package uno_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestTranscripts replays testdata: > is a request, < is its answer, which ends in CR
// LF. A request without an answer is ignored by the board.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			b, h := start(t, uno.Options{Fast: true})
			b.ADC(0, 2500)
			for line := range strings.Lines(string(archive.Files[0].Data)) {
				if request, ok := strings.CutPrefix(line, "> "); ok {
					h.write(request)
				} else {
					h.expect(strings.TrimSuffix(strings.TrimPrefix(line, "< "), "\n") + "\r\n")
				}
			}
			h.silent(50 * time.Millisecond)
		})
	}
}

func TestLED(t *testing.T) {
	t.Parallel()
	b, h := start(t, uno.Options{})
	if b.Pin("B5") || b.Pin("B1") {
		t.Error("outputs are not low at boot")
	}
	h.do("gpio_write", `{"pin":13,"value":true}`)
	if !b.Pin("B5") {
		t.Error("the LED is off")
	}
	h.do("gpio_write", `{"pin":13,"value":true}`)
	h.write(`{"jsonrpc":"2.0","id":7,"method":"gpio_write","params":{"pin":269,"value":false}}` + "\n")
	b.WaitPin("B5", false)
	h.expect(`{"result":{"pin":13,"name":"led","value":false},"jsonrpc":"2.0","id":7}` + "\r\n")
	var levels []bool
	for _, e := range b.Edges("B5") {
		levels = append(levels, e.High)
	}
	if !slices.Equal(levels, []bool{false, true, false}) {
		t.Errorf("the LED was %v", levels)
	}
}

func TestButton(t *testing.T) {
	t.Parallel()
	b, h := start(t, uno.Options{Fast: true})
	for _, high := range []bool{true, false} {
		b.Drive("D2", high)
		if got := call[struct{ Value bool }](h, "gpio_read", `{"pin":2}`); got.Value != high {
			t.Errorf("the button is %t, want %t", got.Value, high)
		}
	}
}

func TestPWM(t *testing.T) {
	t.Parallel()
	b, h := start(t, uno.Options{Fast: true})
	for duty, want := range map[int]int{1: 1, 128: 128, 255: 255, 0: 0, 300: 300, -1: 65535} {
		h.do("pwm_write", fmt.Sprintf(`{"pin":9,"duty":%d}`, duty))
		if got := b.PWM(); got != want {
			t.Errorf("after duty %d the timer has %d, want %d", duty, got, want)
		}
	}
}

func TestADC(t *testing.T) {
	t.Parallel()
	b, h := start(t, uno.Options{Fast: true})
	type reading struct{ Value, Mv int }
	for millivolts, want := range map[int]reading{0: {0, 0}, 1000: {204, 658}, 2500: {511, 1648}, 3300: {675, 2177}, 5000: {1023, 3300}} {
		b.ADC(0, millivolts)
		if got := call[reading](h, "adc_read", `{"pin":14}`); got != want {
			t.Errorf("at %d mV: got %+v, want %+v", millivolts, got, want)
		}
	}
}

type buffer struct {
	Pin    string
	Count  int
	Values []int
}

type summary struct {
	Pin, Latest, Min, Max, Samples int
	Name                           string
	Avg                            float64
}

// TestSamples fills the buffer with one voltage, then waits for another at its end.
func TestSamples(t *testing.T) {
	t.Parallel()
	b, h := start(t, uno.Options{Fast: true})
	all := func() buffer { return call[buffer](h, "get_pin_buffer", `{"pin":"light","limit":100}`) }
	fill := func(millivolts, raw int) {
		b.ADC(0, millivolts)
		for got := all(); got.Count < 20 || got.Values[0] != raw; got = all() {
		}
	}
	fill(1000, 204)
	b.ADC(0, 5000)
	got := all()
	for ; got.Values[19] != 1023; got = all() {
	}
	if got.Pin != "light" || got.Count != 20 || len(got.Values) != 20 || got.Values[0] != 204 || !slices.IsSorted(got.Values) {
		t.Errorf("the buffer is %+v", got)
	}
	if got := call[buffer](h, "get_pin_buffer", `{"pin":14}`); got.Count != 20 || !slices.Equal(got.Values, slices.Repeat([]int{204}, 10)) {
		t.Errorf("the oldest ten are %+v", got)
	}
	if got := call[buffer](h, "get_pin_buffer", `{"pin":14,"limit":3}`); !slices.Equal(got.Values, []int{204, 204, 204}) {
		t.Errorf("the oldest three are %+v", got)
	}
	if got := call[buffer](h, "get_pin_buffer", `{"pin":14,"limit":0}`); got.Count != 20 || got.Values == nil || len(got.Values) != 0 {
		t.Errorf("no samples are %+v", got)
	}
	if got := all(); got.Count != 20 {
		t.Errorf("reading emptied the buffer: %+v", got)
	}
	if s := call[summary](h, "get_pin_summary", `{"pin":"light"}`); s.Pin != 14 || s.Name != "light" || s.Latest != 1023 || s.Max != 1023 || s.Min > 204 || s.Samples <= 20 || s.Avg <= 0 || s.Avg >= 1023 {
		t.Errorf("the summary is %+v", s)
	}
	const none, high, low = `[]`, `[{"type":"threshold_high","value":1023,"threshold":900}]`, `[{"type":"threshold_low","value":0,"threshold":100}]`
	events := func() string {
		return string(call[struct{ Events json.RawMessage }](h, "get_pin_events", `{"pin":14}`).Events)
	}
	if got := events(); got != high {
		t.Errorf("events are %s", got)
	}
	fill(2500, 511)
	if got := events(); got != none {
		t.Errorf("events are %s", got)
	}
	fill(0, 0)
	if got := events(); got != low {
		t.Errorf("events are %s", got)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	_, h := start(t, uno.Options{Fast: true})
	padded := func(n int) string {
		const head, tail = `{"jsonrpc":"2.0","id":1,"method":"get_info","params":"`, `"}`
		return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
	}
	h.write("\r\n\n" + getInfo + "\r\n")
	h.expect(info)
	for _, c := range getInfo + "\n" {
		h.write(string(c))
	}
	h.expect(info)
	h.write(padded(255) + "\n")
	h.expect(info)
	h.write(padded(256) + "\n") // too long: it is split, and so is the answer
	h.expect(unparsed + unparsed)
	h.write(getInfo + "\n" + getInfo + "\n")
	h.expect(info + info)
	h.write(getInfo) // without a line end, it is answered after a second
	h.silent(500 * time.Millisecond)
	h.expect(info)
}

// TestOverrun sends a second request while the board is busy sending. Bytes beyond its
// 64-byte buffer are lost, including the line end.
func TestOverrun(t *testing.T) {
	t.Parallel()
	_, h := start(t, uno.Options{})
	h.write(`{"jsonrpc":"2.0","id":1,"method":"list_tools"}` + "\n" +
		`{"jsonrpc":"2.0","id":2,"method":"get_pin_buffer","params":{"pin":"light","limit":5}}` + "\n")
	if line := h.line(); !strings.Contains(line, `"id":1}`) {
		t.Fatalf("got %s", line)
	}
	h.silent(300 * time.Millisecond)
	h.write(getInfo + "\n")
	h.expect(unparsed)
	h.write(getInfo + "\n")
	h.expect(info)
}

// TestFragments: with Fragments, the board parses the first byte or two as a request, and
// the bytes that arrive meanwhile as further requests. A fragment that begins with a
// string is valid JSON but not a request.
func TestFragments(t *testing.T) {
	t.Parallel()
	_, h := start(t, uno.Options{Fragments: true})
	for range 3 {
		h.write(getInfo + "\n")
		var output strings.Builder
		for c := h.read(1, timeout); c != ""; c = h.read(1, 200*time.Millisecond) {
			output.WriteString(c)
		}
		pieces := slices.Collect(strings.Lines(output.String()))
		if len(pieces) < 2 || pieces[0] != unparsed || slices.ContainsFunc(pieces, func(p string) bool { return p != unparsed && p != invalid }) {
			t.Errorf("got %q", pieces)
		}
	}
}

// TestSpacesBeforeFragments: while the board rejects leading spaces, a short request
// behind them arrives complete.
func TestSpacesBeforeFragments(t *testing.T) {
	t.Parallel()
	_, h := start(t, uno.Options{Fragments: true})
	for range 5 {
		h.write(strings.Repeat(" ", 20) + getInfo + "\n")
		h.expect(unparsed + unparsed + info)
	}
}

// bootTime is long enough to set the speed of a port after it was opened.
const bootTime = 200 * time.Millisecond

// TestLineTime: bytes take no less time than on a real line.
func TestLineTime(t *testing.T) {
	for name, test := range map[string]struct {
		options uno.Options
		speed   uint32
		baud    int // actual rate of the chip's divider
		bytes   int
	}{
		"115200":     {uno.Options{Strict: true, BootTime: bootTime}, unix.B115200, 117647, 1510},
		"9600 large": {uno.Options{Strict: true, BootTime: bootTime, Large: true, Baud: 9600}, unix.B9600, 9615, 2609},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := uno.Start(t, test.options)
			h := connect(t, b, test.speed)
			h.expect(bootLine)
			begin, cycle := time.Now(), b.Cycle()
			const request = `{"jsonrpc":"2.0","id":1,"method":"list_tools"}` + "\n"
			h.write(request)
			line := h.line()
			took, chip := time.Since(begin), time.Duration(b.Cycle()-cycle)*time.Second/16e6
			if len(line) != test.bytes || !json.Valid([]byte(line)) {
				t.Errorf("the list has %d bytes, want %d: %s", len(line), test.bytes, line)
			}
			want := time.Duration(len(request)+len(line)) * 10 * time.Second / time.Duration(test.baud)
			if took < want*98/100 || chip < want*98/100 {
				t.Errorf("took %v, %v of the chip's time; want %v", took, chip, want)
			}
			figure.AtMost(t, "the chip's time for a list", chip, want*108/100+50*time.Millisecond)
		})
	}
}

func TestWrongBaud(t *testing.T) {
	t.Parallel()
	_, h := start(t, uno.Options{Strict: true, BootTime: bootTime})
	h.setSpeed(unix.B57600)
	h.write(getInfo + "\n")
	h.silent(100 * time.Millisecond) // the line end is garbled, too
	h.setSpeed(unix.B115200)
	h.write("\n")
	h.expect(unparsed)
	h.write(getInfo + "\n")
	h.expect(info)
}

type uptime struct {
	Ms    int
	Reset string
}

// TestReboot: a reset sets the outputs low and keeps the counts.
func TestReboot(t *testing.T) {
	t.Parallel()
	b, h := start(t, uno.Options{Fast: true})
	if got := call[uptime](h, "uptime", "{}"); got.Reset != "power" {
		t.Errorf("uptime is %+v", got)
	}
	h.do("count", `{"token":"a"}`)
	for i, test := range []struct {
		cause string
		reset func()
	}{
		{"watchdog", func() { h.do("reboot", "{}") }},
		{"external", b.Reset},
	} {
		h.do("gpio_write", `{"pin":13,"value":true}`)
		h.do("pwm_write", `{"pin":9,"duty":100}`)
		test.reset()
		h.expect(bootLine)
		if b.Pin("B5") || b.PWM() != 0 || b.Resets() != i+1 {
			t.Errorf("after %d resets the LED is %t and the fan is %d", b.Resets(), b.Pin("B5"), b.PWM())
		}
		if got := call[uptime](h, "uptime", "{}"); got.Reset != test.cause {
			t.Errorf("uptime is %+v, want %s", got, test.cause)
		}
	}
	type counted struct{ Total, Repeats, Runs int }
	if got := call[counted](h, "count", `{"token":"a"}`); got.Runs != 2 {
		t.Errorf("count is %+v", got)
	}
	if got := call[counted](h, "runs", `{}`); got != (counted{Total: 2, Repeats: 1}) {
		t.Errorf("runs is %+v", got)
	}
}

// TestHangup: without its port, the board keeps its power and its outputs.
func TestHangup(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "tty")
	b, h := start(t, uno.Options{Link: link})
	h.do("gpio_write", `{"pin":13,"value":true}`)
	b.Hangup()
	h.port.SetReadDeadline(time.Now().Add(timeout))
	if n, err := h.port.Read(make([]byte, 1)); n != 0 || !errors.Is(err, unix.EIO) && !errors.Is(err, io.EOF) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if _, err := h.port.WriteString("x"); !errors.Is(err, unix.EIO) {
		t.Errorf("writing: %v", err)
	}
	if _, err := os.Lstat(link); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link: %v", err)
	}
	b.Replug()
	h = connect(t, b, unix.B115200)
	h.write(getInfo + "\n")
	h.expect(info)
	if b.Resets() != 0 || !b.Pin("B5") {
		t.Error("the board was reset")
	}
	b.Close()
	if _, err := os.Lstat(link); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link after Close: %v", err)
	}
}

// TestBootTime: each open of the port resets the board.
func TestBootTime(t *testing.T) {
	t.Parallel()
	b := uno.Start(t, uno.Options{BootTime: 2 * time.Second})
	for i := range 2 {
		h := connect(t, b, unix.B115200)
		wait.For(t, "a reset", func() bool { return b.Resets() == i+1 })
		h.write(getInfo + "\n") // ignored while the board boots
		h.expect(bootLine)
		h.silent(50 * time.Millisecond)
		h.write(getInfo + "\n")
		h.expect(info)
		if n := b.Resets(); n != i+1 {
			t.Errorf("%d resets after opening the port %d times", n, i+1)
		}
		h.port.Close()
		b.Cycle() // before the second answer, the board looks whether the port is open
		b.Cycle()
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	b, h := start(t, uno.Options{Fast: true})
	b.Pause(time.Minute)
	h.write(getInfo + "\n")
	h.silent(100 * time.Millisecond)
	b.Pause(0)
	h.expect(info)
}

// childEnv holds the link of the board that TestChild starts.
const childEnv = "UNO_CHILD"

// TestChild is run by the tests below in a process of its own.
func TestChild(t *testing.T) {
	link := os.Getenv(childEnv)
	if link == "" {
		t.Skip("other tests run this")
	}
	uno.Start(t, uno.Options{Link: link})
	time.Sleep(10 * time.Minute) // its parent ends it
}

func child(t *testing.T, link string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = slices.Concat(os.Environ(), []string{childEnv + "=" + link}, env)
	return cmd
}

// TestEndsWithParent: when a process is killed, its board ends and removes its link.
func TestEndsWithParent(t *testing.T) {
	t.Parallel()
	uno.Start(t, uno.Options{}).Close() // skips if tools are missing
	link := filepath.Join(t.TempDir(), "tty")
	exists := func() bool {
		_, err := os.Lstat(link)
		return err == nil
	}
	cmd := child(t, link)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the child builds the board", exists)
	cmd.Process.Kill()
	cmd.Wait()
	wait.For(t, "the link is gone", func() bool { return !exists() })
}

// TestMissingTools: without compilers a test is skipped, except in CI, where it fails.
func TestMissingTools(t *testing.T) {
	t.Parallel()
	for ci, want := range map[string]string{"": "--- SKIP", "1": "--- FAIL"} {
		out, _ := child(t, "unused", "PATH=", "CI="+ci).CombinedOutput()
		if !strings.Contains(string(out), want) || !strings.Contains(string(out), "gcc-avr") {
			t.Errorf("with CI=%q: %s", ci, out)
		}
	}
}

// TestKiln checks the job: it goes on by itself, ends by itself or by stop_kiln, and does not
// survive a reset; the number of starts does.
func TestKiln(t *testing.T) {
	t.Parallel()
	b, h := start(t, uno.Options{Fast: true, Kiln: 10 * time.Millisecond})
	type status struct {
		Job, Left, Starts int
		State             string
	}
	ask := func() status { return call[status](h, "kiln_status", "{}") }
	if got := call[status](h, "start_kiln", `{"seconds":50}`); got.Job != 1 || got.State != "firing" || got.Left == 0 || !b.Pin("B5") {
		t.Errorf("started: %+v", got)
	}
	b.WaitPin("B5", false)
	if got := ask(); got != (status{1, 0, 1, "done"}) {
		t.Errorf("ended: %+v", got)
	}
	h.do("start_kiln", `{"seconds":30000}`)
	if got := call[status](h, "stop_kiln", "{}"); got != (status{2, 0, 2, "stopped"}) || b.Pin("B5") {
		t.Errorf("stopped: %+v", got)
	}
	h.do("start_kiln", `{"seconds":30000}`)
	b.Reset()
	b.WaitPin("B5", false)
	h.expect("\r\nMCP-U ready\r\n")
	if got := ask(); got != (status{0, 0, 3, "idle"}) {
		t.Errorf("reset: %+v", got)
	}
}
