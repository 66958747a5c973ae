//go:build linux

package uno_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/uno"
)

// program is an example for Linux, on standard input and output or on TCP.
type program struct {
	t     testing.TB
	out   io.Writer
	lines *bufio.Reader
	id    int
}

// sanitized are flags for checks of memory and arithmetic.
var sanitized = []string{"-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"}

// buildDesk builds the example for Linux. It returns the program and the folder that it takes
// for /sys.
func buildDesk(t testing.TB, flags ...string) (path, sys string) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil && os.Getenv("CI") == "" {
		t.Skip("needs gcc")
	}
	dir := t.TempDir()
	path, sys = filepath.Join(dir, "desk"), filepath.Join(dir, "sys")
	args := append([]string{"-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I" + uno.Examples(), "-o", path}, flags...)
	if out, err := exec.Command("gcc", append(args, filepath.Join(uno.Examples(), "linux/desk.c"))...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, value := range map[string]string{"class/thermal/thermal_zone0/temp": "42500\n", "class/leds/led0/brightness": "1\n"} {
		file := filepath.Join(sys, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return path, sys
}

// startDesk runs the program until the test ends.
func startDesk(t testing.TB, path, sys string, args ...string) *program {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "FOLDER="+sys, "ASAN_OPTIONS=detect_leaks=0")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if len(args) > 0 {
			cmd.Process.Kill()
		}
		err := cmd.Wait()
		if len(args) == 0 && err != nil || complaints.Len() > 0 {
			t.Errorf("the program ended: %v\n%s", err, complaints.Bytes())
		}
	})
	return &program{t: t, out: in, lines: bufio.NewReader(out)}
}

func (p *program) write(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.out, text); err != nil {
		p.t.Fatal(err)
	}
}

// begin writes while the test reads answers. The channel has the error.
func (p *program) begin(text string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := io.WriteString(p.out, text)
		ended <- err
	}()
	return ended
}

// next reads an answer. It must be JSON, on a line of its own.
func (p *program) next() string {
	p.t.Helper()
	line, err := p.lines.ReadString('\n')
	if err != nil || !json.Valid([]byte(line)) || !strings.HasSuffix(line, "}\r\n") {
		p.t.Fatalf("got %q, %v", line, err)
	}
	return strings.TrimSuffix(line, "\r\n")
}

// call returns the answer without the ID.
func (p *program) call(method, params string) string {
	p.t.Helper()
	p.id++
	p.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", p.id, method, params))
	answer := p.next()
	rest, ok := strings.CutSuffix(answer, fmt.Sprintf(`,"jsonrpc":"2.0","id":%d}`, p.id))
	if !ok {
		p.t.Fatalf("%s %s was answered with %s", method, params, answer)
	}
	return rest
}

func (p *program) calls(tests [][3]string) {
	p.t.Helper()
	for _, test := range tests {
		if got := p.call(test[0], test[1]); got != test[2] {
			p.t.Errorf("%s %s: got %s, want %s", test[0], test[1], got, test[2])
		}
	}
}

// TestDesk runs the example for Linux.
func TestDesk(t *testing.T) {
	path, sys := buildDesk(t, sanitized...)
	t.Run("TCP", func(t *testing.T) { deskTCP(t, path, sys) })
	t.Run("standard input", func(t *testing.T) { deskStdin(t, path, sys) })
}

func deskStdin(t *testing.T, path, sys string) {
	p := startDesk(t, path, sys)
	p.calls([][3]string{
		{"get_info", "{}", `{"result":{"device":"desk","version":"1.0.0","platform":"posix","pin_count":2}`},
		{"read_temperature", "{}", `{"result":{"celsius":42.5}`},
		{"adc_read", `{"pin":1}`, `{"result":{"pin":1,"name":"cpu","value":425}`},
		{"gpio_read", `{"pin":2}`, `{"result":{"pin":2,"name":"lamp","value":false}`}, // switched off at the start
		{"gpio_write", `{"pin":2,"value":true}`, `{"result":{"pin":2,"name":"lamp","value":true}`},
		{"gpio_read", `{"pin":2}`, `{"result":{"pin":2,"name":"lamp","value":true}`},
		{"gpio_write", `{"pin":1,"value":true}`, `{"error":{"code":-32602,"message":"pin must be of type digital_output"}`},
		{"get_pin_events", `{"pin":1}`, `{"result":{"pin":"cpu","events":[]}`},
	})
	if text, err := os.ReadFile(filepath.Join(sys, "class/leds/led0/brightness")); err != nil || string(text) != "1\n" {
		t.Errorf("the LED has %q, %v", text, err)
	}
	if list := p.call("list_tools", "{}"); strings.Contains(list, "pwm_write") || !strings.Contains(list, `"sampling":{"interval_ms":1000,"buffer_size":60}`) {
		t.Errorf("the list is %s", list)
	}
	// A file that is gone is an error, and a gap in the samples.
	if err := os.RemoveAll(filepath.Join(sys, "class")); err != nil {
		t.Fatal(err)
	}
	p.calls([][3]string{
		{"read_temperature", "{}", `{"error":{"code":-32000,"message":"There is no thermometer"}`},
		{"adc_read", `{"pin":1}`, `{"error":{"code":-32000,"message":"The pin cannot be read"}`},
		{"gpio_write", `{"pin":2,"value":true}`, `{"error":{"code":-32000,"message":"The pin cannot be set"}`},
	})
	for end := time.Now().Add(timeout); !strings.Contains(p.call("get_pin_buffer", `{"pin":1}`), "null"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a sample that failed is not null")
		}
	}
	// Many requests at once, in any pieces, and a line that is too long between them.
	const request = `{"jsonrpc":"2.0","id":"x","method":"adc_read","params":{"pin":99}}` + "\n"
	written := p.begin(strings.Repeat(request, 100) + `{"jsonrpc":"2.0","id":"long","method":"` + strings.Repeat("x", 20000) + "\"}\n" + strings.Repeat(request, 100))
	for i := range 201 {
		want := `{"error":{"code":-32602,"message":"pin must be of type adc_input"},"jsonrpc":"2.0","id":"x"}`
		if i == 100 {
			want = `{"error":{"code":-32600,"message":"The request is too long"},"jsonrpc":"2.0","id":"long"}`
		}
		if got := p.next(); got != want {
			t.Fatalf("answer %d is %s", i, got)
		}
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}

