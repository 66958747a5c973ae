package xiaozhi_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

var who = xiaozhi.Identity{DeviceID: "98:a3:16:f9:d9:34", ClientID: "7b94d69a-9808-4c59-9c9b-704333b38aff"}

// dialing returns a toy whose connections are pipes; serve is the server.
func dialing(t *testing.T, serve func(server net.Conn, in *bufio.Reader)) *xiaozhi.Device {
	d := toy()
	d.Dial = func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		over := make(chan struct{})
		go func() {
			defer close(over)
			defer near.Close()
			serve(near, bufio.NewReader(near))
		}()
		t.Cleanup(func() {
			far.Close()
			<-over
		})
		return far, nil
	}
	return d
}

const welcome = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"

// request reads a raw request.
func request(in *bufio.Reader) string {
	var all strings.Builder
	for {
		line, err := in.ReadString('\n')
		all.WriteString(line)
		if err != nil || line == "\r\n" {
			return all.String()
		}
	}
}

// TestWebSocketHandshake checks the bytes of the request, except for its key.
func TestWebSocketHandshake(t *testing.T) {
	for _, test := range []struct{ url, token, line, host, authorization string }{
		{"ws://192.168.1.10:8000/xiaozhi/v1/?a=b", "abc", "/xiaozhi/v1/?a=b", "192.168.1.10", "Authorization: Bearer abc\r\n"},
		{"ws://gateway.lan", "Digest abc", "/", "gateway.lan", "Authorization: Digest abc\r\n"},
		{"ws://gateway.lan:80", "", "/", "gateway.lan", ""},
	} {
		got := make(chan string, 1)
		d := dialing(t, func(server net.Conn, in *bufio.Reader) {
			got <- request(in)
			io.WriteString(server, welcome)
		})
		if _, err := d.DialWebSocket(t.Context(), xiaozhi.WebSocketSettings{URL: test.url, Token: test.token, Version: 3}, who); err != nil {
			t.Error(err)
			continue
		}
		want := "GET " + test.line + " HTTP/1.1\r\nHost: " + test.host + "\r\n" + test.authorization +
			"Client-Id: 7b94d69a-9808-4c59-9c9b-704333b38aff\r\nConnection: Upgrade\r\nDevice-Id: 98:a3:16:f9:d9:34\r\n" +
			"Protocol-Version: 3\r\nSec-WebSocket-Key: KEY\r\nSec-WebSocket-Version: 13\r\nUpgrade: websocket\r\n\r\n"
		if request := regexp.MustCompile(`Key: \S{22}==`).ReplaceAllString(<-got, "Key: KEY"); request != want {
			t.Errorf("%s: %q", test.url, request)
		}
	}
}

// TestWebSocketRefused checks the errors of refusals, timeouts and invalid settings.
func TestWebSocketRefused(t *testing.T) {
	refuse := func(server net.Conn, in *bufio.Reader) {
		request(in)
		io.WriteString(server, "HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nno token\n")
	}
	silent := func(_ net.Conn, in *bufio.Reader) { io.Copy(io.Discard, in) }
	for _, test := range []struct {
		serve            func(net.Conn, *bufio.Reader)
		url, token, want string
	}{
		{refuse, "ws://h/", "a", "403 Forbidden: no token"},
		{silent, "ws://h/", "a", "no answer within ten seconds"},
		{refuse, "http://h/", "a", "must be ws://HOST"},
		{refuse, "ws://h/", "a\r\nX: y", "contains a line break"},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, err := dialing(t, test.serve).DialWebSocket(t.Context(), xiaozhi.WebSocketSettings{URL: test.url, Token: test.token}, who)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want %s, got %v", test.want, err)
			}
		})
	}
}

