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

// DialWebSocket connects over a WebSocket, as firmware does when somebody speaks to
// it: with its headers in its order, and without the port in Host. The connection
// never fragments, answers pings and sends none, and ends without a farewell.
func (d *Device) DialWebSocket(ctx context.Context, s WebSocketSettings, who Identity) (Conn, error) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Hostname() == "" || u.Scheme != "ws" && u.Scheme != "wss" {
		return nil, fmt.Errorf("want ws://HOST:PORT/PATH or wss://, got %q", s.URL)
	}
	secure, port := u.Scheme == "wss", "80"
	if secure {
		port = "443"
	}
	request, err := handshake(u, s, who)
	if err != nil {
		return nil, err
	}
	var early []byte
	conn, err := d.open(ctx, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)), secure, func(conn net.Conn) error {
		if _, err := conn.Write(request); err != nil {
			return err
		}
		early, err = upgraded(conn)
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

// handshake is the request with which firmware begins.
func handshake(u *url.URL, s WebSocketSettings, who Identity) ([]byte, error) {
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
	header("Client-Id", who.ClientID)
	header("Connection", "Upgrade")
	header("Device-Id", who.DeviceID)
	header("Protocol-Version", fmt.Sprint(max(s.Version, 1)))
	var key [16]byte
	rand.Read(key[:])
	header("Sec-WebSocket-Key", base64.StdEncoding.EncodeToString(key[:]))
	header("Sec-WebSocket-Version", "13")
	header("Upgrade", "websocket")
	if strings.ContainsAny(s.Token+who.ClientID+who.DeviceID, "\r\n") {
		return nil, errors.New("the token or the identity has more than one line")
	}
	b.WriteString("\r\n")
	return b.Bytes(), nil
}

// maxReason is how much of the reason of a refusal is told.
const maxReason = 200

// upgraded reads the answer, and returns what came behind it. All that firmware
// wants is that it says 101.
func upgraded(conn net.Conn) (early []byte, err error) {
	in := bufio.NewReader(io.LimitReader(conn, maxReply))
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxReason)) // what there is of it
		return nil, fmt.Errorf("the server refused: %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	early, _ = in.Peek(in.Buffered()) // it is there
	return bytes.Clone(early), nil
}

// webSocket is a connection over a WebSocket. An idle one holds no buffer.
type webSocket struct {
	conn net.Conn
	in   io.Reader

	mu sync.Mutex // held while a frame is written
}

func (c *webSocket) Close() error { return c.conn.Close() }

// Recv returns the next message. A context does not end it; closing does. Whatever
// is too long is dropped.
func (c *webSocket) Recv(context.Context) (Message, error) {
	var m Message
	over := false
	for {
		h, err := ws.ReadHeader(c.in)
		if err != nil {
			return Message{}, endOf(err)
		}
		if h.OpCode.IsControl() {
			if err := c.control(h); err != nil {
				return Message{}, endOf(err)
			}
			continue
		}
		if h.OpCode != ws.OpContinuation {
			m, over = Message{Binary: h.OpCode == ws.OpBinary}, false
		}
		if over = over || h.Length > int64(maxMessage-len(m.Data)); over { // their sum may be no number
			m.Data = nil
			_, err = io.CopyN(io.Discard, c.in, h.Length)
		} else {
			var piece []byte
			piece, err = c.payload(h)
			m.Data = append(m.Data, piece...)
		}
		if err != nil {
			return Message{}, endOf(err)
		}
		if h.Fin && !over {
			return m, nil
		}
	}
}

// payload reads what a header tells of.
func (c *webSocket) payload(h ws.Header) ([]byte, error) {
	data := make([]byte, h.Length)
	if _, err := io.ReadFull(c.in, data); err != nil {
		return nil, err
	}
	if h.Masked { // it should not be
		ws.Cipher(data, h.Mask, 0)
	}
	return data, nil
}

// control answers a ping. A farewell ends the connection, and is not answered.
func (c *webSocket) control(h ws.Header) error {
	if h.Length > ws.MaxControlFramePayloadSize {
		return fmt.Errorf("a control frame has %d bytes", h.Length)
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
	c.conn.SetWriteDeadline(time.Now().Add(sendTime)) // fails only on a closed conn, and then Write does
	_, err = c.conn.Write(data)
	return err
}
