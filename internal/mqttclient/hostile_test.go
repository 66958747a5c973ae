//go:build unix

package mqttclient_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// The answers to CONNECT: accepted with both versions, and refused with 5.
var (
	accept5 = []byte{0x20, 3, 0, 0, 0}
	accept4 = []byte{0x20, 2, 0, 0}
	refuse5 = []byte{0x20, 2, 0, 1}
)

// scripted is a broker that accepts a version and then runs a script.
func scripted(t testing.TB, want byte, script func(conn net.Conn, in *bufio.Reader)) mqttclient.Config {
	return config("mqtt://" + fake(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		hello, err := readPacket(in)
		switch {
		case err != nil:
		case version(hello) != want:
			conn.Write(refuse5)
		default:
			if conn.Write(map[byte][]byte{4: accept4, 5: accept5}[want]); script != nil {
				script(conn, in)
			}
		}
	}))
}

// TestDisconnected: why the broker ends a connection is reported in plain words, and
// nobody follows it to another server.
func TestDisconnected(t *testing.T) {
	moved := append([]byte{0xE0, 14, 0x9D, 12, 28, 0, 9}, "elsewhere"...)
	for want, bytes := range map[string][]byte{
		"the broker ended the connection: another client connected with the same client ID":                                        {0xE0, 2, 0x8E, 0},
		"the broker ended the connection: the broker has moved to another server. It names elsewhere: change url if that is right": moved,
		"the broker ended the connection":                                          {0xE0, 0},
		"the broker ended the connection: reason 0xFF":                             {0xE0, 1, 0xFF},
		"the broker sent something that is not MQTT: a second CONNACK":             accept5,
		"the broker sent something that is not MQTT: unexpected packet of type 15": {0xF0, 2, 0, 0},
		"broken packet: its length has more than four bytes":                       {0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0x01},
	} {
		_, conn := connect(t, scripted(t, 5, func(conn net.Conn, _ *bufio.Reader) {
			conn.Write(bytes)
			<-t.Context().Done()
		}))
		<-conn.Done()
		if conn.Err().Error() != want {
			t.Errorf("want %s, got %v", want, conn.Err())
		}
	}
}

// TestLongPacket: a packet that is too long ends a connection with MQTT 5, which had
// announced the limit, and is skipped with 3.1.1. Neither allocates it.
func TestLongPacket(t *testing.T) {
	long := func(conn net.Conn, in *bufio.Reader) {
		readPacket(in) // SUBSCRIBE
		conn.Write([]byte{0x90, 3, 0, 1, 0})
		conn.Write([]byte{0x30, 0x80, 0x80, 0x80, 0x40}) // 128 MB
		chunk := make([]byte, 1<<20)
		for range 128 {
			if _, err := conn.Write(chunk); err != nil {
				return
			}
		}
		conn.Write([]byte{0x30, 4, 0, 1, 'a', '1'})
		<-t.Context().Done()
	}
	var got inbox
	_, conn := connect(t, scripted(t, 4, long))
	subscribe(t, conn, got.put, "a")
	wait.For(t, "the message after the long one", func() bool { return got.len() == 1 })
	if m := got.all()[0]; m.Topic != "a" || string(m.Payload) != "1" {
		t.Errorf("%+v", m)
	}
	_, conn = connect(t, scripted(t, 5, func(conn net.Conn, in *bufio.Reader) {
		conn.Write([]byte{0x30, 0xFF, 0xFF, 0xFF, 0x7F})
		<-t.Context().Done()
	}))
	select {
	case <-conn.Done():
	case <-time.After(wait.Ample):
		t.Fatal("the connection stays")
	}
	if !strings.Contains(conn.Err().Error(), "packet too long") {
		t.Error(conn.Err())
	}
}