// TestWebSocket checks fragments, early data, pings, the limits of messages, and the close.
func TestWebSocket(t *testing.T) {
	frames := make(chan ws.Frame, 10)
	d := dialing(t, func(server net.Conn, in *bufio.Reader) {
		request(in)
		var out bytes.Buffer
		out.WriteString(welcome)
		for _, f := range []ws.Frame{
			ws.NewTextFrame([]byte("early")),
			ws.NewFrame(ws.OpText, false, []byte("in ")), ws.NewPingFrame([]byte("p")), ws.NewFrame(ws.OpContinuation, true, []byte("pieces")),
			ws.NewFrame(ws.OpText, false, make([]byte, 60<<10)), ws.NewFrame(ws.OpContinuation, true, make([]byte, 60<<10)),
			ws.NewBinaryFrame([]byte("sound")), ws.NewCloseFrame(nil),
		} {
			ws.WriteFrame(&out, f)
		}
		go server.Write(out.Bytes())
		for {
			f, err := ws.ReadFrame(in)
			if err != nil {
				close(frames)
				return
			}
			frames <- f
		}
	})
	conn, err := d.DialWebSocket(t.Context(), xiaozhi.WebSocketSettings{URL: "ws://h/"}, who)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []xiaozhi.Message{{Data: []byte("early")}, {Data: []byte("in pieces")}, {Binary: true, Data: []byte("sound")}} {
		if m, err := conn.Recv(t.Context()); err != nil || m.Binary != want.Binary || !bytes.Equal(m.Data, want.Data) {
			t.Errorf("got %q, %v", m.Data, err)
		}
	}
	if _, err := conn.Recv(t.Context()); err != io.EOF {
		t.Errorf("after a close frame: %v", err)
	}
	if err := conn.Send(t.Context(), xiaozhi.Message{Data: make([]byte, 65536)}); !errors.Is(err, xiaozhi.ErrTooLong) {
		t.Errorf("got %v", err)
	}
	if err := conn.Send(t.Context(), xiaozhi.Message{Data: make([]byte, 65535)}); err != nil {
		t.Error(err)
	}
	conn.Close()
	var got []string
	for f := range frames {
		got = append(got, fmt.Sprint(f.Header.OpCode, f.Header.Fin, f.Header.Masked, f.Header.Length))
	}
	want := []string{fmt.Sprint(ws.OpPong, true, true, 1), fmt.Sprint(ws.OpText, true, true, 65535)}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the device sent %v", got)
	}
}

// mqttSettings are the settings of the tests.
var mqttSettings = xiaozhi.MQTTSettings{
	Endpoint: "192.168.1.10:1883", ClientID: "GID@@@98_a3", Username: "u", Password: "p", PublishTopic: "device-server", KeepAlive: 240,
}

// packet reads a packet.
func packet(t *testing.T, in *bufio.Reader) (pk packets.Packet, ok bool) {
	first, err := in.ReadByte()
	if err != nil {
		return pk, false
	}
	pk.FixedHeader.Decode(first)
	pk.FixedHeader.Remaining, _, err = packets.DecodeLength(in)
	body := make([]byte, pk.FixedHeader.Remaining)
	if _, failed := io.ReadFull(in, body); err != nil || failed != nil {
		t.Errorf("incomplete packet: %v, %v", err, failed)
	}
	pk.ProtocolVersion = 4
	switch pk.FixedHeader.Type {
	case packets.Connect:
		err = pk.ConnectDecode(body)
	case packets.Publish:
		err = pk.PublishDecode(body)
	}
	if err != nil {
		t.Error(err)
	}
	return pk, true
}

// push returns a message for a device that has not subscribed.
func push(text []byte) []byte {
	var out bytes.Buffer
	pk := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Publish}, ProtocolVersion: 4, TopicName: "any", Payload: text}
	pk.PublishEncode(&out)
	return out.Bytes()
}

var accept = []byte{packets.Connack << 4, 2, 0, 0}

// TestMQTT checks that the device connects with its settings, receives pushed messages,
// publishes to its topic, and neither subscribes nor disconnects.
func TestMQTT(t *testing.T) {
	seen := make(chan packets.Packet, 10)
	d := dialing(t, func(server net.Conn, in *bufio.Reader) {
		hello, _ := packet(t, in)
		seen <- hello
		server.Write(accept)
		go server.Write(append(push(make([]byte, 70<<10)), push([]byte(`{"type":"mcp","payload":{"jsonrpc":"2.0","id":7,"method":"ping"}}`))...))
		for {
			pk, ok := packet(t, in)
			if !ok {
				close(seen)
				return
			}
			seen <- pk
			server.Close()
		}
	})
	conn, err := d.DialMQTT(t.Context(), mqttSettings)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Send(t.Context(), xiaozhi.Message{Binary: true}); err != nil {
		t.Errorf("audio: %v", err)
	}
	if err := d.Serve(t.Context(), conn, false); err != nil {
		t.Error(err)
	}
	hello := <-seen
	c := hello.Connect
	if string(c.ProtocolName) != "MQTT" || hello.ProtocolVersion != 4 || !c.Clean || c.WillFlag || c.Keepalive != 240 ||
		c.ClientIdentifier != "GID@@@98_a3" || string(c.Username) != "u" || string(c.Password) != "p" {
		t.Errorf("CONNECT is %+v", c)
	}
	answer := <-seen
	if answer.FixedHeader.Qos != 0 || answer.FixedHeader.Retain || answer.TopicName != "device-server" ||
		!strings.HasPrefix(string(answer.Payload), `{"session_id":"","type":"mcp","payload":{"jsonrpc":"2.0","id":7,"error"`) {
		t.Errorf("PUBLISH is %+v", answer)
	}
	for pk := range seen {
		t.Errorf("unexpected packet of type %d", pk.FixedHeader.Type)
	}
}

