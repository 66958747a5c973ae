//go:build unix

package mqttclient_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// fake listens and serves each connection until the test ends. It returns its address.
func fake(t testing.TB, serve func(conn net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(t.Context(), func() { conn.Close() })
			tasks.Go(func() {
				defer stop()
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		tasks.Wait()
	})
	return listener.Addr().String()
}

// readPacket reads a packet.
func readPacket(r *bufio.Reader) ([]byte, error) {
	first, err := r.ReadByte()
	if err != nil {
		return nil, err
	}
	out, length := []byte{first}, 0
	for shift := 0; ; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return nil, err
		}
		out = append(out, b)
		if length |= int(b&0x7F) << shift; b <= 0x7F {
			break
		}
	}
	body := make([]byte, length)
	_, err = io.ReadFull(r, body)
	return append(out, body...), err
}

// proxy passes connections on to a broker. The first packet is given to check, which
// answers and returns false to end the connection.
func proxy(t testing.TB, broker string, check func(conn net.Conn, connect []byte) bool) string {
	return fake(t, func(near net.Conn) {
		in := bufio.NewReader(near)
		connect, err := readPacket(in)
		if err != nil || !check(near, connect) {
			return
		}
		far, err := net.Dial("tcp", broker)
		if err != nil {
			return
		}
		defer far.Close()
		far.Write(connect)
		go func() {
			io.Copy(near, far)
			near.Close()
		}()
		io.Copy(far, in)
	})
}

// version returns the version in a CONNECT with a short header.
func version(connect []byte) byte { return connect[8] }

// TestFallback: a broker that does not know MQTT 5 gets 3.1.1, also at the next connect,
// and its PUBACK means nothing.
func TestFallback(t *testing.T) {
	for name, answer := range map[string][]byte{"old CONNACK": {0x20, 2, 0, 1}, "new CONNACK": {0x20, 3, 0, 0x84, 0}, "closed": nil} {
		t.Run(name, func(t *testing.T) {
			broker := mosquitto.Start(t, mosquitto.Options{})
			var mu sync.Mutex
			var versions []byte
			address := proxy(t, broker.Address, func(conn net.Conn, connect []byte) bool {
				mu.Lock()
				defer mu.Unlock()
				versions = append(versions, version(connect))
				if version(connect) == 5 {
					conn.Write(answer)
					return false
				}
				return true
			})
			client, conn := connect(t, config("mqtt://"+address))
			if conn.Version() != 4 || client.State().Version != 4 {
				t.Errorf("version %d, %+v", conn.Version(), client.State())
			}
			var got inbox
			end := subscribe(t, conn, got.put, "a/+", "b")
			for _, topic := range []string{"a/x", "b", "nobody"} {
				if err := conn.Publish(t.Context(), mqttclient.Publication{Topic: topic, QoS: 1, Payload: []byte("1"), Expiry: time.Second}); err != nil {
					t.Errorf("%s: %v", topic, err)
				}
			}
			wait.For(t, "two messages", func() bool { return got.len() == 2 })
			end()
			broker.Kill()
			<-conn.Done()
			broker.Restart(t)
			connection(t, client)
			mu.Lock()
			defer mu.Unlock()
			if fmt.Sprint(versions[:2]) != "[5 4]" || versions[len(versions)-1] != 4 || strings.Count(string(versions), "\x05") != 1 {
				t.Errorf("versions %v", versions)
			}
		})
	}
}

// TestReconnect: after the broker was killed, the old connection says so, its functions
// do nothing, and a new one works.
func TestReconnect(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	client, conn := connect(t, config(broker.URL))
	end := subscribe(t, conn, func(mqttclient.Message) {}, "a")
	broker.Kill()
	select {
	case <-conn.Done():
	case <-time.After(wait.Ample):
		t.Fatal("the loss was not noticed")
	}
	end()
	if err := conn.Publish(t.Context(), mqttclient.Publication{Topic: "a", QoS: 1}); !errors.Is(err, mqttclient.ErrUnsent) {
		t.Errorf("publishing on a lost connection: %v", err)
	}
	if _, err := conn.Subscribe(t.Context(), nil, mqttclient.Filter{Topic: "a"}); err == nil || err.Error() != "the broker closed the connection" {
		t.Errorf("subscribing on a lost connection: %v", err)
	}
	wait.For(t, "the reason", func() bool { return strings.Contains(client.State().Reason, "nothing listens") })
	broker.Restart(t)
	var got inbox
	again := connection(t, client)
	subscribe(t, again, got.put, "a")
	if err := again.Publish(t.Context(), mqttclient.Publication{Topic: "a", QoS: 1}); err != nil {
		t.Error(err)
	}
	wait.For(t, "the message", func() bool { return got.len() == 1 })
}

// TestWill: the will is published when the client ends, with both versions.
func TestWill(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	old := proxy(t, broker.Address, func(conn net.Conn, connect []byte) bool {
		if version(connect) == 5 {
			conn.Write(refuse5)
		}
		return version(connect) != 5
	})
	_, listener := connect(t, config(broker.URL))
	var got inbox
	subscribe(t, listener, got.put, "will")
	for i, url := range []string{broker.URL, "mqtt://" + old} {
		cfg := config(url)
		cfg.Will = &mqttclient.Publication{Topic: "will", Payload: []byte("gone"), QoS: 1}
		client := mqttclient.New(cfg, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { client.Run(ctx) })
		connection(t, client)
		cancel()
		done.Wait()
		wait.For(t, "the will", func() bool { return got.len() == i+1 })
	}
}

