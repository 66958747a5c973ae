package mqtt

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// FuzzClientID: the address in a client ID is a MAC or empty, and the topic has no
// wildcard.
func FuzzClientID(f *testing.F) {
	f.Add("GID_test@@@98_a3_16_f9_d9_34@@@7b94d69a")
	f.Add("GID_test@@@98:A3:16:f9:d9:34")
	f.Add("@@@@@@@@@")
	f.Add("98:a3:16:f9:d9:34")
	f.Fuzz(func(t *testing.T, id string) {
		if topic := topicOf("devices/p2p/", id); strings.ContainsAny(topic, "+#\x00:") {
			t.Errorf("topic %q", topic)
		}
		address := addressOf(id)
		if address == "" {
			return
		}
		if again, err := transport.ParseMAC(address); err != nil || again != address || !strings.Contains(id, "@@@") {
			t.Errorf("%q has the address %q", id, address)
		}
	})
}

// FuzzFramer: the packets do not depend on how the bytes are split, and are bounded.
func FuzzFramer(f *testing.F) {
	f.Add(slices.Concat(connectPacket(4), publishPacket, []byte{0xc0, 0}, publishPacket), 3)
	f.Add([]byte{0x30, 0xff, 0x7f, 1, 2, 3}, 1)
	f.Add([]byte{0x10, 0xff, 0xff, 0xff, 0xff}, 2)
	f.Fuzz(func(t *testing.T, p []byte, size int) {
		whole, wholeErr := frameAll(t, p, len(p)+1)
		cut, cutErr := frameAll(t, p, max(1, size%64))
		if (wholeErr == nil) != (cutErr == nil) || !slices.EqualFunc(whole, cut, bytes.Equal) {
			t.Errorf("whole: %q, %v; in pieces: %q, %v", whole, wholeErr, cut, cutErr)
		}
	})
}

// frameAll splits bytes that come in pieces of a size into packets. A dropped message is
// nil.
func frameAll(t *testing.T, p []byte, size int) (found [][]byte, err error) {
	const limit = 128
	f := &framer{limit: limit}
	for len(p) > 0 {
		if space := f.space(); len(space) > size {
			n := copy(space[:size], p)
			f.advance(n)
			p = p[n:]
			continue
		}
		piece := p[:min(size, len(p))]
		p = p[len(piece):]
		for {
			used, packet, dropped, err := f.next(piece)
			piece = piece[used:]
			if err != nil {
				return found, err
			}
			if packet == nil && !dropped {
				break
			}
			if len(packet) > limit {
				t.Fatalf("a packet of %d bytes", len(packet))
			}
			found = append(found, packet)
		}
		if len(piece) > 0 || len(f.packet) > limit {
			t.Fatalf("%d bytes were not used, the framer holds %d", len(piece), len(f.packet))
		}
	}
	return found, nil
}

var publishPacket = []byte{0x30, 4, 0, 1, 't', 'x'}

func connectPacket(version byte) []byte {
	pk := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Connect}, ProtocolVersion: version,
		Connect: packets.ConnectParams{ProtocolName: []byte("MQTT"), Clean: true, ClientIdentifier: "toy"},
	}
	var out bytes.Buffer
	pk.ConnectEncode(&out)
	return out.Bytes()
}

// replay is a connection with recorded input.
type replay struct {
	net.Conn
	r *bytes.Reader
}

func (c *replay) Read(p []byte) (int, error)       { return c.r.Read(p) }
func (c *replay) Write(p []byte) (int, error)      { return len(p), nil }
func (c *replay) Close() error                     { return nil }
func (c *replay) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *replay) SetReadDeadline(time.Time) error  { return nil }
func (c *replay) SetWriteDeadline(time.Time) error { return nil }

// FuzzPackets: no input makes the broker panic, hang, or keep state of the device.
func FuzzPackets(f *testing.F) {
	subscribe := []byte{0x82, 6, 0, 9, 0, 1, '#', 0}
	f.Add(slices.Concat(connectPacket(4), publishPacket, subscribe, []byte{0xc0, 0}, publishPacket, []byte{0xe0, 0}))
	f.Add(slices.Concat(connectPacket(5), []byte{0x32, 7, 0, 1, 't', 0, 7, 0, 'x'}, []byte{0x34, 7, 0, 1, 't', 0, 8, 0, 'x', 0x62, 2, 0, 8}))
	f.Add(slices.Concat(connectPacket(4), connectPacket(4)))
	f.Fuzz(func(t *testing.T, p []byte) {
		c := New(DefaultConfig(), nil, acceptAll{}, slog.New(slog.DiscardHandler))
		entry, err := c.registry.Accept(netip.Addr{})
		if err != nil {
			t.Fatal(err)
		}
		l := c.broker.newLink(&replay{r: bytes.NewReader(p)}, time.Second, maxConnect, entry.Release)
		defer l.Close()
		connect, err := c.readConnect(t.Context(), l)
		if err != nil {
			return
		}
		if _, err := c.authenticate(t.Context(), l, connect, netip.Addr{}, entry); err != nil {
			return
		}
		c.broker.resetSession(l, connect)
		for {
			m, err := l.Recv(context.Background())
			if len(m.Data) > len(p) {
				t.Errorf("got %d bytes from %d", len(m.Data), len(p))
			}
			if err != nil && !errors.Is(err, transport.ErrTooLong) {
				break
			}
		}
		server := c.broker.server
		if n := server.Clients.Len() + server.Topics.Retained.Len() + len(server.Topics.Subscribers("t").Subscriptions); n != 0 {
			t.Errorf("the broker keeps %d entries of the device", n)
		}
		if n := l.client.State.Inflight.Len(); n > maxUnfinished {
			t.Errorf("%d messages are unfinished", n)
		}
	})
}
