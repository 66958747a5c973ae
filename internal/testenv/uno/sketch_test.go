//go:build linux

package uno_test

import (
	"debug/elf"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var update = flag.Bool("update", false, "write the answers of the sketches into testdata")

// startSketch runs one of the examples, or a folder, and waits until it answers: the core
// takes a moment to start, and has no boot line.
func startSketch(t *testing.T, sketch string, o uno.Options) (*uno.Board, *host) {
	t.Helper()
	o.Sketch = sketch
	b := uno.Start(t, o)
	h := connect(t, b, unix.B115200)
	for end := time.Now().Add(timeout); ; {
		h.write("\n" + getInfo + "\n")
		if h.read(1, 100*time.Millisecond) != "" {
			h.line()
			break
		}
		if time.Now().After(end) {
			t.Fatal("the sketch does not answer")
		}
	}
	if o.Flags == "-DDIRECT" { // it does not understand requests
		for h.read(1, 300*time.Millisecond) != "" {
		}
		return b, h
	}
	h.write("\n" + `{"jsonrpc":"2.0","id":"ready","method":"get_info"}` + "\n")
	for !strings.Contains(h.line(), `"id":"ready"`) {
	}
	return b, h
}

// TestSketches replays testdata/sketches on the examples: > is a request, < is its answer.
func TestSketches(t *testing.T) {
	files, err := filepath.Glob("testdata/sketches/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		sketch := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(sketch, func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			b, h := startSketch(t, sketch, uno.Options{Fast: true})
			b.ADC(0, 2500)
			var got strings.Builder
			for line := range strings.Lines(string(archive.Files[0].Data)) {
				request, ok := strings.CutPrefix(line, "> ")
				if !ok {
					continue
				}
				got.WriteString(line)
				// The answer to get_info comes behind that of the request, if there is one.
				h.write(request + `{"jsonrpc":"2.0","id":"end","method":"get_info"}` + "\n")
				for answer := h.line(); !strings.Contains(answer, `"id":"end"`); answer = h.line() {
					if !json.Valid([]byte(answer)) {
						t.Errorf("not JSON: %s", answer)
					}
					got.WriteString("< " + strings.TrimSuffix(answer, "\r\n") + "\n")
				}
			}
			if *update {
				archive.Files[0].Data = []byte(got.String())
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := string(archive.Files[0].Data); got.String() != want {
				t.Errorf("got\n%swant\n%s", got.String(), want)
			}
		})
	}
}

// TestSketchMemory checks what mcpu.h says: half of the memory of an Uno is left, and more
// than a third of its flash.
func TestSketchMemory(t *testing.T) {
	for _, sketch := range []string{"sensor", "relay", "motor", "sampling"} {
		f, err := elf.Open(uno.Sketch(t, sketch, ""))
		if err != nil {
			t.Fatal(err)
		}
		size := func(name string) int { return int(f.Section(name).Size) }
		memory, flash := size(".data")+size(".bss"), size(".text")+size(".data")
		t.Logf("%s: %d bytes of memory, %d of flash", sketch, memory, flash)
		if memory > 1024 || flash > 20<<10 {
			t.Errorf("%s needs %d bytes of memory and %d of flash", sketch, memory, flash)
		}
		f.Close()
	}
}

