package mqtt_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mqtt"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

const (
	mac      = "98:a3:16:f9:d9:34"
	other    = "98:a3:16:f9:d9:35"
	clientID = "GID_test@@@98_a3_16_f9_d9_34@@@7b94d69a-9808-4c59-9c9b-704333b38aff"
	otherID  = "GID_test@@@98_a3_16_f9_d9_35@@@7b94d69a-9808-4c59-9c9b-704333b38aff"
)

// passwords are fake credentials: a valid password begins with the client ID. Strangers
// are devices without a credential.
type passwords struct {
	strangers bool
	revoked   string
	at        string // the address that Check returns
}

func (c passwords) Check(_ context.Context, _ netip.Addr, _, clientID, username, password string) (string, string, bool, error) {
	switch {
	case username == "" && c.strangers:
		return c.at, "", false, nil
	case username == "":
		return "", "", false, errors.New("no credential")
	case password == c.revoked:
		return "", "", false, errors.New("the credential was revoked")
	case password != clientID+" secret":
		return "", "", false, errors.New("invalid credential")
	}
	return c.at, "toy", true, nil
}

// gateway is a Connector with its reports.
type gateway struct {
	*mqtt.Connector
	address string
	secure  bool
	log     *safeLog
	seen    chan report
}

// safeLog is a log that is read while it is written.
type safeLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *safeLog) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

type report struct {
	group string
	all   []transport.Sighting
}

func start(t *testing.T, creds passwords, change func(*mqtt.Config)) *gateway {
	t.Helper()
	return startOn(t, creds, change, nil)
}

// startOn listens with TLS, unless secure is nil.
func startOn(t *testing.T, creds passwords, change func(*mqtt.Config), secure *tls.Config) *gateway {
	t.Helper()
	cfg := mqtt.DefaultConfig()
	cfg.Inbound.Protocols = []string{"any"}
	if change != nil {
		change(&cfg)
	}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	g := &gateway{
		log: new(safeLog), secure: secure != nil,
		address: ln.Addr().String(), seen: make(chan report, 1000),
	}
	g.Connector = mqtt.New(cfg, ln, creds, slog.New(slog.NewTextHandler(g.log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- g.Watch(ctx, func(group string, all []transport.Sighting) { g.seen <- report{group, all} })
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Watch returned %v", err)
			}
		case <-time.After(wait.Ample):
			t.Error("Watch did not return")
		}
	})
	return g
}

// device is the far end of a connection.
type device struct {
	net.Conn
	r *bufio.Reader
}

// connect returns the CONNECT of stock firmware.
func connect(clientID string) packets.Packet {
	return packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Connect}, ProtocolVersion: 4,
		Connect: packets.ConnectParams{
			ProtocolName: []byte("MQTT"), Clean: true, Keepalive: 240, ClientIdentifier: clientID,
			UsernameFlag: true, Username: []byte("toy"), PasswordFlag: true, Password: []byte(clientID + " secret"),
		},
	}
}

func (g *gateway) socket(t *testing.T) *device {
	t.Helper()
	conn, err := net.Dial("tcp", g.address)
	if err != nil {
		t.Fatal(err)
	}
	if g.secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // the certificate is tested with the gateway
	}
	t.Cleanup(func() { conn.Close() })
	return &device{conn, bufio.NewReader(conn)}
}

// try connects and returns the code of the answer; -1 if there was none.
func (g *gateway) try(t *testing.T, pk packets.Packet) (*device, int) {
	t.Helper()
	d := g.socket(t)
	var out bytes.Buffer
	if err := pk.ConnectEncode(&out); err != nil {
		t.Fatal(err)
	}
	d.Write(out.Bytes())
	var ack [4]byte
	if _, err := io.ReadFull(d.r, ack[:]); err != nil {
		return nil, -1
	}
	if ack[0] != packets.Connack<<4 {
		t.Fatalf("answered with % x", ack)
	}
	return d, int(ack[3])
}

// dial connects with a credential and returns the sighting.
func (g *gateway) dial(t *testing.T, clientID string) (*device, transport.Sighting) {
	t.Helper()
	d, code := g.try(t, connect(clientID))
	if code != 0 {
		t.Fatalf("refused with %d", code)
	}
	return d, g.sighting(t)
}

