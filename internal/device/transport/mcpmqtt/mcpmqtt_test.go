//go:build unix

package mcpmqtt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/mcp"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mcpmqtt"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/mqttclient/mcptopics"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

const online = `{"jsonrpc":"2.0","method":"notifications/server/online","params":{"description":"a lamp"}}`

// watched is a Connector that runs, and what it reported last.
type watched struct {
	*mcpmqtt.Connector
	mu  sync.Mutex
	all []transport.Sighting
	log bytes.Buffer
}

// Write receives the log.
func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

func (w *watched) logged(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.log.String(), text)
}

// watch runs a Connector at a broker until the test ends.
func watch(t *testing.T, b *mosquitto.Broker, change func(*mcpmqtt.Config)) *watched {
	cfg := mcpmqtt.Config{Broker: "home", Local: true, Protocols: []string{mcp.Name}, Client: mqttclient.DefaultConfig()}
	cfg.Client.URL, cfg.Client.RetryMin, cfg.Client.RetryMax = b.URL, 10*time.Millisecond, 100*time.Millisecond
	if change != nil {
		change(&cfg)
	}
	w := &watched{}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), w), nil))
	client := mqttclient.New(cfg.Client, log)
	w.Connector = mcpmqtt.New(cfg, client, log)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { client.Run(ctx) })
	running.Go(func() {
		w.Watch(ctx, func(group string, all []transport.Sighting) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.all = all
		})
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return w
}

func (w *watched) sightings() []transport.Sighting {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all
}

// until waits for sightings.
func (w *watched) until(t *testing.T, what string, ok func([]transport.Sighting) bool) []transport.Sighting {
	t.Helper()
	wait.For(t, what, func() bool { return ok(w.sightings()) })
	return w.sightings()
}

// connect returns a connection of the test itself.
func connect(t *testing.T, b *mosquitto.Broker, id string, will *mqttclient.Publication) (*mqttclient.Conn, func()) {
	t.Helper()
	cfg := mqttclient.DefaultConfig()
	cfg.URL, cfg.ClientID, cfg.Will = b.URL, id, will
	client := mqttclient.New(cfg, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		client.Run(ctx)
		close(done)
	}()
	stop := func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	conn, err := client.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return conn, stop
}

// retain returns a function that publishes retained messages.
func retain(t *testing.T, b *mosquitto.Broker) func(topic, payload string) {
	conn, _ := connect(t, b, "", nil)
	return func(topic, payload string) {
		t.Helper()
		err := conn.Publish(t.Context(), mqttclient.Publication{Topic: topic, Payload: []byte(payload), Retain: true, QoS: 1})
		var nobody *mqttclient.Undelivered
		if err != nil && !errors.As(err, &nobody) {
			t.Fatal(err)
		}
	}
}