// TestBackpressure: a function that does not return stops the broker; memory is bounded.
func TestBackpressure(t *testing.T) {
	const atLeast = 64 << 20
	sent := make(chan int, 1)
	_, conn := connect(t, scripted(t, 5, func(conn net.Conn, in *bufio.Reader) {
		readPacket(in)
		conn.Write([]byte{0x90, 4, 0, 1, 0, 0})
		body := append([]byte{0, 1, 'a', 0}, make([]byte, 16380)...)
		message := bytes.Repeat(append([]byte{0x30, 0x80, 0x80, 0x01}, body...), 16)
		n := 0
		for range 1000 { // 256 MB
			limit := time.Second
			if n < atLeast {
				limit = wait.Ample
			}
			conn.SetWriteDeadline(time.Now().Add(limit))
			k, err := conn.Write(message)
			if n += k; err != nil {
				break
			}
		}
		sent <- n
		<-t.Context().Done()
	}))
	release := make(chan struct{})
	defer close(release)
	subscribe(t, conn, func(mqttclient.Message) { <-release }, "a")
	n := <-sent
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if n < atLeast || n > 96<<20 {
		t.Errorf("took %d MB", n>>20)
	}
	figure.AtMost(t, "bytes of heap with a function that does not return", stats.HeapInuse, 256<<20)
	select {
	case <-conn.Done():
		t.Error(conn.Err())
	default:
	}
}

// TestSubackMismatch: a SUBACK with too many or too few codes is an error.
func TestSubackMismatch(t *testing.T) {
	for _, answer := range [][]byte{{0x90, 3, 0, 1, 0}, {0x90, 6, 0, 1, 0, 0, 0, 0}} {
		_, conn := connect(t, scripted(t, 5, func(conn net.Conn, in *bufio.Reader) {
			readPacket(in)
			conn.Write(answer)
			<-t.Context().Done()
		}))
		if _, err := conn.Subscribe(t.Context(), func(mqttclient.Message) {}, mqttclient.Filter{Topic: "a"}, mqttclient.Filter{Topic: "b"}); err == nil {
			t.Errorf("%x was accepted", answer)
		}
	}
}

// FuzzBroker sends any bytes after CONNECT, as either version. Nothing panics, and every
// call ends.
func FuzzBroker(f *testing.F) {
	f.Add(byte(5), []byte{0x20, 3, 0, 0, 0, 0x90, 4, 0, 1, 0, 0, 0x30, 6, 0, 1, 'a', 0, '1', '2', 0x40, 2, 0, 2})
	f.Add(byte(5), append([]byte{0x20, 3, 0, 0, 0, 0x30, 20, 0, 1, 'a', 14}, 11, 1, 11, 2, 38, 0, 1, 'k', 0, 1, 'v', 1, 1, 2, 0, 0))
	f.Add(byte(5), []byte{0x20, 9, 0, 0, 6, 0x22, 0, 10, 0x21, 0, 20, 0xE0, 2, 0x8E, 0})
	f.Add(byte(5), []byte{0x20, 7, 0, 0, 4, 21, 0, 1, 'x', 0x32, 5, 0, 1, 'a', 0, 1})
	f.Add(byte(4), []byte{0x20, 2, 0, 0, 0x90, 9, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0x30, 4, 0, 1, 'a', '1', 0x40, 2, 0, 2})
	f.Add(byte(4), []byte{0x20, 2, 0, 5})
	f.Add(byte(5), []byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, version byte, data []byte) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			go io.Copy(io.Discard, far)
			far.Write(data)
		}()
		conn, err := mqttclient.Attach(near, version, slog.New(slog.NewTextHandler(io.Discard, nil)))
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
		defer cancel()
		conn.Subscribe(ctx, func(m mqttclient.Message) {
			if m.Topic == "" || len(m.Payload) > len(data) {
				t.Errorf("%+v", m)
			}
		}, mqttclient.Filter{Topic: "#"})
		err = conn.Publish(ctx, mqttclient.Publication{Topic: "a", QoS: 1})
		var undelivered *mqttclient.Undelivered
		if err != nil && !errors.Is(err, mqttclient.ErrUnsent) && !errors.As(err, &undelivered) && ctx.Err() != nil {
			t.Errorf("publishing did not end: %v", err)
		}
		<-conn.Done()
		conn.Detach()
	})
}