// sighting waits for the next sighting.
func (g *gateway) sighting(t *testing.T) transport.Sighting {
	t.Helper()
	for {
		if r := g.next(t); len(r.all) > 0 {
			return r.all[0]
		}
	}
}

func (g *gateway) next(t *testing.T) report {
	t.Helper()
	select {
	case r := <-g.seen:
		return r
	case <-time.After(wait.Ample):
		t.Fatal("nothing was reported")
		return report{}
	}
}

// open connects and opens the link.
func (g *gateway) open(t *testing.T, clientID string) (transport.Link, *device) {
	t.Helper()
	d, s := g.dial(t, clientID)
	return opened(t, s), d
}

func opened(t *testing.T, s transport.Sighting) transport.Link {
	t.Helper()
	link, err := s.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	return link
}

func publish(topic string, qos byte, data []byte) []byte {
	pk := packets.Packet{
		ProtocolVersion: 4, FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: qos},
		TopicName: topic, Payload: data, PacketID: uint16(qos) * 7,
	}
	var out bytes.Buffer
	pk.PublishEncode(&out)
	return out.Bytes()
}

// Send and Recv implement transporttest.Peer.
func (d *device) Send(m transport.Message) error {
	_, err := d.Write(publish("device-server", 0, m.Data))
	return err
}

func (d *device) Recv() (transport.Message, error) {
	pk, err := d.packet()
	if err == nil && pk.FixedHeader.Type != packets.Publish {
		err = fmt.Errorf("got a packet of type %d", pk.FixedHeader.Type)
	}
	return transport.Message{Channel: pk.TopicName, Data: pk.Payload}, err
}

// packet reads one packet and decodes it if it is a PUBLISH.
func (d *device) packet() (pk packets.Packet, err error) {
	first, err := d.r.ReadByte()
	if err != nil {
		return pk, err
	}
	if err := pk.FixedHeader.Decode(first); err != nil {
		return pk, err
	}
	n, _, err := packets.DecodeLength(d.r)
	if err != nil {
		return pk, err
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(d.r, data); err != nil {
		return pk, err
	}
	if pk.FixedHeader.Type == packets.Publish {
		err = pk.PublishDecode(data)
	}
	return pk, err
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func recv(t *testing.T, link transport.Link, want string) {
	t.Helper()
	if m, err := link.Recv(within(t, wait.Ample)); err != nil || string(m.Data) != want {
		t.Fatalf("got %.80q, %v, want %.80q", m.Data, err, want)
	}
}

// ends checks that a link ends with a reason.
func ends(t *testing.T, link transport.Link, reason string) {
	t.Helper()
	if _, err := link.Recv(within(t, wait.Ample)); err == nil || errors.Is(err, transport.ErrClosed) || !strings.Contains(err.Error(), reason) {
		t.Errorf("Recv returned %v, want %q", err, reason)
	}
}

func TestLink(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) (transport.Link, transporttest.Peer) {
		return start(t, passwords{}, nil).open(t, clientID)
	})
}

// secured returns the TLS configuration of a server.
func secured(t *testing.T) *tls.Config {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	t.Cleanup(server.Close)
	return &tls.Config{Certificates: server.TLS.Certificates, MinVersion: tls.VersionTLS12}
}

// TestLinkTLS: a link works the same with TLS.
func TestLinkTLS(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) (transport.Link, transporttest.Peer) {
		return startOn(t, passwords{}, nil, secured(t)).open(t, clientID)
	})
}