// TestWholeLines: a sketch with mcpu.h waits for the end of a line, however it arrives, and
// understands requests that are longer than the core's buffer of 64 bytes.
func TestWholeLines(t *testing.T) {
	t.Parallel()
	b, h := startSketch(t, "relay", uno.Options{})
	const done = `{"result":{"pin":4,"name":"pump","value":true},"jsonrpc":"2.0","id":1}` + "\r\n"
	on := `{"jsonrpc":"2.0","id":1,"method":"gpio_write","params":{"pin":4,"value":true}}`
	padded := func(n int) string { return strings.Replace(on, ":4,", ":4"+strings.Repeat(" ", n-len(on))+",", 1) }

	for _, pause := range []time.Duration{0, 5 * time.Millisecond} {
		for i := 0; i < len(on); i += 7 {
			h.write(on[i:min(i+7, len(on))])
			time.Sleep(pause)
		}
		h.write("\r\n")
		h.expect(done)
	}
	h.write(on[:20])
	h.silent(time.Second)
	h.write(on[20:] + "\n")
	h.expect(done)
	for _, n := range []int{len(on), 120, 200, 255} {
		h.write(padded(n) + "\n")
		h.expect(done)
	}
	// Beyond that nothing is done, and the error has the ID.
	h.do("all_off", "{}")
	for _, n := range []int{256, 257, 320, 321, 1000, 5000} {
		h.write(padded(n) + "\n")
		h.expect(`{"error":{"code":-32600,"message":"The request is too long"},"jsonrpc":"2.0","id":1}` + "\r\n")
	}
	h.write(strings.Repeat("x", 3000) + "\n")
	h.expect(`{"error":{"code":-32600,"message":"The request is too long"},"jsonrpc":"2.0","id":0}` + "\r\n")
	if b.Pin("D4") {
		t.Error("a request that is too long was executed")
	}
	// The second request arrives while the board sends its list.
	h.write(`{"jsonrpc":"2.0","id":2,"method":"list_tools"}` + "\n" + on + "\n" + getInfo + "\n")
	if list := h.line(); !json.Valid([]byte(list)) || !strings.HasSuffix(list, `"id":2}`+"\r\n") {
		t.Errorf("got %s", list)
	}
	h.expect(done)
	h.line()
	// A burst that no board of this size can keep: what is lost is answered with errors, and
	// the next request works.
	h.write(strings.Repeat(on+"\n", 50))
	for h.read(1, 300*time.Millisecond) != "" {
	}
	h.write("\n")
	for h.read(1, 100*time.Millisecond) != "" {
	}
	h.write(on + "\n")
	h.expect(done)
}

// TestLineStream shows both weak points of the library's receive loop on the Arduino core:
// it parses pieces of a request, and cannot have one that is longer than the core's 64 bytes
// while it is busy. Through a LineStream the same loop understands every request.
func TestLineStream(t *testing.T) {
	t.Parallel()
	const answer = `{"result":{"device":"lines","version":"1.0.0","platform":"arduino","pin_count":1,"memory_profile":"low"},"jsonrpc":"2.0","id":1}` + "\r\n"
	const failed = `{"error":{"code":-32700,"message":"Parse error"},"jsonrpc":"2.0","id":0}` + "\r\n"
	long := strings.Replace(getInfo, "}", strings.Repeat(" ", 150)+"}", 1)

	t.Run("direct", func(t *testing.T) {
		t.Parallel()
		_, h := startSketch(t, "testdata/lines", uno.Options{Flags: "-DDIRECT"})
		for _, request := range []string{getInfo, long} {
			h.write(request + "\n")
			h.expect(failed)
			for h.read(1, 300*time.Millisecond) != "" {
			}
		}
	})
	t.Run("LineStream", func(t *testing.T) {
		t.Parallel()
		b, h := startSketch(t, "testdata/lines", uno.Options{})
		for range 20 {
			h.write(getInfo + "\n")
			h.expect(answer)
		}
		h.write(long + "\r\n")
		h.expect(answer)
		h.write(getInfo[:10])
		h.silent(100 * time.Millisecond)
		h.write(getInfo[10:] + "\n\n")
		h.expect(answer)
		h.write(strings.Replace(getInfo, "}", strings.Repeat(" ", 400)+"}", 1) + "\n")
		h.expect(failed)
		h.do("gpio_write", `{"pin":13,"value":true}`)
		if !b.Pin("B5") {
			t.Error("the LED is off")
		}
	})
}

