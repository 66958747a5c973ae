//go:build unix

package mqttclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// config returns the config for a broker, with fast retries.
func config(url string) mqttclient.Config {
	cfg := mqttclient.DefaultConfig()
	cfg.URL, cfg.RetryMin, cfg.RetryMax = url, 5*time.Millisecond, 50*time.Millisecond
	return cfg
}

// run runs a client until the test ends.
func run(t testing.TB, client *mqttclient.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := client.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

// connect runs a client and returns it with its first connection.
func connect(t testing.TB, cfg mqttclient.Config) (*mqttclient.Client, *mqttclient.Conn) {
	t.Helper()
	client := mqttclient.New(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	run(t, client)
	return client, connection(t, client)
}

// connection waits for a connection.
func connection(t testing.TB, client *mqttclient.Client) *mqttclient.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	conn, err := client.Connect(ctx)
	if err != nil {
		t.Fatalf("%v: %s", err, client.State().Reason)
	}
	return conn
}

// failure runs a client and returns why it cannot connect.
func failure(t testing.TB, cfg mqttclient.Config) string {
	t.Helper()
	client := mqttclient.New(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	changed := client.Changed()
	run(t, client)
	select {
	case <-changed:
	case <-time.After(2 * wait.Ample):
		t.Fatal("nothing changed")
	}
	state := client.State()
	if state.Connected {
		t.Fatal("connected")
	}
	return state.Reason
}

// inbox collects messages.
type inbox struct {
	mu       sync.Mutex
	messages []mqttclient.Message
}

func (b *inbox) put(m mqttclient.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages = append(b.messages, m)
}

func (b *inbox) all() []mqttclient.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.messages[:len(b.messages):len(b.messages)]
}

func (b *inbox) len() int { return len(b.all()) }

// subscribe subscribes, or fails the test.
func subscribe(t testing.TB, conn *mqttclient.Conn, fn func(mqttclient.Message), topics ...string) (end func()) {
	t.Helper()
	var filters []mqttclient.Filter
	for _, topic := range topics {
		filters = append(filters, mqttclient.Filter{Topic: topic, QoS: 1})
	}
	end, err := conn.Subscribe(t.Context(), fn, filters...)
	if err != nil {
		t.Fatal(err)
	}
	return end
}

// TestPublish: a message arrives with its properties, retained ones are marked, and the
// PUBACK says whether anybody was there.
func TestPublish(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{
		Users: map[string]string{"anna": "secret"},
		ACL:   "user anna\ntopic readwrite home/#\ntopic read hall/#\n",
	})
	cfg := config(broker.URL)
	cfg.User, cfg.Password = "anna", "secret"
	client, conn := connect(t, cfg)
	if state := client.State(); !state.Connected || state.Version != 5 || conn.Version() != 5 {
		t.Errorf("%+v", state)
	}
	var got inbox
	end := subscribe(t, conn, got.put, "home/lamp/set", "home/+/set")
	send := func(topic string, retain bool) error {
		return conn.Publish(t.Context(), mqttclient.Publication{
			Topic: topic, Payload: []byte("ON"), QoS: 1, Retain: retain, Expiry: time.Minute,
			Properties: []mqttclient.Property{{Name: "a", Value: "b"}},
		})
	}
	if err := send("home/lamp/set", true); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the message", func() bool { return got.len() > 0 })
	m := got.all()[0]
	if m.Topic != "home/lamp/set" || string(m.Payload) != "ON" || m.Retained || fmt.Sprint(m.Properties) != "[{a b}]" {
		t.Errorf("%+v", m)
	}
	end()
	var undelivered *mqttclient.Undelivered
	if err := send("home/other", false); !errors.As(err, &undelivered) || undelivered.Denied || !strings.Contains(err.Error(), "nobody subscribes to home/other") {
		t.Errorf("no subscriber: %v", err)
	}
	if err := send("hall/lamp", false); !errors.As(err, &undelivered) || !undelivered.Denied {
		t.Errorf("denied: %v", err)
	}
	var old inbox
	subscribe(t, conn, old.put, "home/#")
	wait.For(t, "the retained message", func() bool { return old.len() > 0 })
	if !old.all()[0].Retained {
		t.Error("not marked as retained")
	}
	if got.len() != 1 {
		t.Errorf("%d messages for one function, want 1 for one message and none after the end", got.len())
	}
}