// TestHandshake: connections without TLS, or with an old version, or that say nothing, are
// refused, and the log says why.
func TestHandshake(t *testing.T) {
	g := startOn(t, passwords{}, nil, secured(t))
	for what, connects := range map[string]func() net.Conn{
		"it connected without TLS, and dial_in.tls is set": func() net.Conn {
			conn, err := net.Dial("tcp", g.address)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			pk := connect(clientID)
			if err := pk.ConnectEncode(&out); err != nil {
				t.Fatal(err)
			}
			conn.Write(out.Bytes())
			return conn
		},
		"it does not trust the certificate": func() net.Conn {
			if conn, err := tls.Dial("tcp", g.address, &tls.Config{ServerName: "example.com"}); err == nil {
				t.Error("the certificate of nobody is trusted")
				return conn
			}
			return nil
		},
		"unsupported versions": func() net.Conn {
			conn, err := tls.Dial("tcp", g.address, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
			if err == nil {
				t.Error("an old version is accepted")
				return conn
			}
			return nil
		},
	} {
		conn := connects()
		wait.For(t, what, func() bool { return g.log.has(what) })
		if conn == nil {
			continue
		}
		conn.SetReadDeadline(time.Now().Add(wait.Ample))
		if got, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) || bytes.Contains(got, []byte{0x20, 2}) {
			t.Errorf("%s: got %q, %v", what, got, err)
		}
		conn.Close()
	}
	if _, code := g.try(t, connect(clientID)); code != 0 {
		t.Errorf("a good connection got code %d", code)
	}
	strict := startOn(t, passwords{}, func(c *mqtt.Config) { c.Connect = 50 * time.Millisecond }, secured(t))
	conn, err := net.Dial("tcp", strict.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	wait.For(t, "a connection that says nothing ends", func() bool { return strict.log.has("deadline exceeded") })
}

func TestSighting(t *testing.T) {
	g := start(t, passwords{}, nil)
	d, s := g.dial(t, clientID)
	if s.Address != mac || s.Name != "toy" || !s.Adopted || !s.Inbound || s.Local || s.Transport != "mqtt" || s.Protocols[0] != "any" {
		t.Errorf("got %+v", s)
	}
	link := opened(t, s)
	if id := link.(interface{ ClientID() string }).ClientID(); id != clientID {
		t.Errorf("client ID %q", id)
	}
	if err := link.Send(t.Context(), transport.Message{Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if m, err := d.Recv(); err != nil || m.Channel != "devices/p2p/98_a3_16_f9_d9_34" || string(m.Data) != "x" {
		t.Errorf("the device got %+v, %v", m, err)
	}
	if err := link.Send(t.Context(), transport.Message{Channel: "text"}); !errors.Is(err, transport.ErrUnsent) {
		t.Errorf("another channel: %v", err)
	}
	link.Close()
	if r := g.next(t); r.group != "mqtt "+mac || len(r.all) != 0 {
		t.Errorf("after Close, %+v was reported", r)
	}
	if _, err := d.Recv(); err == nil {
		t.Error("the socket is still open")
	}
}

func TestConnect(t *testing.T) {
	with := func(clientID string, change func(*packets.Packet)) packets.Packet {
		pk := connect(clientID)
		if change != nil {
			change(&pk)
		}
		return pk
	}
	bare := func(pk *packets.Packet) {
		pk.Connect.UsernameFlag, pk.Connect.PasswordFlag, pk.Connect.Username, pk.Connect.Password = false, false, nil, nil
	}
	for name, test := range map[string]struct {
		creds passwords
		pk    packets.Packet
		want  int    // the code of the answer
		at    string // the address, if it is accepted
	}{
		"its own credential":                {pk: connect(clientID), at: mac},
		"without a uuid":                    {pk: connect("GID_test@@@98_a3_16_f9_d9_34"), at: mac},
		"another form of client ID":         {creds: passwords{at: "toy-7"}, pk: connect("toy-7"), at: "toy-7"},
		"the address in the client ID wins": {creds: passwords{at: other}, pk: connect(clientID), at: mac},
		"no address":                        {pk: connect("toy-7"), want: 2},
		"no credential":                     {pk: with(clientID, bare), want: 5},
		"a wrong credential":                {pk: with(clientID, func(pk *packets.Packet) { pk.Connect.Password = []byte("guess") }), want: 5},
		"another device's credential": {
			pk: with(clientID, func(pk *packets.Packet) { pk.Connect.Password = []byte(otherID + " secret") }), want: 5,
		},
		"a revoked credential": {creds: passwords{revoked: clientID + " secret"}, pk: connect(clientID), want: 5},
		"a stranger, allowed":  {creds: passwords{strangers: true}, pk: with(clientID, bare), at: mac},
		"a persistent session": {
			pk: with(clientID, func(pk *packets.Packet) { pk.Connect.Clean = false }), at: mac,
		},
		"a will": {
			pk: with(clientID, func(pk *packets.Packet) {
				pk.Connect.WillFlag, pk.Connect.WillRetain, pk.Connect.WillTopic, pk.Connect.WillPayload = true, true, "a", []byte("b")
			}), at: mac,
		},
		"too long": {pk: with(clientID, func(pk *packets.Packet) { pk.Connect.Username = make([]byte, 8000) }), want: -1},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, test.creds, nil)
			_, code := g.try(t, test.pk)
			if code != test.want {
				t.Fatalf("answered with %d, want %d", code, test.want)
			}
			if code != 0 {
				return
			}
			if s := g.sighting(t); s.Address != test.at || s.Adopted == test.creds.strangers {
				t.Errorf("sighted as %+v", s)
			}
		})
	}
}

