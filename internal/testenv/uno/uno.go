//go:build linux

// Package uno is an Arduino Uno for tests: an emulated ATmega328P runs firmware that
// speaks MCP/U, and its serial line is a pty.
//
//	test -- pty -- USART0 --.
//	test -- commands -- runner (simavr) -- firmware
//
// Firmware and runner are built from the C files here, once per process. Bytes take as
// long as on a real line, and bytes that overrun the chip's buffers are lost.
//
// MCP/U pin 2 is a button (D2), 9 a fan (B1, PWM), 13 the LED (B5) and 14 a light sensor
// (analog channel 0).
package uno

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Options configure a board. The zero value is a board at 115200 baud in real time that
// waits for the end of a line.
type Options struct {
	Baud  int  // 115200 if zero
	Large bool // eight pins and eight tools: a list of 2.6 KB
	// Kiln adds start_kiln, kiln_status and stop_kiln, a job that the board does by itself. A
	// second of the job lasts so long. The LED is on while the kiln fires.
	Kiln      time.Duration
	Fragments bool // parses a request before its line has ended, as library 1.1 and later do
	Fast      bool // ignores the baud rate
	Strict    bool // garbles bytes if the host has another baud rate

	// Sketch is an Arduino sketch that runs instead of the firmware of this package: the name
	// of an example in docs/firmware, or a folder. It is built with these Flags.
	Sketch string
	Flags  string

	// BootTime is how long the board ignores input after its port is opened, which
	// resets it. Its output is lost while the port is closed. If zero, the board does
	// not notice whether the port is open, and nothing is lost.
	BootTime time.Duration

	Link string // path of a symbolic link to the port, which survives Replug
}

// Edge is a change of an output.
type Edge struct {
	High  bool
	Cycle uint64 // of the chip's clock, 16 million per second
}

// Board is a running board. Its methods fail the test if the board has ended, and must
// be called by the goroutine of the test.
type Board struct {
	t       testing.TB
	link    string
	run     *exec.Cmd
	stdin   io.WriteCloser
	answers chan string // to commands; closed when the runner has ended
	end     sync.Once
	port    string

	mu     sync.Mutex
	edges  map[string][]Edge
	resets int
}

// Start builds and runs a board, which ends with the test or with this process. If the
// tools are missing, it skips the test, except in CI.
func Start(t testing.TB, o Options) *Board {
	t.Helper()
	runner, firmware := build(t, o)
	b := &Board{t: t, link: o.Link, answers: make(chan string, 1), edges: make(map[string][]Edge)}
	b.run = exec.Command(runner, append(o.flags(), firmware)...)
	b.run.Stderr = t.Output()
	stdin, err := b.run.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := b.run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.run.Start(); err != nil {
		t.Fatalf("starting the board: %v", err)
	}
	b.stdin = stdin
	go b.listen(stdout)
	t.Cleanup(b.Close)
	b.port = b.answer("PTY")
	return b
}

func (o Options) flags() []string {
	var flags []string
	if o.Fast {
		flags = append(flags, "-f")
	}
	if o.Strict {
		flags = append(flags, "-s")
	}
	if o.BootTime > 0 {
		flags = append(flags, "-d", strconv.FormatInt(o.BootTime.Milliseconds(), 10))
	}
	if o.Link != "" {
		flags = append(flags, "-l", o.Link)
	}
	return flags
}

// listen stores events and passes on answers.
func (b *Board) listen(stdout io.Reader) {
	defer close(b.answers)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var pin string
		var level int
		var cycle uint64
		line := lines.Text()
		if n, _ := fmt.Sscanf(line, "PIN %s %d %d", &pin, &level, &cycle); n == 3 {
			b.mu.Lock()
			b.edges[pin] = append(b.edges[pin], Edge{level != 0, cycle})
			b.mu.Unlock()
		} else if strings.HasPrefix(line, "RESET ") {
			b.mu.Lock()
			b.resets++
			b.mu.Unlock()
		} else {
			b.answers <- line
		}
	}
}

// timeout bounds every wait for the board. On a busy machine the kernel may take seconds
// to close a pty.
const timeout = time.Minute

