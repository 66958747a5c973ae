//go:build linux

package uno_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

const (
	bootLine = "\r\nMCP-U ready\r\n"
	unparsed = `{"jsonrpc":"2.0","id":0,"error":{"code":-32700,"message":"Parse error"}}` + "\r\n"
	invalid  = `{"jsonrpc":"2.0","id":0,"error":{"code":-32600,"message":"Invalid request"}}` + "\r\n"
	getInfo  = `{"jsonrpc":"2.0","id":1,"method":"get_info"}`
	info     = `{"result":{"device":"rig-uno","version":"1.2.0","platform":"arduino","pin_count":4,"memory_profile":"low"},"jsonrpc":"2.0","id":1}` + "\r\n"
)

// timeout bounds every wait.
const timeout = wait.Ample

// host is the computer that a board is connected to.
type host struct {
	t    *testing.T
	port *os.File
}

// connect opens the board's port in raw mode at a speed.
func connect(t *testing.T, b *uno.Board, speed uint32) *host {
	t.Helper()
	port, err := os.OpenFile(b.Path(), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { port.Close() })
	h := &host{t, port}
	h.setSpeed(speed)
	return h
}

// start runs a board and reads its boot line.
func start(t *testing.T, o uno.Options) (*uno.Board, *host) {
	t.Helper()
	b := uno.Start(t, o)
	h := connect(t, b, unix.B115200)
	h.expect(bootLine)
	return b, h
}

func (h *host) setSpeed(speed uint32) {
	h.t.Helper()
	conn, err := h.port.SyscallConn()
	if err != nil {
		h.t.Fatal(err)
	}
	raw := unix.Termios{Cflag: unix.CS8 | unix.CREAD | unix.CLOCAL | speed}
	raw.Cc[unix.VMIN] = 1
	conn.Control(func(fd uintptr) { err = unix.IoctlSetTermios(int(fd), unix.TCSETS, &raw) })
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) write(text string) {
	h.t.Helper()
	if _, err := io.WriteString(h.port, text); err != nil {
		h.t.Fatal(err)
	}
}

// read reads n bytes, or fewer if the wait ends.
func (h *host) read(n int, wait time.Duration) string {
	h.t.Helper()
	buf := make([]byte, n)
	h.port.SetReadDeadline(time.Now().Add(wait))
	n, err := io.ReadFull(h.port, buf)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		h.t.Fatal(err)
	}
	return string(buf[:n])
}

// expect reads exactly these bytes.
func (h *host) expect(want string) {
	h.t.Helper()
	if got := h.read(len(want), timeout); got != want {
		h.t.Fatalf("got  %q\nwant %q", got, want)
	}
}

// silent checks that the board sends nothing for a while.
func (h *host) silent(d time.Duration) {
	h.t.Helper()
	if got := h.read(1, d); got != "" {
		h.t.Fatalf("got %q, want silence", got+h.read(1000, 100*time.Millisecond))
	}
}

// line reads a line that ends in CR LF.
func (h *host) line() string {
	h.t.Helper()
	var line strings.Builder
	for !strings.HasSuffix(line.String(), "\r\n") {
		c := h.read(1, timeout)
		if c == "" {
			h.t.Fatalf("got %q without a line end", line.String())
		}
		line.WriteString(c)
	}
	return line.String()
}

// call sends a request and decodes its result.
func call[T any](h *host, method, params string) T {
	h.t.Helper()
	h.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`+"\n", method, params))
	line := h.line()
	var answer struct {
		ID     int
		Result *T
	}
	if err := json.Unmarshal([]byte(line), &answer); err != nil || answer.ID != 7 || answer.Result == nil {
		h.t.Fatalf("%s: %s", method, line)
	}
	return *answer.Result
}

func (h *host) do(method, params string) {
	h.t.Helper()
	call[json.RawMessage](h, method, params)
}