// TestLink runs the suite of all transports: each message is published and delivered by a
// real broker.
func TestLink(t *testing.T) {
	b := mosquitto.Start(t, mosquitto.Options{})
	w := watch(t, b, nil)
	number := 0
	transporttest.Run(t, func(t *testing.T) (transport.Link, transporttest.Peer) {
		number++
		peer := newPeer(t, b, mcptopics.Server{ID: fmt.Sprintf("peer-%d", number), Name: "a/lamp"})
		all := w.until(t, "the server", func(all []transport.Sighting) bool {
			return len(all) == 1 && all[0].Address == "mcp:home/"+peer.server.ID
		})
		link, err := all[0].Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { link.Close() })
		// The topic of the session has the ID of the client, which initialize tells.
		go link.Send(t.Context(), transport.Message{Data: []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`)})
		peer.accept(t)
		return link, peer
	})
}

// TestPresence: servers appear, restart and leave as they announce it, and what is not an
// announcement is ignored.
func TestPresence(t *testing.T) {
	b := mosquitto.Start(t, mosquitto.Options{})
	publish := retain(t, b)
	for topic, payload := range map[string]string{
		"$mcp-server/presence/lamp-1/light/rgb": online,
		"$mcp-server/presence/lamp-2/light/rgb": online,
		"$mcp-server/presence/own/ferrule/home": online,
		// None of these is a server.
		"$mcp-server/presence/nameless":                           online,
		"$mcp-server/presence//light":                             online,
		"$mcp-server/presence/x//light":                           online,
		"$mcp-server/presence/x/light\u202e":                      online,
		"$mcp-server/presence/capability/x":                       online,
		"$mcp-server/presence/" + strings.Repeat("i", 129) + "/x": online,
		"$mcp-server/presence/x/" + strings.Repeat("n", 257):      online,
		"$mcp-server/presence/x1/light":                           `{"method":"notifications/server/online","method":"x"}`,
		"$mcp-server/presence/x2/light":                           `[[[[`,
		"$mcp-server/presence/x3/light":                           `{"method":"other"}`,
		"$mcp-server/presence/x4/light":                           strings.Repeat(" ", 65<<10) + online,
	} {
		publish(topic, payload)
	}
	w := watch(t, b, func(c *mcpmqtt.Config) { c.Own = "own" })
	two := func(all []transport.Sighting) bool { return len(all) == 2 }
	all := w.until(t, "two servers", two)
	for i, s := range all {
		if want := fmt.Sprintf("mcp:home/lamp-%d", i+1); s.Address != want || s.Title != "light/rgb" || s.Adopted || !s.Local || s.Absent != "" {
			t.Errorf("got %+v, want %s", s, want)
		}
	}
	publish("$mcp-server/presence/lamp-2/light/rgb", "")
	w.until(t, "one server", func(all []transport.Sighting) bool { return len(all) == 1 })
	first := all[0].Instance
	publish("$mcp-server/presence/lamp-1/light/rgb", online)
	w.until(t, "a restart", func(all []transport.Sighting) bool { return all[0].Instance > first })
	publish("$mcp-server/presence/gate/ferrule/b", string(mcptopics.Online("ferrule/b", "a gateway")))
	all = w.until(t, "a gateway", two)
	if all[0].AdoptFirst == "" {
		t.Errorf("a gateway is connected without being adopted: %+v", all[0])
	}
	b.Kill()
	w.until(t, "that the broker is lost", func(all []transport.Sighting) bool {
		return two(all) && all[0].Absent != "" && all[1].Absent != ""
	})
	b.Restart(t) // without persistence: its retained messages are gone
	retain(t, b)("$mcp-server/presence/lamp-1/light/rgb", online)
	w.until(t, "one server again", func(all []transport.Sighting) bool { return len(all) == 1 && all[0].Absent == "" })
}

// TestOldName: an announcement under a former name, left behind by a crash, does not hide
// the new one.
func TestOldName(t *testing.T) {
	b := mosquitto.Start(t, mosquitto.Options{})
	publish := retain(t, b)
	publish("$mcp-server/presence/s/a/old", online)
	w := watch(t, b, nil)
	title := func(want string) func(all []transport.Sighting) bool {
		return func(all []transport.Sighting) bool { return len(all) == 1 && all[0].Title == want }
	}
	w.until(t, "the old name", title("a/old"))
	publish("$mcp-server/presence/s/a/new", online)
	w.until(t, "the new name", title("a/new"))
	publish("$mcp-server/presence/s/a/new", "")
	w.until(t, "the old name again", title("a/old"))
}

// TestStaleNotice: a server that crashed is still announced. Nothing is sent to it, and the
// error says so.
func TestStaleNotice(t *testing.T) {
	b := mosquitto.Start(t, mosquitto.Options{})
	b.Publish(t, "$mcp-server/presence/dead/a/lamp", online, "-r", "-q", "1")
	w := watch(t, b, nil)
	all := w.until(t, "the server", func(all []transport.Sighting) bool { return len(all) == 1 })
	link, err := all[0].Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	_, _, err = mcp.New(mcp.Parts{}).Greet(t.Context(), link)
	if !errors.Is(err, transport.ErrUnsent) || !strings.Contains(err.Error(), "not connected to the broker") {
		t.Errorf("got %v", err)
	}
}

// TestOldBroker: with MQTT 3.1.1 there is no device, and the log says why.
func TestOldBroker(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answerOld(conn)
		}
	}()
	w := watch(t, &mosquitto.Broker{URL: "mqtt://" + listener.Addr().String()}, nil)
	wait.For(t, "the reason", func() bool { return w.logged("needs MQTT 5") })
}

// answerOld answers CONNECT as a broker that has only MQTT 3.1.1, and nothing else.
func answerOld(conn net.Conn) {
	defer conn.Close()
	buf := make([]byte, 1024)
	n, err := conn.Read(buf)
	if err != nil || n < 9 {
		return
	}
	if buf[8] == 5 {
		conn.Write([]byte{0x20, 2, 0, 1})
		return
	}
	conn.Write([]byte{0x20, 2, 0, 0})
	io.Copy(io.Discard, conn)
}

// TestQuirks: a server like one with the C SDK of EMQX, whose messages have no user
// properties, is a device. Its wrong parts do not hide the others.
func TestQuirks(t *testing.T) {
	b := mosquitto.Start(t, mosquitto.Options{})
	peer := newPeer(t, b, mcptopics.Server{ID: "esp", Name: "board/esp"})
	peer.bare, peer.results = true, quirkyResults
	w := watch(t, b, nil)
	all := w.until(t, "the server", func(all []transport.Sighting) bool { return len(all) == 1 })
	link, err := all[0].Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	go peer.serve(t)
	defer peer.Close()
	_, manifest, err := mcp.New(mcp.Parts{}).Greet(t.Context(), link)
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Tools) != 2 || len(manifest.Resources) != 0 {
		t.Errorf("got %+v", manifest)
	}
}

// TestGreet: the protocol greets a server, which gets initialize once on its control topic,
// and calls a tool. The session ends when the server says so.
func TestGreet(t *testing.T) {
	b := mosquitto.Start(t, mosquitto.Options{})
	peer := newPeer(t, b, mcptopics.Server{ID: "lamp", Name: "light/rgb/kitchen"})
	w := watch(t, b, func(c *mcpmqtt.Config) { c.Adopt = true })
	all := w.until(t, "the server", func(all []transport.Sighting) bool { return len(all) == 1 && all[0].Adopted })
	link, err := all[0].Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		peer.serve(t)
	}()
	session, manifest, err := mcp.New(mcp.Parts{}).Greet(t.Context(), link)
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Tools) != 1 || manifest.Tools[0].Name != "on" {
		t.Errorf("got %+v", manifest)
	}
	ended := make(chan error, 1)
	go func() { ended <- session.Run(t.Context()) }()
	call := &ferrule.Call{Operation: ferrule.CallTool, Device: "lamp", Tool: "on", Args: []byte(`{}`), Timeout: ferrule.Duration(wait.Ample)}
	call.Target.Tool = &manifest.Tools[0]
	result, err := session.Invoke(t.Context(), call)
	if err != nil || !strings.Contains(string(result.Value), "it is on") {
		t.Errorf("got %+v, %v", result, err)
	}
	peer.Close()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the server ended the session") {
		t.Errorf("the session ended with %v", err)
	}
	<-answered
}