// listenDesk runs the program on a port of TCP until the test ends. It returns a function that
// connects to it.
func listenDesk(t *testing.T, path, sys string) func() (net.Conn, *program) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	startDesk(t, path, sys, addr)
	return func() (net.Conn, *program) {
		t.Helper()
		for end := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
			conn, err := net.Dial("tcp", addr)
			if err == nil {
				conn.SetDeadline(time.Now().Add(timeout))
				return conn, &program{t: t, out: conn, lines: bufio.NewReader(conn)}
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
}

// TestDeskSilence checks that a client which is silent makes room for the next one, and is kept
// while nobody waits.
func TestDeskSilence(t *testing.T) {
	path, sys := buildDesk(t, append([]string{"-DMCPU_SILENCE=1500"}, sanitized...)...)
	dial := listenDesk(t, path, sys)
	silent, p := dial()
	defer silent.Close()
	p.call("get_info", "{}")
	time.Sleep(2500 * time.Millisecond) // longer than it may be silent
	began := time.Now()
	p.call("get_info", "{}")
	next, q := dial()
	defer next.Close()
	q.call("get_info", "{}")
	if took := time.Since(began); took < time.Second {
		t.Errorf("a client was displaced after %v", took)
	}
	if rest, err := io.ReadAll(silent); len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the silent client got %q, %v", rest, err)
	}
}

// deskTCP checks that the program serves one client after the other, keeps its outputs, and
// forgets half a line. Neither a web page nor a client that does not read can use or block it.
func deskTCP(t *testing.T, path, sys string) {
	dial := listenDesk(t, path, sys)
	first, p := dial()
	p.call("gpio_write", `{"pin":2,"value":true}`)
	p.write(`{"jsonrpc":"2.0","id":7,"meth`)
	second, q := dial() // waits
	first.Close()
	q.calls([][3]string{
		{"gpio_read", `{"pin":2}`, `{"result":{"pin":2,"name":"lamp","value":true}`},
		{"read_temperature", "{}", `{"result":{"celsius":42.5}`},
	})
	second.Close()

	// A browser sends what a web page wants in the body of a request.
	web, p := dial()
	const off = `{"jsonrpc":"2.0","id":1,"method":"gpio_write","params":{"pin":2,"value":false}}` + "\n"
	p.write("POST / HTTP/1.1\r\nHost: desk\r\nContent-Type: text/plain\r\n\r\n" + off)
	if answer, _ := io.ReadAll(web); strings.Contains(string(answer), "lamp") {
		t.Errorf("a web page got %s", answer)
	}
	third, q := dial()
	q.calls([][3]string{{"gpio_read", `{"pin":2}`, `{"result":{"pin":2,"name":"lamp","value":true}`}})
	third.Close()

	if testing.Short() {
		return // the rest takes seconds
	}
	deaf, p := dial() // asks, and never reads
	defer deaf.Close()
	p.begin(strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"list_tools"}`+"\n", 20000))
	last, q := dial()
	last.SetDeadline(time.Now().Add(timeout))
	q.call("gpio_write", `{"pin":2,"value":false}`)
	last.Close()
}

// TestHeaderLimits: a sketch with more pins than MCPU_PINS says so in every answer, and does
// not drop one silently.
func TestHeaderLimits(t *testing.T) {
	for flag, limit := range map[string]string{"-DMCPU_PINS=1": "MCPU_PINS", "-DMCPU_SAMPLES=10": "MCPU_SAMPLES"} {
		path, sys := buildDesk(t, flag)
		startDesk(t, path, sys).calls([][3]string{
			{"get_info", "{}", fmt.Sprintf(`{"error":{"code":-32602,"message":"%s is too small for this firmware"}`, limit)},
		})
	}
}

// TestHeaderOrder: a sketch that describes an argument before its tool, or samples before
// their pin, says so in every answer.
func TestHeaderOrder(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil && os.Getenv("CI") == "" {
		t.Skip("needs gcc")
	}
	for call, want := range map[string]string{
		`mcpu_arg_int("hertz", 1, 9, "pitch")`: "an argument needs mcpu_tool before it",
		`mcpu_sample(1, 1000, 5)`:              "mcpu_sample needs mcpu_pin before it",
	} {
		dir := t.TempDir()
		source, program := filepath.Join(dir, "early.c"), filepath.Join(dir, "early")
		text := "#define _POSIX_C_SOURCE 200809L\n#include \"mcpu_posix.h\"\n" +
			"int main(void) {\n  mcpu_begin(\"early\", \"1\");\n  " + call + ";\n  return mcpu_serve(NULL);\n}\n"
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("gcc", "-std=c99", "-I"+uno.Examples(), "-o", program, source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		cmd := exec.Command(program)
		cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"get_info"}` + "\n")
		if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), `"message":"`+want+`"`) {
			t.Errorf("%s: got %s, %v", call, out, err)
		}
	}
}

