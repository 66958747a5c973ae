package endpoint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/internal/agent/rpc"
)

// FuzzRecv checks that fragmentation does not change messages, and that sizes are bounded.
func FuzzRecv(f *testing.F) {
	var frames bytes.Buffer
	for _, frame := range []ws.Frame{
		ws.NewTextFrame([]byte(`{"jsonrpc":"2.0","id":0}`)), ws.NewBinaryFrame([]byte("sound")), ws.NewPingFrame([]byte("?")),
		ws.NewFrame(ws.OpText, false, []byte("a")), ws.NewPongFrame(nil), ws.NewFrame(ws.OpContinuation, true, []byte("b")),
		ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusPolicyViolation, "no")),
	} {
		ws.WriteFrame(&frames, frame)
	}
	f.Add(frames.Bytes(), 7)
	f.Add([]byte{0x81, 0x7f, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 5}, 3)
	f.Add([]byte{0x88, 0x01, 0x03}, 1)
	f.Fuzz(func(t *testing.T, p []byte, size int) {
		whole, why := recvAll(t, p, len(p)+1)
		cut, cutWhy := recvAll(t, p, max(1, size%64))
		if why != cutWhy || len(whole) != len(cut) {
			t.Fatalf("whole: %d messages, %s; in pieces: %d, %s", len(whole), why, len(cut), cutWhy)
		}
		for i := range whole {
			if !bytes.Equal(whole[i], cut[i]) {
				t.Fatalf("message %d: %q whole, %q in pieces", i, whole[i], cut[i])
			}
		}
	})
}

// tape is a connection that delivers bytes in pieces.
type tape struct {
	net.Conn
	rest []byte
	size int
}

func (c *tape) Read(p []byte) (int, error) {
	n := copy(p, c.rest[:min(c.size, len(c.rest))])
	if c.rest = c.rest[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (c *tape) Write(p []byte) (int, error)      { return len(p), nil }
func (c *tape) SetReadDeadline(time.Time) error  { return nil }
func (c *tape) SetWriteDeadline(time.Time) error { return nil }

// recvAll receives all messages.
func recvAll(t *testing.T, p []byte, size int) (all [][]byte, why string) {
	s := newSocket(&tape{rest: p, size: size}, nil)
	for {
		data, err := s.recv()
		switch {
		case errors.Is(err, errDropped):
			all = append(all, []byte(err.Error()))
		case err != nil:
			return all, err.Error()
		case len(data) > maxMessage:
			t.Fatalf("a message of %d bytes", len(data))
		default:
			all = append(all, data)
		}
	}
}

// FuzzReceive checks that arbitrary messages do no harm, and that responses fit.
func FuzzReceive(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}`,
		`{"jsonrpc":"2.0","id":"7e_n_1","method":"tools/list","params":{"cursor":"x"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"robot__look","arguments":{},"serialNumber":null}}`,
		`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}]`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"ferrule://devices/robot"}}`,
		"\x00", `{"id":{}}`, `[[]]`,
	} {
		f.Add([]byte(seed))
	}
	board := newBoard()
	close(board.release)
	f.Fuzz(func(t *testing.T, data []byte) {
		near, far := net.Pipe()
		e, err := New(Parts{Config: Config{Name: "home", URL: "ws://example.com", Limit: minLimit}, Server: board, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- e.serve(t.Context(), newSocket(near, nil)) }()
		go func() {
			ws.WriteFrame(far, ws.NewTextFrame(data))
			ws.WriteFrame(far, ws.NewTextFrame([]byte(`{"jsonrpc":"2.0","id":"fuzz end","method":"ping"}`)))
		}()
		reader := bufio.NewReader(far)
		for over := false; !over; {
			frame, err := ws.ReadFrame(reader)
			if err != nil {
				t.Fatalf("it has ended: %v", err)
			}
			frame = ws.UnmaskFrame(frame)
			var m rpc.Message
			if err := json.Unmarshal(frame.Payload, &m); err != nil || len(frame.Payload) > minLimit {
				t.Fatalf("%d bytes, %v: %s", len(frame.Payload), err, frame.Payload)
			}
			if m.Method == "" && (m.Result == nil) == (m.Error == nil) {
				t.Fatalf("no answer: %s", frame.Payload)
			}
			over = string(m.ID) == `"fuzz end"`
		}
		far.Close()
		<-ended
	})
}