// TestSensor turns a voltage into percent.
func TestSensor(t *testing.T) {
	t.Parallel()
	b, h := startSketch(t, "sensor", uno.Options{Fast: true})
	type soil struct{ Percent, Raw int }
	for millivolts, want := range map[int]soil{5000: {0, 1023}, 1466: {100, 299}, 2688: {50, 549}} {
		b.ADC(0, millivolts)
		if got := call[soil](h, "read_soil", "{}"); got != want {
			t.Errorf("at %d mV: %+v, want %+v", millivolts, got, want)
		}
	}
}

// TestMotor: the motor stops by itself, or when it is told to, and refuses what is out of
// range without moving.
func TestMotor(t *testing.T) {
	t.Parallel()
	b, h := startSketch(t, "motor", uno.Options{Fast: true})
	for params, problem := range map[string]string{
		`{"speed":256,"seconds":1}`:   "speed must be an integer from -255 to 255",
		`{"speed":1.5,"seconds":1}`:   "speed must be an integer from -255 to 255",
		`{"speed":"100","seconds":1}`: "speed must be an integer from -255 to 255",
		`{"speed":100}`:               "seconds must be an integer from 1 to 30",
		`{"speed":100,"seconds":1e1}`: "seconds must be an integer from 1 to 30",
	} {
		h.write(`{"jsonrpc":"2.0","id":1,"method":"move","params":` + params + "}\n")
		h.expect(fmt.Sprintf(`{"error":{"code":-32602,"message":%q},"jsonrpc":"2.0","id":1}`+"\r\n", problem))
	}
	if b.PWM() != 0 {
		t.Error("the motor moves")
	}
	h.do("move", `{"speed":-200,"seconds":1}`)
	if b.PWM() != 200 || !b.Pin("B0") {
		t.Errorf("the motor has duty %d, direction %t", b.PWM(), b.Pin("B0"))
	}
	type status struct {
		Moving bool
		Left   int `json:"left_ms"`
	}
	if got := call[status](h, "status", "{}"); !got.Moving || got.Left < 1 || got.Left > 1000 {
		t.Errorf("moving: %+v", got)
	}
	for end := time.Now().Add(timeout); b.PWM() != 0; {
		if time.Now().After(end) {
			t.Fatal("the motor does not stop by itself")
		}
	}
	h.do("move", `{"speed":100,"seconds":30}`)
	h.do("stop", "{}")
	if got := call[status](h, "status", "{}"); b.PWM() != 0 || b.Pin("B1") || got != (status{}) {
		t.Errorf("stopped: %+v, duty %d", got, b.PWM())
	}
	if edges := b.Edges("B1"); len(edges) > 0 && edges[len(edges)-1].High {
		t.Error("the pin is high")
	}
}