// TestHang: a broker that stops without closing its connections is noticed.
func TestHang(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	client := mqttclient.New(config(broker.URL), slog.New(slog.NewTextHandler(io.Discard, nil)))
	client.SetKeepAlive(2 * time.Second)
	run(t, client)
	conn := connection(t, client)
	broker.Pause()
	defer broker.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := conn.Publish(ctx, mqttclient.Publication{Topic: "a", QoS: 1})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, mqttclient.ErrUnsent) {
		t.Errorf("publishing to a broker that hangs: %v", err)
	}
	if err := conn.Publish(ctx, mqttclient.Publication{Topic: "a", QoS: 1}); !errors.Is(err, mqttclient.ErrUnsent) {
		t.Errorf("publishing after the deadline: %v", err)
	}
	select {
	case <-conn.Done():
	case <-time.After(wait.Ample):
		t.Fatal("not noticed")
	}
	if !strings.Contains(conn.Err().Error(), "has not answered for 3s") {
		t.Error(conn.Err())
	}
}

// TestKeepAlive: an idle connection stays while the broker answers pings. When it stops
// answering, that is noticed within 45 s.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		var silent atomic.Bool
		var pings atomic.Int64
		go func() {
			in := bufio.NewReader(far)
			readPacket(in)
			far.Write(accept5)
			for {
				packet, err := readPacket(in)
				if err != nil {
					return
				}
				if packet[0] == 0xC0 && !silent.Load() {
					pings.Add(1)
					far.Write([]byte{0xD0, 0})
				}
			}
		}()
		conn, err := mqttclient.Attach(near, 5, slog.New(slog.NewTextHandler(io.Discard, nil)))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if n := pings.Load(); conn.Err() != nil || n < 20 || n > 120 {
			t.Errorf("%d pings in 10 minutes, %v", n, conn.Err())
		}
		silent.Store(true)
		start := time.Now()
		<-conn.Done()
		if took := time.Since(start); took > 45*time.Second {
			t.Errorf("noticed after %v: %v", took, conn.Err())
		}
		conn.Detach()
	})
}

// TestOnce: while the broker is killed and started again, no message arrives twice, and
// what was reported as unsent or undelivered does not arrive.
func TestOnce(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{Lines: []string{"max_queued_messages 0"}})
	var mu sync.Mutex
	arrived := make(map[string]int)
	receiver, _ := connect(t, config(broker.URL))
	listen := func() *mqttclient.Conn {
		conn := connection(t, receiver)
		subscribe(t, conn, func(m mqttclient.Message) {
			mu.Lock()
			defer mu.Unlock()
			arrived[string(m.Payload)]++
		}, "a")
		return conn
	}
	sender, _ := connect(t, config(broker.URL))
	outcomes := make(map[string]error)
	sent := 0
	for range 5 {
		last, before := listen(), len(arrived)
		conn := connection(t, sender)
		var tasks sync.WaitGroup
		for range 4 {
			tasks.Go(func() {
				for conn.Err() == nil {
					mu.Lock()
					sent++
					text := fmt.Sprint(sent)
					mu.Unlock()
					err := conn.Publish(t.Context(), mqttclient.Publication{Topic: "a", Payload: []byte(text), QoS: 1})
					mu.Lock()
					outcomes[text] = err
					mu.Unlock()
				}
			})
		}
		wait.For(t, "200 messages", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(arrived) > before+200
		})
		broker.Kill()
		tasks.Wait()
		<-last.Done()
		broker.Restart(t)
	}
	mu.Lock()
	defer mu.Unlock()
	counts := map[string]int{}
	for text, err := range outcomes {
		var undelivered *mqttclient.Undelivered
		switch {
		case arrived[text] > 1:
			t.Errorf("%s arrived %d times", text, arrived[text])
		case errors.Is(err, mqttclient.ErrUnsent), errors.As(err, &undelivered):
			counts["unsent"]++
			if arrived[text] > 0 {
				t.Errorf("%s arrived: %v", text, err)
			}
		case err != nil:
			counts["unknown"]++
		default:
			counts["confirmed"]++
		}
	}
	t.Logf("%d sent: %v, %d arrived", sent, counts, len(arrived))
	if counts["confirmed"] == 0 || len(arrived) == 0 {
		t.Error("nothing was confirmed")
	}
}

// TestInvalid: what would make the broker cut the connection is refused before it is sent.
func TestInvalid(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	_, conn := connect(t, config(broker.URL))
	for _, p := range []mqttclient.Publication{
		{Topic: ""}, {Topic: "a/+"}, {Topic: "#"}, {Topic: "a\x00"}, {Topic: "\xff"}, {Topic: strings.Repeat("x", 65536)},
		{Topic: strings.Repeat("/", 200)}, {Topic: "a", Payload: make([]byte, 1<<20)}, {Topic: "a", QoS: 2},
		{Topic: "a", Properties: []mqttclient.Property{{Name: "\x00"}}},
	} {
		if err := conn.Publish(t.Context(), p); !errors.Is(err, mqttclient.ErrUnsent) {
			t.Errorf("%.20q: %v", p.Topic, err)
		}
	}
	for _, topic := range []string{"", "a+", "a/#/b", "#a", "\xff"} {
		if _, err := conn.Subscribe(t.Context(), nil, mqttclient.Filter{Topic: topic}); err == nil {
			t.Errorf("subscribed to %q", topic)
		}
	}
	for _, topic := range []string{strings.Repeat("/", 199), strings.Repeat("x", 65535)} {
		if err := conn.Publish(t.Context(), mqttclient.Publication{Topic: topic, Payload: make([]byte, 900<<10)}); err != nil {
			t.Error(err)
		}
	}
	var undelivered *mqttclient.Undelivered
	if err := conn.Publish(t.Context(), mqttclient.Publication{Topic: "a", QoS: 1}); !errors.As(err, &undelivered) {
		t.Errorf("the connection does not work afterwards: %v", err)
	}
}