// answer waits for an answer that starts with a word and returns the rest of it.
func (b *Board) answer(word string) string {
	b.t.Helper()
	select {
	case line, ok := <-b.answers:
		if !ok {
			b.t.Fatalf("the board has ended")
		}
		first, rest, _ := strings.Cut(line, " ")
		if first != word {
			b.t.Fatalf("the board answered %q, want %s", line, word)
		}
		return rest
	case <-time.After(timeout):
		b.t.Fatalf("no answer from the board, want %s", word)
	}
	return ""
}

// command sends a command to the runner and returns its answer. All earlier edges are
// then stored.
func (b *Board) command(word, format string, args ...any) string {
	b.t.Helper()
	if _, err := fmt.Fprintf(b.stdin, format+"\n", args...); err != nil {
		b.t.Fatalf("the board has ended: %v", err)
	}
	return b.answer(word)
}

func (b *Board) number(word, format string, args ...any) int {
	b.t.Helper()
	rest := b.command(word, format, args...)
	n, err := strconv.Atoi(rest)
	if err != nil {
		b.t.Fatalf("the board answered %s %q", word, rest)
	}
	return n
}

// Path returns the path of the serial port, or of the link if there is one.
func (b *Board) Path() string {
	if b.link != "" {
		return b.link
	}
	return b.port
}

// ADC sets the voltage of an analog channel, up to 5000 millivolts. Channel 0 is the
// light sensor.
func (b *Board) ADC(channel, millivolts int) {
	b.t.Helper()
	b.command("OK", "adc %d %d", channel, millivolts)
}

// Drive sets the level of an input; "D2" is the button.
func (b *Board) Drive(pin string, high bool) {
	b.t.Helper()
	level := 0
	if high {
		level = 1
	}
	b.command("OK", "pin %s %d", pin, level)
}

// Pin returns the level of a pin; "B5" is the LED.
func (b *Board) Pin(pin string) bool {
	b.t.Helper()
	return b.number("LEVEL", "pin %s", pin) != 0
}

// WaitPin waits until a pin has a level.
func (b *Board) WaitPin(pin string, high bool) {
	b.t.Helper()
	for end := time.Now().Add(timeout); b.Pin(pin) != high; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("pin %s is not %t", pin, high)
		}
	}
}

// Edges returns all changes of an output.
func (b *Board) Edges(pin string) []Edge {
	b.t.Helper()
	b.Cycle()
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.edges[pin])
}

// Resets returns the number of resets.
func (b *Board) Resets() int {
	b.t.Helper()
	b.Cycle()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.resets
}

// PWM returns the duty of the fan, as set in the timer.
func (b *Board) PWM() int {
	b.t.Helper()
	return b.number("PWM", "pwm")
}

// Waiting returns how many bytes the host has sent that the chip has not read.
func (b *Board) Waiting() int {
	b.t.Helper()
	return b.number("WAITING", "waiting")
}

// Cycle returns the time of the chip's clock.
func (b *Board) Cycle() uint64 {
	b.t.Helper()
	var cycle uint64
	if _, err := fmt.Sscan(b.command("CYCLES", "cycles"), &cycle); err != nil {
		b.t.Fatal(err)
	}
	return cycle
}

// Reset pushes the reset button, as opening the port of a real Uno does.
func (b *Board) Reset() {
	b.t.Helper()
	b.command("OK", "reset")
}

// Pause stops the board for a while; zero resumes it.
func (b *Board) Pause(d time.Duration) {
	b.t.Helper()
	b.command("OK", "pause %d", d.Milliseconds())
}

// Hangup removes the port. The board keeps its power.
func (b *Board) Hangup() {
	b.t.Helper()
	b.command("OK", "hangup")
}

// Replug restores the port. It may have another path; the link stays the same.
func (b *Board) Replug() {
	b.t.Helper()
	b.port = b.command("PTY", "replug")
}

// Close ends the board. It may be called more than once.
func (b *Board) Close() {
	b.end.Do(func() {
		b.stdin.Close()
		for range b.answers {
		}
		b.run.Wait()
	})
}