// TestSampling checks the claims of the list against the chip's clock, and the thresholds.
func TestSampling(t *testing.T) {
	t.Parallel()
	b, h := startSketch(t, "sampling", uno.Options{})
	type summary struct {
		Latest, Min, Max, Samples int
		Avg                       float64
	}
	read := func() summary { return call[summary](h, "get_pin_summary", `{"pin":14}`) }
	latest := func(raw int) {
		t.Helper()
		wait.For(t, fmt.Sprintf("a sample of %d", raw), func() bool { return read().Latest == raw })
	}
	// The list takes longer than a sample, and none is missed. The chip goes on while this
	// process does not, so the time between two reads is known from below and from above.
	begun := b.Cycle()
	first := read()
	after := b.Cycle()
	n := 0
	var before uint64
	wait.For(t, "40 samples", func() bool {
		h.do("list_tools", "{}")
		before = b.Cycle()
		n = read().Samples - first.Samples
		return n >= 40
	})
	chip := func(cycles uint64) time.Duration { return time.Duration(cycles) * time.Second / 16e6 }
	least, most := chip(before-after), chip(b.Cycle()-begun)
	if want := time.Duration(n) * 100 * time.Millisecond; most < want-150*time.Millisecond || least > want+150*time.Millisecond {
		t.Errorf("%d samples in %v to %v, want one every 100ms", n, least, most)
	}
	events := func() string {
		return string(call[struct{ Events json.RawMessage }](h, "get_pin_events", `{"pin":"light"}`).Events)
	}
	for millivolts, want := range map[int]string{
		0:    `[{"type":"threshold_low","value":0,"threshold":100}]`,
		2500: `[]`,
		5000: `[{"type":"threshold_high","value":1023,"threshold":900}]`,
	} {
		b.ADC(0, millivolts)
		raw := millivolts * 1023 / 5000
		latest(raw)
		if got := events(); got != want {
			t.Errorf("at %d mV the events are %s", millivolts, got)
		}
	}
	b.ADC(0, 1000)
	type buffer struct {
		Pin    string
		Count  int
		Values []int
	}
	all := func() buffer { return call[buffer](h, "get_pin_buffer", `{"pin":14,"limit":20}`) }
	var full buffer
	wait.For(t, "a full buffer", func() bool {
		full = all()
		return full.Values[0] == 204
	})
	if full.Pin != "light" || full.Count != 20 || !slices.Equal(full.Values, slices.Repeat([]int{204}, 20)) {
		t.Errorf("the buffer is %+v", full)
	}
	b.ADC(0, 2000)
	latest(409)
	if mixed := all(); mixed.Values[0] != 204 || mixed.Values[19] != 409 || !slices.IsSorted(mixed.Values) {
		t.Errorf("the buffer is %+v", mixed)
	}
	if got := call[buffer](h, "get_pin_buffer", `{"pin":14,"limit":3}`); got.Count != 20 || len(got.Values) != 3 {
		t.Errorf("three of 20 samples are %+v", got)
	}
	if s := read(); s.Min != 0 || s.Max != 1023 || s.Avg <= 0 || s.Avg >= 1023 {
		t.Errorf("the summary is %+v", s)
	}
}

// TestNames checks that what the pages for firmware authors name is in the header, and that
// their example of a tool compiles.
func TestNames(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(uno.Examples(), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	header, page := read("mcpu.h"), read("README.md")
	names := regexp.MustCompile(`\b(?i:mcpu)_\w+`).FindAllString(page+read("../tutorial/first-firmware.md"), -1)
	if len(names) < 20 {
		t.Errorf("the pages have only the names %q", names)
	}
	for _, name := range names {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(header) {
			t.Errorf("mcpu.h has no %s", name)
		}
	}
	tool := regexp.MustCompile("(?s)```cpp\n(.*?)```").FindStringSubmatch(page)
	if tool == nil || !strings.Contains(tool[1], "// ...") {
		t.Fatalf("the page has the tool %q", tool)
	}
	sketch := filepath.Join(t.TempDir(), "tool")
	if err := os.Mkdir(sketch, 0o755); err != nil {
		t.Fatal(err)
	}
	text := `#include "mcpu.h"` + "\n" + strings.Replace(tool[1], "// ...", `mcpu_begin("tool", "1.0.0");`, 1) + "void loop() { mcpu_loop(Serial); }\n"
	if err := os.WriteFile(sketch+"/tool.ino", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	uno.Sketch(t, sketch, "")
}

// TestESP32 compiles the sketch for ESP32 against stubs. It is not run.
func TestESP32(t *testing.T) {
	if _, err := exec.LookPath("g++"); err != nil && os.Getenv("CI") == "" {
		t.Skip("needs g++")
	}
	out, err := exec.Command("g++", "-std=gnu++17", "-Wall", "-Wextra", "-Werror", "-DARDUINO=10819", "-I"+uno.Examples(), "-Itestdata/esp32",
		"-include", "Arduino.h", "-x", "c++", "-c", "-o", filepath.Join(t.TempDir(), "esp32.o"), filepath.Join(uno.Examples(), "esp32/esp32.ino")).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(uno.Examples(), "esp32/esp32.ino"))
	if err != nil || !strings.HasPrefix(string(text), "// NOT RUN:") {
		t.Errorf("the sketch does not say that it was not run: %v", err)
	}
}
