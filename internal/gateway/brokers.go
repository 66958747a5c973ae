package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/mqttserver"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass"
	"github.com/ferrulehq/ferrule/internal/device/protocol/mcp"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mcpmqtt"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// brokers connects to the configured MQTT brokers. What finds devices on a broker shares one
// connection:
//
//	client --+-- hub: devices that describe themselves by discovery messages
//	         +-- mcp: devices that are MCP servers
//
// Each session with an MCP server, and the offer of this gateway to agents, has a connection
// of its own: MCP over MQTT identifies a peer by its client ID.
type brokers struct {
	log *slog.Logger
	// offer returns the offer of this gateway on a broker. It and id, the client ID of
	// the offer, must be set before Watch.
	offer func(cfg config.Broker, id string) (*mqttserver.Offer, error)
	id    string

	mu      sync.Mutex
	wanted  []config.Broker
	changed chan struct{} // has an element if wanted changed
	running map[string]*broker
}

// broker is a broker that is in use.
type broker struct {
	cfg    config.Broker
	client *mqttclient.Client
	hub    *hass.Hub
	mcp    *mcpmqtt.Connector
	offer  *mqttserver.Offer // nil if there is none
	stop   context.CancelFunc
	tried  <-chan struct{} // closed when it is connected, or that failed
	done   chan struct{}   // closed when everything has ended

	mu     sync.Mutex
	groups map[string]bool // that were reported
	failed error           // why a part ended
}

func newBrokers(all []config.Broker, log *slog.Logger) *brokers {
	return &brokers{log: log, wanted: all, changed: make(chan struct{}, 1), running: make(map[string]*broker)}
}

