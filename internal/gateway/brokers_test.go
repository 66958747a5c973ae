//go:build unix

package gateway

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// publishPlug describes a device on a broker.
func publishPlug(t *testing.T, b *mosquitto.Broker, id string) {
	b.Publish(t, "homeassistant/switch/"+id+"/switch/config", `{"name":null,"command_topic":"x/`+id+`/set","state_topic":"x/`+id+`","unique_id":"`+id+`",
		"device":{"identifiers":["`+id+`"],"name":"Plug `+id+`","model":"AP-1"}}`, "-r", "-q", "1")
}

// sighted collects what a connector reports.
type sighted struct {
	mu  sync.Mutex
	all map[string]transport.Sighting
}

func (s *sighted) update(group string, all []transport.Sighting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, group)
	for _, one := range all {
		s.all[group] = one
	}
}

// String lists the addresses, those of absent devices in parentheses.
func (s *sighted) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, one := range slices.Sorted(maps.Keys(s.all)) {
		if s.all[one].Absent != "" {
			one = "(" + one + ")"
		}
		all = append(all, one)
	}
	return strings.Join(all, " ")
}

func (s *sighted) want(t *testing.T, want string) {
	t.Helper()
	wait.For(t, want, func() bool { return s.String() == want })
}

// watchBrokers runs brokers until the test ends.
func watchBrokers(t *testing.T, b *brokers) *sighted {
	seen := &sighted{all: make(map[string]transport.Sighting)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Watch(ctx, seen.update) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return seen
}

func brokersOf(urls ...string) []config.Broker {
	var cfg config.Config
	for i, url := range urls {
		cfg.Devices.MQTT = append(cfg.Devices.MQTT, config.Broker{URL: url, Name: string(rune('a' + i))})
	}
	return cfg.Brokers()
}

// TestBrokersReplaced checks that brokers come, go and change while the others stay, and
// that devices of a broker that was removed are out of reach.
func TestBrokersReplaced(t *testing.T) {
	t.Parallel()
	one, two := mosquitto.Start(t, mosquitto.Options{}), mosquitto.Start(t, mosquitto.Options{})
	publishPlug(t, one, "p1")
	publishPlug(t, two, "p2")
	b := newBrokers(brokersOf(one.URL), slog.New(slog.DiscardHandler))
	seen := watchBrokers(t, b)
	seen.want(t, "a/p1")
	b.settle(t.Context())
	first := b.running["a"]
	if s := seen.all["a/p1"]; s.Hub != "a" || s.Title != "Plug p1" || !s.Local || s.Adopted {
		t.Errorf("got %+v", s)
	}
	b.set(brokersOf(one.URL, two.URL))
	seen.want(t, "a/p1 b/p2")
	if b.running["a"] != first {
		t.Error("a broker that did not change was connected again")
	}
	changed := brokersOf(one.URL, two.URL)
	changed[0].Adopt = hass.AdoptAll
	b.set(changed)
	wait.For(t, "adopted", func() bool {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		return seen.all["a/p1"].Adopted
	})
	b.set(changed[1:])
	seen.want(t, "b/p2")
	if got := b.problems(); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

// TestBrokerLost checks that an unreachable broker is reported, and that nothing else waits
// for it.
func TestBrokerLost(t *testing.T) {
	t.Parallel()
	one := mosquitto.Start(t, mosquitto.Options{})
	publishPlug(t, one, "p1")
	b := newBrokers(brokersOf(one.URL, "mqtt://127.0.0.1:1"), slog.New(slog.DiscardHandler))
	seen := watchBrokers(t, b)
	seen.want(t, "a/p1")
	b.settle(t.Context())
	want := "broker b at mqtt://127.0.0.1:1 is not connected since "
	if got := b.problems(); len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Errorf("got %v", got)
	}
	one.Kill()
	seen.want(t, "(a/p1)")
	wait.For(t, "two problems", func() bool { return len(b.problems()) == 2 })
	one.Restart(t)
	publishPlug(t, one, "p1")
	seen.want(t, "a/p1")
}