// TestReplaced: the newest connection of an address replaces the previous one, with any
// client ID, unless it lacks the credential.
func TestReplaced(t *testing.T) {
	g := start(t, passwords{strangers: true}, nil)
	first, far := g.open(t, clientID)
	stranger := connect(clientID)
	stranger.Connect.UsernameFlag, stranger.Connect.PasswordFlag, stranger.Connect.Username, stranger.Connect.Password = false, false, nil, nil
	if _, code := g.try(t, stranger); code != 5 {
		t.Errorf("a stranger with the same client ID got %d", code)
	}
	second, _ := g.open(t, clientID)
	ends(t, first, "reconnected")
	if _, err := far.Recv(); err == nil {
		t.Error("the first socket is still open")
	}
	third, d := g.open(t, "GID_other@@@98_a3_16_f9_d9_34")
	ends(t, second, "reconnected")
	d.Send(transport.Message{Data: []byte("x")})
	recv(t, third, "x")
}

// TestSameClientID: two devices with one client ID and two addresses do not disturb each
// other.
func TestSameClientID(t *testing.T) {
	g := start(t, passwords{at: "a"}, nil)
	one, d := g.open(t, "toy")
	h := start(t, passwords{at: "b"}, nil)
	h.open(t, "toy")
	d.Send(transport.Message{Data: []byte("x")})
	recv(t, one, "x")
}

// TestQoS: messages with QoS 1 and 2 are acknowledged.
func TestQoS(t *testing.T) {
	link, d := start(t, passwords{}, nil).open(t, clientID)
	for qos, want := range map[byte]byte{1: packets.Puback, 2: packets.Pubrec} {
		d.Write(publish("any/topic", qos, []byte("x")))
		recv(t, link, "x")
		if pk, err := d.packet(); err != nil || pk.FixedHeader.Type != want {
			t.Errorf("QoS %d was answered with %d, %v", qos, pk.FixedHeader.Type, err)
		}
	}
}

// TestUnfinished: the number of QoS 2 messages in flight is bounded.
func TestUnfinished(t *testing.T) {
	link, d := start(t, passwords{}, nil).open(t, clientID)
	go func() {
		for i := range 1000 {
			pk := publish("a", 2, []byte("x"))
			pk[5], pk[6] = byte(i>>8)|0x40, byte(i) // the packet ID
			d.Write(pk)
		}
	}()
	go io.Copy(io.Discard, d.r)
	n := 0
	for ; n < 1000; n++ {
		if _, err := link.Recv(within(t, wait.Ample)); err != nil {
			break
		}
	}
	if n > 32 {
		t.Errorf("%d messages in flight", n)
	}
}

