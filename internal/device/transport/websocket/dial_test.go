package websocket_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gobwas "github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
	"github.com/ferrulehq/ferrule/internal/device/transport/websocket"
)

// server is a device that listens.
type server struct {
	net.Conn
	token string
}

// Send and Recv implement transporttest.Peer. The frames of a client are masked.
func (s *server) Send(m transport.Message) error {
	return gobwas.WriteFrame(s, gobwas.NewTextFrame(m.Data))
}

func (s *server) Recv() (transport.Message, error) {
	f, err := gobwas.ReadFrame(s)
	switch {
	case err != nil:
		return transport.Message{}, err
	case !f.Header.Masked:
		return transport.Message{}, errors.New("the frame is not masked")
	case f.Header.OpCode == gobwas.OpClose:
		return transport.Message{}, io.EOF
	}
	return transport.Message{Data: gobwas.UnmaskFrame(f).Payload}, nil
}

// dialed dials a device that sends early at once.
func dialed(t *testing.T, token string, early ...string) (transport.Link, *server) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	upgraded := make(chan *server, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		s := &server{Conn: conn}
		upgrader := gobwas.Upgrader{OnHeader: func(key, value []byte) error {
			if string(key) == "Authorization" {
				s.token = string(value)
			}
			return nil
		}}
		if _, err := upgrader.Upgrade(conn); err != nil {
			t.Error(err)
		}
		for _, text := range early {
			s.Send(transport.Message{Data: []byte(text)})
		}
		upgraded <- s
	}()
	link, err := websocket.DefaultConfig().Dial(t.Context(), "board", "ws://"+ln.Addr().String()+"/", token, new(net.Dialer).DialContext)
	if err != nil {
		t.Fatal(err)
	}
	far := <-upgraded
	t.Cleanup(func() { link.Close(); far.Close() })
	return link, far
}

// TestDialed runs the suite on a link to a device that listens.
func TestDialed(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) (transport.Link, transporttest.Peer) { return dialed(t, "") })
}

// TestDialedEarlyData: data that a device sends at once is not lost. The token is sent
// with the handshake only.
func TestDialedEarlyData(t *testing.T) {
	link, far := dialed(t, "secret", "one", "two")
	if got := strings.Join(recv(t, link, 2), " "); got != "one two" {
		t.Errorf("got %s", got)
	}
	if info := link.Info(); far.token != "Bearer secret" || info.Transport != "ws" || info.Address != "board" {
		t.Errorf("token %q, info %+v", far.token, info)
	}
	if _, far := dialed(t, ""); far.token != "" {
		t.Errorf("token %q, want none", far.token)
	}
}

// TestDialFails: Dial fails if a device refuses, floods the handshake, or is silent.
func TestDialFails(t *testing.T) {
	for name, test := range map[string]struct{ answer, want string }{
		"refuses": {"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "404 Not Found"},
		"floods":  {"HTTP/1.1 101 Switching Protocols\r\nX: " + strings.Repeat("x", 1<<20), "too long"},
		"silent":  {"", "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer far.Close()
				go io.Copy(io.Discard, far)
				go io.WriteString(far, test.answer)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				dial := func(context.Context, string, string) (net.Conn, error) { return near, nil }
				_, err := websocket.DefaultConfig().Dial(ctx, "board", "ws://board/", "secret", dial)
				if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
					t.Errorf("got %v, want %q", err, test.want)
				}
			})
		})
	}
}