// set replaces the brokers. One whose settings are the same stays connected.
func (b *brokers) set(all []config.Broker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wanted = all
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// Watch implements transport.Connector. The gateway goes on if a broker cannot be reached;
// its status says so.
func (b *brokers) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	var one sync.Mutex
	report := func(group string, all []transport.Sighting) {
		one.Lock()
		defer one.Unlock()
		update(group, all)
	}
	defer func() {
		for _, ended := range b.take(func(config.Broker) bool { return false }) {
			ended.end()
		}
	}()
	for {
		b.mu.Lock()
		wanted := b.wanted
		b.mu.Unlock()
		for _, ended := range b.take(func(cfg config.Broker) bool { return slices.Contains(wanted, cfg) }) {
			ended.end()
			for group := range ended.groups {
				report(group, nil)
			}
		}
		for _, cfg := range wanted {
			b.start(ctx, cfg, report)
		}
		select {
		case <-b.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// take removes and returns the brokers that are not kept.
func (b *brokers) take(keep func(config.Broker) bool) (ended []*broker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, r := range b.running {
		if !keep(r.cfg) {
			ended = append(ended, r)
			delete(b.running, name)
		}
	}
	return ended
}

// start connects to a broker, unless it is in use.
func (b *brokers) start(ctx context.Context, cfg config.Broker, report func(string, []transport.Sighting)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running[cfg.Name] != nil {
		return
	}
	log := b.log.With("broker", cfg.Name)
	ctx, stop := context.WithCancel(ctx)
	client := mqttclient.New(cfg.Client(), log)
	hub := hass.NewHub(hass.HubConfig{
		Broker: cfg.Name, Prefix: cfg.Prefix, Local: cfg.Local(), Adopt: cfg.Adopt, Settings: cfg.Settings, Disabled: cfg.Disabled,
	}, client, log)
	servers := mcpmqtt.New(mcpmqtt.Config{
		Broker: cfg.Name, Local: cfg.Local(), Adopt: cfg.Adopt == hass.AdoptAll, Own: b.id, Protocols: []string{mcp.Name}, Client: cfg.Client(),
	}, client, log)
	r := &broker{cfg: cfg, client: client, hub: hub, mcp: servers, stop: stop, tried: client.Changed(), done: make(chan struct{}), groups: make(map[string]bool)}
	b.running[cfg.Name] = r
	parts := []func(context.Context) error{client.Run}
	for _, c := range r.connectors() {
		parts = append(parts, func(ctx context.Context) error { return c.Watch(ctx, r.remember(report)) })
	}
	if cfg.Offer != "" && b.offer != nil {
		offer, err := b.offer(cfg, b.id)
		if r.failed = err; err == nil {
			r.offer, parts = offer, append(parts, offer.Run)
		}
	}
	go r.run(ctx, parts, log)
}

// connectors returns what finds devices on the broker. All use its client.
func (r *broker) connectors() []transport.Connector {
	return []transport.Connector{r.hub, r.mcp}
}

// run runs all parts until ctx ends. If one fails, the others go on.
func (r *broker) run(ctx context.Context, parts []func(context.Context) error, log *slog.Logger) {
	defer close(r.done)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, part := range parts {
		wg.Go(func() {
			if err := part(ctx); err != nil && ctx.Err() == nil {
				log.Error("a part of the broker's connection ended", "err", err)
				r.mu.Lock()
				defer r.mu.Unlock()
				r.failed = errors.Join(r.failed, err)
			}
		})
	}
}

// remember passes reports on, with the name of the broker, and remembers their groups, so
// that they can be cleared.
func (r *broker) remember(report func(string, []transport.Sighting)) func(string, []transport.Sighting) {
	return func(group string, all []transport.Sighting) {
		for i := range all {
			if !all[i].Doubted {
				all[i].Hub = r.cfg.Name
			}
		}
		r.mu.Lock()
		if r.groups[group] = true; len(all) == 0 {
			delete(r.groups, group)
		}
		r.mu.Unlock()
		report(group, all)
	}
}

// end disconnects from the broker. Nothing is reported after it.
func (r *broker) end() {
	r.stop()
	<-r.done
}

// problems says what is wrong with brokers, in the order of their names.
func (b *brokers) problems() (all []string) {
	b.mu.Lock()
	running := make([]*broker, 0, len(b.running))
	for _, r := range b.running {
		running = append(running, r)
	}
	b.mu.Unlock()
	slices.SortFunc(running, func(a, b *broker) int { return strings.Compare(a.cfg.Name, b.cfg.Name) })
	for _, r := range running {
		if text := r.problem(); text != "" {
			all = append(all, "broker "+r.cfg.Name+" "+text)
		}
	}
	return all
}

// problem says what is wrong with a broker; "" if nothing is.
func (r *broker) problem() string {
	r.mu.Lock()
	failed := r.failed
	r.mu.Unlock()
	state := r.client.State()
	switch {
	case failed != nil:
		return fmt.Sprintf("at %s cannot be used: %v", r.cfg.URL, failed)
	case !r.wasTried():
		return ""
	case !state.Connected:
		return fmt.Sprintf("at %s is not connected since %s: %s", r.cfg.URL, ferrule.FormatTime(state.Since), state.Reason)
	}
	var offered string
	if r.offer != nil {
		offered = r.offer.Problem()
	}
	found := r.hub.Status()
	return cmp.Or(found.Note, r.mcp.Problem(), offered, unusable(found))
}

// unusable says how many discovery messages describe nothing, with the first as an example.
func unusable(found hass.HubStatus) string {
	if found.Refused == 0 || len(found.Reasons) == 0 {
		return ""
	}
	return fmt.Sprintf("has %d discovery messages that cannot be used, for example %s", found.Refused, found.Reasons[0])
}

// settle waits until what the connected brokers have kept was read, so that their devices
// are known. It does not wait for a broker that cannot be reached.
func (b *brokers) settle(ctx context.Context) {
	const pause = 20 * time.Millisecond
	for b.reading() {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// reading reports whether a broker is being connected to for the first time, or read.
func (b *brokers) reading() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, cfg := range b.wanted {
		r := b.running[cfg.Name]
		if r == nil || r.cfg != cfg {
			return true
		}
		if !r.wasTried() || r.client.State().Connected && !r.hub.Status().Complete {
			return true
		}
	}
	return false
}

// wasTried reports whether the first attempt to connect has ended.
func (r *broker) wasTried() bool {
	select {
	case <-r.tried:
		return true
	default:
		return false
	}
}