// TestTooLong: a message that is too long is dropped in constant memory. The longest
// allowed one is not.
func TestTooLong(t *testing.T) {
	link, d := start(t, passwords{}, nil).open(t, clientID)
	limit := mqtt.DefaultConfig().MaxPacket
	fits := bytes.Repeat([]byte("y"), limit-4-len("t")-2)
	const long = 64 << 20
	go func() {
		d.Write(publish("t", 0, fits))
		d.Write(publish("t", 0, append(fits, 'y')))
		d.Write(publish("t", 0, []byte("between")))
		d.Write([]byte{0x30, 0x80, 0x80, 0x80, long >> 21})
		piece := make([]byte, 64<<10)
		for range long / len(piece) {
			d.Write(piece)
		}
		d.Write(publish("t", 0, []byte("after")))
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, want := range []string{string(fits), "", "between", "", "after"} {
		if want != "" {
			recv(t, link, want)
		} else if _, err := link.Recv(within(t, wait.Ample)); !errors.Is(err, transport.ErrTooLong) {
			t.Fatalf("Recv returned %v", err)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
		t.Errorf("%d bytes were allocated for %d dropped bytes", grown, long)
	}
}

// TestTooLongOther: any other packet that is too long ends the link.
func TestTooLongOther(t *testing.T) {
	link, d := start(t, passwords{}, nil).open(t, clientID)
	d.Write([]byte{0x82, 0xff, 0xff, 0x7f, 0})
	ends(t, link, "too long")
}

// TestInvalidPackets: invalid packets are refused or end the link.
func TestInvalidPackets(t *testing.T) {
	g := start(t, passwords{}, nil)
	random := rand.NewChaCha8([32]byte{})
	for _, text := range []string{"GET / HTTP/1.1\r\n\r\n", "\x10\xff\xff\xff\xff\xff", "\x10\x7f", "\x30\x00", strings.Repeat("\x00", 1000)} {
		d := g.socket(t)
		io.WriteString(d, text)
		d.Conn.(*net.TCPConn).CloseWrite()
		d.SetReadDeadline(time.Now().Add(wait.Ample))
		if n, err := d.r.Read(make([]byte, 10)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%.20q: got %d bytes, %v", text, n, err)
		}
	}
	link, d := g.open(t, clientID)
	noise := make([]byte, 1000)
	random.Read(noise)
	d.Send(transport.Message{Data: noise})
	recv(t, link, string(noise))
	d.Write([]byte{0xff, 0x01, 0x02})
	ends(t, link, "protocol")
}

// TestFlood: one host is limited, and other devices are not disturbed.
func TestFlood(t *testing.T) {
	g := start(t, passwords{}, func(c *mqtt.Config) { c.Inbound.PerHost, c.Inbound.Host.Burst = 8, 100 })
	link, far := g.open(t, otherID)
	accepted, refused := 0, 0
	for i := range 150 {
		switch _, code := g.try(t, connect(fmt.Sprintf("GID_test@@@02_00_00_00_00_%02x", i))); code {
		case 0:
			accepted++
		case -1:
			refused++
		default:
			t.Errorf("answered with %d", code)
		}
	}
	if accepted != 7 || refused != 143 {
		t.Errorf("%d accepted, %d refused", accepted, refused)
	}
	far.Send(transport.Message{Data: []byte("still here")})
	recv(t, link, "still here")
}

// TestTooOften: an address that connects too often is refused.
func TestTooOften(t *testing.T) {
	g := start(t, passwords{}, func(c *mqtt.Config) { c.Inbound.Address.Burst = 3 })
	for i := range 5 {
		want := 0
		if i >= 3 {
			want = 3 // server unavailable
		}
		if _, code := g.try(t, connect(clientID)); code != want {
			t.Errorf("connection %d was answered with %d", i, code)
		}
	}
}

// TestNoConnect: a connection without a CONNECT is closed after the timeout.
func TestNoConnect(t *testing.T) {
	g := start(t, passwords{}, func(c *mqtt.Config) { c.Connect, c.Inbound.PerHost = time.Second, 1 })
	d := g.socket(t)
	if _, err := d.r.ReadByte(); err == nil {
		t.Error("the silent connection was answered")
	}
	wait.For(t, "the silent connection no longer counts", func() bool {
		time.Sleep(10 * time.Millisecond)
		_, code := g.try(t, connect(clientID))
		return code == 0
	})
}

// TestSlowReader: the link to a device that does not read ends.
func TestSlowReader(t *testing.T) {
	quick := func(c *mqtt.Config) { c.Send = 300 * time.Millisecond }
	t.Run("messages", func(t *testing.T) {
		link, _ := start(t, passwords{}, quick).open(t, clientID)
		var err error
		for range 1000 {
			if err = link.Send(t.Context(), transport.Message{Data: make([]byte, 32<<10)}); err != nil {
				break
			}
		}
		if err == nil || !strings.Contains(err.Error(), "does not read") {
			t.Fatalf("Send returned %v", err)
		}
		ends(t, link, "does not read")
	})
	t.Run("answers", func(t *testing.T) {
		link, d := start(t, passwords{}, quick).open(t, clientID)
		d.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		subscribe := packets.Packet{ProtocolVersion: 4, FixedHeader: packets.FixedHeader{Type: packets.Subscribe, Qos: 1}, PacketID: 9}
		for range 2000 { // each takes a byte in the answer
			subscribe.Filters = append(subscribe.Filters, packets.Subscription{Filter: "a"})
		}
		var out bytes.Buffer
		if err := subscribe.SubscribeEncode(&out); err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				if _, err := d.Write(out.Bytes()); err != nil {
					return
				}
			}
		}()
		if _, err := link.Recv(within(t, wait.Ample)); err == nil || !strings.Contains(err.Error(), "does not read") {
			t.Errorf("Recv returned %v", err)
		}
	})
}

