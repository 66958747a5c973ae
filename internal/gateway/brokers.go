package gateway

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/ferrulehq/ferrule/internal/agent/discovery"
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
// of its own: MCP over MQTT identifies a peer by its client ID. So has what shows the devices
// of this node in Home Assistant, which needs a will.
type brokers struct {
	*hubs[config.Broker, *broker]
	log *slog.Logger
	// offer returns the offer of this gateway on a broker. It and id, the client ID of
	// the offer, must be set before Watch.
	offer func(cfg config.Broker, id string) (*mqttserver.Offer, error)
	id    string
	// publish returns what shows the devices of this node in Home Assistant. It must be set
	// before Watch.
	publish func(cfg config.Broker, id string) *discovery.Publisher
}

// broker is a broker that is in use.
type broker struct {
	*connection
	cfg    config.Broker
	client *mqttclient.Client
	hub    *hass.Hub
	mcp    *mcpmqtt.Connector
	offer  *mqttserver.Offer // nil if there is none
	// publisher is nil if devices are not shown in Home Assistant.
	publisher *discovery.Publisher
}

func newBrokers(all []config.Broker, log *slog.Logger) *brokers {
	b := &brokers{log: log, hubs: newHubs[config.Broker, *broker](all, func(cfg config.Broker) string { return cfg.Name })}
	b.start = b.connect
	return b
}

// connect connects to a broker.
func (b *brokers) connect(ctx context.Context, cfg config.Broker, report reportFunc) *broker {
	log := b.log.With("broker", cfg.Name)
	ctx, stop := context.WithCancel(ctx)
	client := mqttclient.New(cfg.Client(), log)
	hub := hass.NewHub(hass.HubConfig{
		Broker: cfg.Name, Prefix: cfg.Prefix, Local: cfg.Local(), Adopt: cfg.Adopt, Settings: cfg.Settings, Disabled: cfg.Disabled,
	}, client, log)
	servers := mcpmqtt.New(mcpmqtt.Config{
		Broker: cfg.Name, Local: cfg.Local(), Adopt: cfg.Adopt == hass.AdoptAll, Own: b.id, Protocols: []string{mcp.Name}, Client: cfg.Client(),
	}, client, log)
	r := &broker{cfg: cfg, client: client, hub: hub, mcp: servers, connection: newConnection(cfg.Name, stop, client.Changed())}
	parts := []func(context.Context) error{client.Run}
	for _, c := range r.connectors() {
		parts = append(parts, r.watches(c, report))
	}
	if cfg.Offer != "" && b.offer != nil {
		offer, err := b.offer(cfg, b.id)
		if r.failed = err; err == nil {
			r.offer, parts = offer, append(parts, offer.Run)
		}
	}
	if cfg.Publish && b.publish != nil {
		r.publisher = b.publish(cfg, b.id)
		parts = append(parts, r.publisher.Run)
	}
	go r.run(ctx, parts, log)
	return r
}

// set replaces the brokers. Devices are removed from the Home Assistant of a broker on which
// they are not published any longer.
func (b *brokers) set(all []config.Broker) {
	b.publishers(func(cfg config.Broker, p *discovery.Publisher) {
		if !slices.ContainsFunc(all, func(other config.Broker) bool { return other.Name == cfg.Name && other.Publish }) {
			p.Leave()
		}
	})
	b.hubs.set(all)
}

// publishers calls fn with each of what shows devices in Home Assistant.
func (b *brokers) publishers(fn func(config.Broker, *discovery.Publisher)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.running {
		if r.publisher != nil {
			fn(r.cfg, r.publisher)
		}
	}
}

// client returns the connection to a broker; nil if it is not in use.
func (b *brokers) client(name string) *mqttclient.Client {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.running[name]; r != nil {
		return r.client
	}
	return nil
}

// measured takes a reading of a device of this node.
func (b *brokers) measured(r ferrule.Reading) {
	b.publishers(func(_ config.Broker, p *discovery.Publisher) { p.Measured(r) })
}

// notified takes a notification of a device.
func (b *brokers) notified(e ferrule.Event) {
	b.publishers(func(_ config.Broker, p *discovery.Publisher) { p.HandleEvent(e) })
}

// connectors returns what finds devices on the broker. All use its client.
func (r *broker) connectors() []transport.Connector {
	return []transport.Connector{r.hub, r.mcp}
}

// problem implements hub.
func (r *broker) problem() string {
	if text := r.trouble(); text != "" {
		return "broker " + r.cfg.Name + " " + text
	}
	return ""
}

// trouble says what is wrong with a broker; "" if nothing is.
func (r *broker) trouble() string {
	failed, state := r.failure(), r.client.State()
	switch {
	case failed != nil:
		return fmt.Sprintf("at %s cannot be used: %v", r.cfg.URL, failed)
	case !r.wasTried():
		return ""
	case !state.Connected:
		return fmt.Sprintf("at %s is not connected since %s: %s", r.cfg.URL, ferrule.FormatTime(state.Since), state.Reason)
	}
	var offered, published string
	if r.offer != nil {
		offered = r.offer.Problem()
	}
	if r.publisher != nil {
		published = r.publisher.Problem()
	}
	found := r.hub.Status()
	return cmp.Or(found.Note, r.mcp.Problem(), offered, published, unusable(found))
}

// unusable says how many discovery messages describe nothing, with the first as an example.
func unusable(found hass.HubStatus) string {
	if found.Refused == 0 || len(found.Reasons) == 0 {
		return ""
	}
	return fmt.Sprintf("has %d discovery messages that cannot be used, for example %s", found.Refused, found.Reasons[0])
}

// reading implements hub.
func (r *broker) reading() bool {
	return !r.wasTried() || r.client.State().Connected && !r.hub.Status().Complete
}
