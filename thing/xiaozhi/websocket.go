package xiaozhi

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gobwas/ws"
)

// maxFrame is the length of the longest message that firmware can send.
const maxFrame = 65535

// DialWebSocket connects by WebSocket, as firmware does when somebody speaks to it: with its
// headers in its order, and without a port in Host. The connection never fragments messages,
// answers pings but sends none, and closes without a close frame.
func (d *Device) DialWebSocket(ctx context.Context, s WebSocketSettings, identity Identity) (Conn, error) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Hostname() == "" || u.Scheme != "ws" && u.Scheme != "wss" {
		return nil, fmt.Errorf("URL must be ws://HOST:PORT/PATH or wss://, got %q", s.URL)
	}
	secure, port := u.Scheme == "wss", "80"
	if secure {
		port = "443"
	}
	request, err := handshake(u, s, identity)
	if err != nil {
		return nil, err
	}
	var early []byte
	conn, err := d.open(ctx, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)), secure, func(conn net.Conn) error {
		if _, err := conn.Write(request); err != nil {
			return err
		}
		early, err = readUpgrade(conn)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", u.Host, err)
	}
	c := &webSocket{conn: conn, in: conn}
	if len(early) > 0 {
		c.in = io.MultiReader(bytes.NewReader(early), conn)
	}
	return c, nil
}

// handshake returns the request of the firmware.
func handshake(u *url.URL, s WebSocketSettings, identity Identity) ([]byte, error) {
	var b bytes.Buffer
	header := func(name, value string) {
		fmt.Fprintf(&b, "%s: %s\r\n", name, value)
	}
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\n", u.RequestURI())
	header("Host", u.Hostname())
	if token := s.Token; token != "" {
		if !strings.Contains(token, " ") {
			token = "Bearer " + token
		}
		header("Authorization", token)
	}
	header("Client-Id", identity.ClientID)
	header("Connection", "Upgrade")
	header("Device-Id", identity.DeviceID)
	header("Protocol-Version", fmt.Sprint(max(s.Version, 1)))
	var key [16]byte
	rand.Read(key[:])
	header("Sec-WebSocket-Key", base64.StdEncoding.EncodeToString(key[:]))
	header("Sec-WebSocket-Version", "13")
	header("Upgrade", "websocket")
	if strings.ContainsAny(s.Token+identity.ClientID+identity.DeviceID, "\r\n") {
		return nil, errors.New("the token or the identity contains a line break")
	}
	b.WriteString("\r\n")
	return b.Bytes(), nil
}

// maxReason is how much of a refusal's body is reported.
const maxReason = 200

// readUpgrade reads the response, and returns the data after it. Like firmware, it only checks
// the status.
func readUpgrade(conn net.Conn) (early []byte, err error) {
	in := bufio.NewReader(io.LimitReader(conn, maxReply))
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxReason)) // a partial reason is better than none
		return nil, fmt.Errorf("the server refused: %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	early, _ = in.Peek(in.Buffered()) // cannot fail
	return bytes.Clone(early), nil
}

// webSocket is a WebSocket connection. It has no buffer while it is idle.
type webSocket struct {
	conn net.Conn
	in   io.Reader

	mu sync.Mutex // held while a frame is written
}

func (c *webSocket) Close() error { return c.conn.Close() }

// Recv returns the next message. It ignores ctx; closing ends it. A message that is too long is
// dropped.
func (c *webSocket) Recv(context.Context) (Message, error) {
	var m Message
	tooLong := false
	for {
		h, err := ws.ReadHeader(c.in)
		if err != nil {
			return Message{}, asEOF(err)
		}
		if h.OpCode.IsControl() {
			if err := c.control(h); err != nil {
				return Message{}, asEOF(err)
			}
			continue
		}
		if h.OpCode != ws.OpContinuation {
			m, tooLong = Message{Binary: h.OpCode == ws.OpBinary}, false
		}
		if tooLong = tooLong || h.Length > int64(maxMessage-len(m.Data)); tooLong { // a sum could overflow
			m.Data = nil
			_, err = io.CopyN(io.Discard, c.in, h.Length)
		} else {
			var piece []byte
			piece, err = c.payload(h)
			m.Data = append(m.Data, piece...)
		}
		if err != nil {
			return Message{}, asEOF(err)
		}
		if h.Fin && !tooLong {
			return m, nil
		}
	}
}

// payload reads the payload of a frame.
func (c *webSocket) payload(h ws.Header) ([]byte, error) {
	data := make([]byte, h.Length)
	if _, err := io.ReadFull(c.in, data); err != nil {
		return nil, err
	}
	if h.Masked { // servers should not mask
		ws.Cipher(data, h.Mask, 0)
	}
	return data, nil
}

// control answers a ping. A close frame ends the connection without an answer.
func (c *webSocket) control(h ws.Header) error {
	if h.Length > ws.MaxControlFramePayloadSize {
		return fmt.Errorf("control frame of %d bytes", h.Length)
	}
	data, err := c.payload(h)
	switch {
	case err != nil:
		return err
	case h.OpCode == ws.OpClose:
		return io.EOF
	case h.OpCode == ws.OpPing:
		return c.write(ws.NewPongFrame(data))
	}
	return nil
}

// Send sends a message in one frame.
func (c *webSocket) Send(_ context.Context, m Message) error {
	if len(m.Data) > maxFrame {
		return ErrTooLong
	}
	op := ws.OpText
	if m.Binary {
		op = ws.OpBinary
	}
	return c.write(ws.NewFrame(op, true, m.Data))
}

func (c *webSocket) write(f ws.Frame) error {
	data, err := ws.CompileFrame(ws.MaskFrame(f))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.SetWriteDeadline(time.Now().Add(sendTimeout)) // if it fails, so does Write
	_, err = c.conn.Write(data)
	return err
}