func TestSubscriptions(t *testing.T) {
	g := start(t, passwords{}, nil)
	theirs, curious := g.open(t, otherID)
	go theirs.Recv(t.Context())
	subscribe := packets.Packet{
		ProtocolVersion: 4, FixedHeader: packets.FixedHeader{Type: packets.Subscribe, Qos: 1}, PacketID: 9,
		Filters: packets.Subscriptions{{Filter: "#"}, {Filter: "$SYS/#"}},
	}
	for i := range 20 {
		subscribe.Filters = append(subscribe.Filters, packets.Subscription{Filter: fmt.Sprint(i)})
	}
	var out bytes.Buffer
	if err := subscribe.SubscribeEncode(&out); err != nil {
		t.Fatal(err)
	}
	curious.Write(out.Bytes())
	ack := make([]byte, 4+22)
	if _, err := io.ReadFull(curious.r, ack); err != nil || ack[0] != packets.Suback<<4 {
		t.Fatalf("answered with % x, %v", ack, err)
	}
	if granted := bytes.Count(ack[4:], []byte{0}); granted != 22 {
		t.Errorf("%d filters were granted: % x", granted, ack[4:])
	}
	link, d := g.open(t, clientID)
	d.Send(transport.Message{Data: []byte("private")})
	recv(t, link, "private")
	curious.SetReadDeadline(time.Now().Add(1200 * time.Millisecond))
	if pk, err := curious.packet(); err == nil {
		t.Errorf("another device got %q on %s", pk.Payload, pk.TopicName)
	}
}

func TestDrop(t *testing.T) {
	g := start(t, passwords{}, nil)
	link, _ := g.open(t, clientID)
	g.Drop(mac, errors.New("its credential was revoked"))
	ends(t, link, "revoked")
}

// TestDisconnect: a DISCONNECT ends the link.
func TestDisconnect(t *testing.T) {
	link, d := start(t, passwords{}, nil).open(t, clientID)
	d.Write([]byte{packets.Disconnect << 4, 0})
	ends(t, link, "closed the connection")
}

// TestListenerFails: Watch returns an error if its listener is closed.
func TestListenerFails(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	c := mqtt.New(mqtt.DefaultConfig(), ln, passwords{}, slog.New(slog.DiscardHandler))
	if err := c.Watch(within(t, wait.Ample), func(string, []transport.Sighting) {}); err == nil {
		t.Error("Watch returned nil")
	}
}

// TestStop: opened links survive the end of Watch; other connections are closed.
func TestStop(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{Connector: mqtt.New(mqtt.DefaultConfig(), ln, passwords{}, slog.New(slog.DiscardHandler)), address: ln.Addr().String(), seen: make(chan report, 10)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- g.Watch(ctx, func(group string, all []transport.Sighting) { g.seen <- report{group, all} })
	}()
	link, d := g.open(t, clientID)
	waiting, _ := g.dial(t, otherID)
	silent := g.socket(t)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Watch returned %v", err)
	}
	d.Send(transport.Message{Data: []byte("x")})
	recv(t, link, "x")
	for _, d := range []*device{waiting, silent} {
		d.SetReadDeadline(time.Now().Add(wait.Ample))
		if _, err := d.r.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection that was not opened: %v", err)
		}
	}
}

func TestCheck(t *testing.T) {
	for name, change := range map[string]func(*mqtt.Config){
		"max":     func(c *mqtt.Config) { c.Inbound.Max = 0 },
		"packet":  func(c *mqtt.Config) { c.MaxPacket = 100 },
		"connect": func(c *mqtt.Config) { c.Connect = 0 },
		"send":    func(c *mqtt.Config) { c.Send = 0 },
		"topic":   func(c *mqtt.Config) { c.Topic = "devices/#" },
	} {
		cfg := mqtt.DefaultConfig()
		change(&cfg)
		if err := cfg.Check(); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