// TestMQTTKeepAlive checks that an idle device pings after half the keep-alive time, and
// gives up without an answer.
func TestMQTTKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		asked := make(chan time.Duration, 10)
		d := dialing(t, func(server net.Conn, in *bufio.Reader) {
			packet(t, in)
			server.Write(accept)
			for {
				pk, ok := packet(t, in)
				if !ok {
					return
				}
				if pk.FixedHeader.Type != packets.Pingreq {
					continue
				}
				if asked <- time.Since(start); len(asked) < 3 {
					server.Write([]byte{packets.Pingresp << 4, 0})
				}
			}
		})
		conn, err := d.DialMQTT(t.Context(), mqttSettings)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(300*time.Second, func() { conn.Send(context.Background(), xiaozhi.Message{Data: []byte("x")}) })
		_, err = conn.Recv(t.Context())
		if took := time.Since(start); err == nil || !strings.Contains(err.Error(), "does not answer") || took != 660*time.Second {
			t.Errorf("ended after %v with %v", took, err)
		}
		for _, want := range []time.Duration{120 * time.Second, 240 * time.Second, 420 * time.Second} { // a message was sent at 300
			if got := <-asked; got != want {
				t.Errorf("ping after %v, want %v", got, want)
			}
		}
	})
}

// TestMQTTRefused checks the errors of a refused CONNECT.
func TestMQTTRefused(t *testing.T) {
	for _, test := range []struct {
		answer []byte
		want   string
	}{
		{[]byte{packets.Connack << 4, 2, 0, 4}, "wrong user name or password"},
		{[]byte{packets.Connack << 4, 2, 0, 99}, "code 99"},
		{[]byte("HTTP/1.1 400 Bad Request\r\n"), "invalid packet"},
		{[]byte{packets.Connack << 4, 0x80, 0x80, 0x80, 0x80, 0x80}, "invalid packet length"},
		{nil, "no answer within ten seconds"},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := dialing(t, func(server net.Conn, in *bufio.Reader) {
				packet(t, in)
				server.Write(test.answer)
				io.Copy(io.Discard, in)
			})
			if _, err := d.DialMQTT(t.Context(), mqttSettings); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want %s, got %v", test.want, err)
			}
		})
	}
}

// TestActivate checks the result for each status of the server.
func TestActivate(t *testing.T) {
	status := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ota/activate" || r.Header.Get("Device-Id") != who.DeviceID {
			t.Errorf("request of %s by %s", r.URL.Path, r.Header.Get("Device-Id"))
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	for _, test := range []struct {
		url    string
		status int
		in     bool
		fails  bool
	}{{"/ota/", 200, true, false}, {"/ota", 202, false, false}, {"/ota", 500, false, true}} {
		status = test.status
		in, err := toy().Activate(t.Context(), server.URL+test.url, who)
		if in != test.in || (err != nil) != test.fails {
			t.Errorf("%d: %v, %v", test.status, in, err)
		}
	}
}

// played is a connection that replays the data of a server.
type played struct {
	net.Conn
	io.Reader
}

func (p played) Read(b []byte) (int, error)     { return p.Reader.Read(b) }
func (played) Write(b []byte) (int, error)      { return len(b), nil }
func (played) Close() error                     { return nil }
func (played) SetReadDeadline(time.Time) error  { return nil }
func (played) SetWriteDeadline(time.Time) error { return nil }

// play replays data of a server and reads the messages.
func play(t *testing.T, data []byte, dial func(d *xiaozhi.Device) (xiaozhi.Conn, error)) {
	d := toy()
	d.Dial = func(context.Context, string, string) (net.Conn, error) {
		return played{Reader: bytes.NewReader(data)}, nil
	}
	conn, err := dial(d)
	if err != nil {
		return
	}
	for {
		m, err := conn.Recv(context.Background())
		if err != nil {
			return
		}
		if len(m.Data) > 64<<10 {
			t.Errorf("message of %d bytes", len(m.Data))
		}
	}
}

// FuzzWebSocket checks that messages of any server are limited.
func FuzzWebSocket(f *testing.F) {
	f.Add([]byte{0x81, 2, 'h', 'i', 0x89, 0, 0x88, 0})
	f.Add([]byte{0x01, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0, 'x'})
	f.Add([]byte{0x01, 1, 'a', 0x80, 0x7f, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}) // the sum of the lengths overflows
	f.Fuzz(func(t *testing.T, data []byte) {
		play(t, append([]byte(welcome), data...), func(d *xiaozhi.Device) (xiaozhi.Conn, error) {
			return d.DialWebSocket(context.Background(), xiaozhi.WebSocketSettings{URL: "ws://h/"}, who)
		})
	})
}

// FuzzMQTT checks that messages of any server are limited.
func FuzzMQTT(f *testing.F) {
	f.Add(append(bytes.Clone(accept), push([]byte("hi"))...))
	f.Add(append(bytes.Clone(accept), packets.Pingresp<<4, 0, packets.Publish<<4|2, 0xff, 0xff, 0x7f, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		play(t, data, func(d *xiaozhi.Device) (xiaozhi.Conn, error) { return d.DialMQTT(context.Background(), mqttSettings) })
	})
}