// TestHeaderSizes: sizes with which the header would not work are errors of the compiler.
func TestHeaderSizes(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil && os.Getenv("CI") == "" {
		t.Skip("needs gcc")
	}
	compile := func(flags ...string) ([]byte, error) {
		args := append([]string{"-std=c99", "-fsyntax-only", "-I" + uno.Examples()}, flags...)
		return exec.Command("gcc", append(args, filepath.Join(uno.Examples(), "linux/desk.c"))...).CombinedOutput()
	}
	if out, err := compile("-DMCPU_LINE=65", "-DMCPU_AHEAD=65470", "-DMCPU_PINS=255", "-DMCPU_TOOLS=255", "-DMCPU_ARGS=255"); err != nil {
		t.Errorf("the largest sizes: %v\n%s", err, out)
	}
	for flag, want := range map[string]string{
		"-DMCPU_LINE=64": "MCPU_LINE must be", "-DMCPU_AHEAD=61440": "65535 together", "-DMCPU_OUT=65536": "MCPU_OUT", "-DMCPU_SAMPLES=65536": "MCPU_SAMPLES",
		"-DMCPU_PINS=256": "at most 255", "-DMCPU_TOOLS=256": "at most 255", "-DMCPU_ARGS=256": "at most 255", "-DMCPU_SAMPLED=256": "at most 255",
	} {
		if out, err := compile(flag); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, want %q\n%s", flag, err, want, out)
		}
	}
}

// FuzzHeader sends lines to mcpu.h in the program for Linux, in which the compiler has put
// checks of memory and arithmetic. Whatever comes, each line is answered at most once, with
// JSON, and the next request works. It agrees with Go about what is JSON.
func FuzzHeader(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"gpio_write","params":{"pin":2,"value":true}}`,
		`{"jsonrpc":"2.0","id":1,"method":"get_pin_buffer","params":{"pin":"cpu","limit":-1}}`,
		`{"jsonrpc":"2.0","id":-1e400,"method":"get_info","params":[{},[],"\u00e4\\\"",null,-0.5E+7]}`,
		`{"jsonrpc":"2.0","id":"\`, `{"a":`, "\x00{}", "[[[[[[[[[[", `{"jsonrpc":"2.0","id":1,"method":"list_tools"}{`, "\r\n\r", strings.Repeat(`{"id":1,`, 1000),
	} {
		f.Add([]byte(seed))
	}
	path, sys := buildDesk(f, sanitized...)
	p := startDesk(f, path, sys)
	f.Fuzz(func(t *testing.T, line []byte) {
		p.t = t
		lines := bytes.Count(line, []byte("\n")) + 1
		written := p.begin(string(line) + "\n" + `{"jsonrpc":"2.0","id":"end of this","method":"get_info"}` + "\n")
		unparsed := false
		for n := 0; ; n++ {
			answer := p.next()
			if strings.HasSuffix(answer, `"id":"end of this"}`) {
				break
			}
			if n >= lines {
				t.Fatalf("more answers than lines")
			}
			unparsed = strings.HasPrefix(answer, `{"error":{"code":-32700,`)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		// What it takes for JSON is JSON, and the other way around.
		if text := bytes.Trim(line, " \t\r"); lines == 1 && 0 < len(text) && len(line) < 4000 && bytes.Count(text, []byte("{"))+bytes.Count(text, []byte("[")) < 8 && unparsed == json.Valid(text) {
			t.Errorf("a parse error: %t, and it is JSON: %t", unparsed, !unparsed)
		}
	})
}
