//go:build linux

// Package uno is an Arduino Uno for tests: an emulated ATmega328P runs firmware
// of ours that speaks MCP/U, and its serial line is a pty.
//
//	test ── pty ── USART0 ┐
//	test ── commands ───── runner (simavr) ── firmware
//
// Firmware and runner are built from the C files here, once per process. Bytes
// take as long as on a wire, and what a small chip loses is lost.
//
// As MCP/U numbers them, pin 2 is a button (D2), 9 a fan (B1, PWM), 13 the LED
// (B5) and 14 a light sensor (analog channel 0).
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

// Options are what a board is to be like. The zero value is a board at 115200
// baud in real time that waits for the end of a line.
type Options struct {
	Baud      int  // 115200 if zero
	Large     bool // eight pins and eight tools: a list of 2.6 KB
	Fragments bool // takes for a request what has arrived, as library 1.1 and later do
	Fast      bool // does not take the time that a wire takes
	Strict    bool // spoils what a host with another baud sends and gets

	// BootTime is how long the board is deaf after its port is opened, which
	// resets it; what it says while nobody has opened it is lost. If zero, it
	// does not know whether the port is open, and nothing is lost.
	BootTime time.Duration

	Link string // path of a link to the port, to outlive a replug
}

// Edge is a change of an output.
type Edge struct {
	High  bool
	Cycle uint64 // of the chip's clock, 16 million in a second
}

// Board is a board that runs. Its methods end the test if the board is dead, and
// are called by the goroutine of the test.
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

// Start builds and runs a board, which ends with the test or with this process.
// The test is skipped where the tools are missing, except in CI.
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

// listen keeps events and hands over answers.
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

// patience bounds the wait for anything that a board does. On a busy machine the
// kernel may take seconds to close a pty.
const patience = time.Minute

// answer waits for the answer to a command and returns what follows its word.
func (b *Board) answer(word string) string {
	b.t.Helper()
	select {
	case line, ok := <-b.answers:
		if !ok {
			b.t.Fatalf("the board is dead")
		}
		first, rest, _ := strings.Cut(line, " ")
		if first != word {
			b.t.Fatalf("the board says %q, want %s", line, word)
		}
		return rest
	case <-time.After(patience):
		b.t.Fatalf("the board says nothing, want %s", word)
	}
	return ""
}

// command gives the runner a command. All edges before it are known after it.
func (b *Board) command(word, format string, args ...any) string {
	b.t.Helper()
	if _, err := fmt.Fprintf(b.stdin, format+"\n", args...); err != nil {
		b.t.Fatalf("the board is dead: %v", err)
	}
	return b.answer(word)
}

func (b *Board) number(word, format string, args ...any) int {
	b.t.Helper()
	rest := b.command(word, format, args...)
	n, err := strconv.Atoi(rest)
	if err != nil {
		b.t.Fatalf("the board says %s %q", word, rest)
	}
	return n
}

// Path is where the serial port is: the link, if there is to be one.
func (b *Board) Path() string {
	if b.link != "" {
		return b.link
	}
	return b.port
}

// ADC puts a voltage on an analog channel; channel 0 is the light sensor. The
// chip measures up to 5000 millivolts.
func (b *Board) ADC(channel, millivolts int) {
	b.t.Helper()
	b.command("OK", "adc %d %d", channel, millivolts)
}

// Drive puts a level on an input; "D2" is the button.
func (b *Board) Drive(pin string, high bool) {
	b.t.Helper()
	level := 0
	if high {
		level = 1
	}
	b.command("OK", "pin %s %d", pin, level)
}

// Pin is the level of a pin; "B5" is the LED.
func (b *Board) Pin(pin string) bool {
	b.t.Helper()
	return b.number("LEVEL", "pin %s", pin) != 0
}

// WaitPin waits until a pin has a level.
func (b *Board) WaitPin(pin string, high bool) {
	b.t.Helper()
	for end := time.Now().Add(patience); b.Pin(pin) != high; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("pin %s is not %t", pin, high)
		}
	}
}

// Edges is how an output has changed, since the beginning.
func (b *Board) Edges(pin string) []Edge {
	b.t.Helper()
	b.Cycle()
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.edges[pin])
}

// Resets is how often the board has been reset, by whatever.
func (b *Board) Resets() int {
	b.t.Helper()
	b.Cycle()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.resets
}

// PWM is the duty of the fan as the timer has it.
func (b *Board) PWM() int {
	b.t.Helper()
	return b.number("PWM", "pwm")
}

// Cycle is the time on the chip's clock.
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

// Pause stops the board for a while; zero lets it go on.
func (b *Board) Pause(d time.Duration) {
	b.t.Helper()
	b.command("OK", "pause %d", d.Milliseconds())
}

// Hangup pulls the cable: the port is gone. The board keeps its power.
func (b *Board) Hangup() {
	b.t.Helper()
	b.command("OK", "hangup")
}

// Replug puts the cable back. The port may have another path; the link has not.
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
