package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// Run publishes devices until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	p.started = time.Now()
	cfg := p.parts.Client
	cfg.Will = &mqttclient.Publication{Topic: p.parts.Node.status(), Payload: []byte(offline), Retain: true, QoS: 1}
	client := mqttclient.New(cfg, p.parts.Log)
	// The connection must outlive ctx, for what is to be removed.
	running, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- client.Run(running) }()
	defer disconnect()
	ctx, cancel := context.WithCancel(ctx)
	defer p.tasks.Wait()
	defer cancel()
	stop := p.parts.Watch(p)
	defer stop()
	for {
		conn, err := client.Connect(ctx)
		if err == nil {
			err = p.serve(ctx, conn, func(m mqttclient.Message) { p.take(ctx, m) })
		}
		if ctx.Err() != nil {
			p.leave(conn)
			disconnect()
			return <-ended
		}
		if conn.Err() == nil {
			p.setProblem(err)
		}
		select {
		case <-conn.Done():
		case <-ctx.Done():
		case err := <-ended:
			return err
		}
	}
}

// leave removes what is to be removed before the connection ends.
func (p *Publisher) leave(conn *mqttclient.Conn) {
	p.mu.Lock()
	leaving := p.leaving
	p.mu.Unlock()
	if conn == nil || !leaving {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), brokerTimeout)
	defer cancel()
	if err := p.flush(ctx, conn); err != nil {
		p.parts.Log.Warn("Home Assistant still lists devices of this gateway", "err", err)
	}
}

// serve publishes over one connection until it or ctx ends.
func (p *Publisher) serve(ctx context.Context, conn *mqttclient.Conn, take func(mqttclient.Message)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.forget()
	if err := p.begin(ctx, conn, take); err != nil {
		return err
	}
	p.setProblem(nil)
	p.parts.Log.Info("devices are published on the broker for Home Assistant", "prefix", p.parts.Node.Prefix)
	seen := p.parts.Changed()
	sweep := time.After(time.Until(p.started.Add(sweepAfter)))
	p.changed()
	for {
		var later <-chan time.Time
		if p.waits() {
			later = time.After(pause)
		}
		select {
		case <-seen:
			seen = p.parts.Changed() // before the policy is asked, so that no change is missed
			p.refresh()
			continue
		case <-sweep:
			p.sweep()
		case <-p.wake:
		case <-later:
		case <-conn.Done():
			return conn.Err()
		case <-ctx.Done():
			return nil
		}
		p.resume(ctx)
		if err := p.flush(ctx, conn); err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// forget forgets what the broker had over an earlier connection: it may have been restarted
// without its retained messages.
func (p *Publisher) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.found)
	for _, d := range p.devices {
		d.sentConfig, d.sentOnline, d.sentAttrs, d.sentStates, d.stale = "", "", "", make(map[string]string), true
	}
}

// begin reads what is on the broker, subscribes to commands and announces the gateway.
func (p *Publisher) begin(ctx context.Context, conn *mqttclient.Conn, take func(mqttclient.Message)) error {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	n := p.parts.Node
	if _, err := conn.Subscribe(ctx, p.read, mqttclient.Filter{Topic: n.configTopic("+"), NoLocal: true}); err != nil {
		return err
	}
	select { // for what is retained
	case <-time.After(readTime):
	case <-conn.Done():
		return conn.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
	// At most once: a command must not arrive twice.
	if _, err := conn.Subscribe(ctx, take, mqttclient.Filter{Topic: n.command("+", "+")}); err != nil {
		return err
	}
	if err := publish(ctx, conn, n.configTopic(n.key()), nodeConfig(n), 1); err != nil {
		return err
	}
	return publish(ctx, conn, n.status(), []byte(online), 1)
}

// publish publishes a retained message. It does not matter whether somebody gets it now.
func publish(ctx context.Context, conn *mqttclient.Conn, topic string, payload []byte, qos byte) error {
	err := conn.Publish(ctx, mqttclient.Publication{Topic: topic, Payload: payload, Retain: true, QoS: qos})
	var nobody *mqttclient.Undelivered
	if errors.As(err, &nobody) && !nobody.Denied {
		return nil
	}
	return err
}

// maxConfig limits a message that is read.
const maxConfig = 1 << 20

// read notes which devices gateways have published.
func (p *Publisher) read(m mqttclient.Message) {
	n := p.parts.Node
	key := strings.TrimSuffix(strings.TrimPrefix(m.Topic, n.Prefix+"/device/"), "/config")
	if !strings.HasPrefix(key, ferrule.EntityPrefix) || key == n.key() {
		return
	}
	found, ok := parseOwn(m.Payload, n.status())
	p.mu.Lock()
	defer p.mu.Unlock()
	if ok && (len(p.found) < maxFound || p.found[key].components != nil) {
		p.found[key] = found
	} else {
		delete(p.found, key)
	}
}

// parseOwn parses a discovery message of a gateway. It reports false for one of others.
func parseOwn(payload []byte, status string) (r retained, ok bool) {
	if len(payload) > maxConfig || strictjson.Check(payload) != nil {
		return r, false
	}
	var config struct {
		Origin       struct{ Name string }
		Availability []struct{ Topic string }
		Components   map[string]struct{ Platform string }
	}
	if json.Unmarshal(payload, &config) != nil || config.Origin.Name != ferrule.EntityOrigin {
		return r, false
	}
	r.own = len(config.Availability) > 0 && config.Availability[0].Topic == status
	r.components = make(map[string]string)
	for key, c := range config.Components {
		// Others can write to the broker, too: a topic is made of the key.
		if ferrule.CheckSignal(key) == nil && len(r.components) < maxEntities {
			r.components[key] = c.Platform
		}
	}
	return r, true
}

// sweep removes the devices that this gateway published in an earlier run and does not know
// any longer.
func (p *Publisher) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, found := range p.found {
		if !found.own || p.byKey[key] != nil {
			continue
		}
		var topics []string
		n := p.parts.Node
		for entity := range found.components {
			topics = append(topics, n.state(key, entity))
		}
		p.gone[key] = append(topics, n.availability(key), n.attributes(key, outcomeKey))
	}
}

// message is a message to publish.
type message struct {
	topic   string
	payload []byte
	qos     byte
	once    bool // not retained
}

// waits reports whether an event waits for its time.
func (p *Publisher) waits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.devices {
		if len(d.waiting) > 0 {
			return true
		}
	}
	return false
}

// flush publishes what has changed.
func (p *Publisher) flush(ctx context.Context, conn *mqttclient.Conn) error {
	for _, m := range p.collect() {
		limited, cancel := context.WithTimeout(ctx, brokerTimeout)
		var err error
		if m.once {
			err = conn.Publish(limited, mqttclient.Publication{Topic: m.topic, Payload: m.payload})
		} else {
			err = publish(limited, conn, m.topic, m.payload, m.qos)
		}
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// collect returns what is to be published.
func (p *Publisher) collect() (all []message) {
	seen := p.parts.Visible(p.who)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(p.devices)) {
		if d := p.devices[id]; d != nil {
			p.update(d, seen)
			all = append(all, p.messages(d, seen)...)
		}
		p.mu.Unlock() // the fleet must not wait for all of them
		p.mu.Lock()
	}
	for _, key := range slices.Sorted(maps.Keys(p.gone)) {
		all = append(all, message{topic: p.parts.Node.configTopic(key), qos: 1})
		for _, topic := range p.gone[key] {
			all = append(all, message{topic: topic})
		}
		delete(p.gone, key)
		delete(p.found, key)
	}
	return all
}

// messages returns what is to be published of a device, and notes that it was. It is called
// with mu held.
func (p *Publisher) messages(d *device, seen ferrule.Visibility) (all []message) {
	n, key := p.parts.Node, d.described.Key
	if key == "" || d.elsewhere {
		d.waiting = nil // what happened while it was not published must not appear later
	}
	if key == "" {
		return nil
	}
	if d.elsewhere {
		if d.sentOnline == online {
			d.sentOnline = offline
			all = append(all, message{topic: n.availability(key), payload: []byte(offline)})
		}
		return all
	}
	if config := string(d.described.Config); config != d.sentConfig {
		if gone := p.removed(d); len(gone) > 0 {
			all = append(all, message{topic: n.configTopic(key), payload: d.described.encode(p.input(d, seen), gone), qos: 1})
		}
		d.sentConfig = config
		p.found[key] = d.retained()
		all = append(all, message{topic: n.configTopic(key), payload: []byte(config), qos: 1})
	}
	for _, entity := range slices.Sorted(maps.Keys(d.states)) {
		if text := d.states[entity]; d.sentStates[entity] != text {
			d.sentStates[entity] = text
			all = append(all, message{topic: n.state(key, entity), payload: []byte(text)})
		}
	}
	if text := string(d.attrs); text != d.sentAttrs {
		d.sentAttrs = text
		all = append(all, message{topic: n.attributes(key, outcomeKey), payload: d.attrs})
	}
	state := offline
	if d.dev.State == ferrule.StateOnline {
		state = online
	}
	if d.sentOnline != state {
		d.sentOnline = state
		all = append(all, message{topic: n.availability(key), payload: []byte(state)})
	}
	for len(d.waiting) > 0 && !time.Now().Before(d.waiting[0].after) {
		all = append(all, message{topic: n.state(key, eventsKey), payload: d.waiting[0].data, once: true})
		d.waiting = d.waiting[1:]
	}
	return all
}

// removed returns the entities that were published and are not any longer, or that have
// another component.
func (p *Publisher) removed(d *device) map[string]string {
	gone := make(map[string]string)
	for key, component := range p.found[d.described.Key].components {
		if e := d.described.Entities[key]; component != "" && (e == nil || e.Component != component) {
			gone[key] = component
		}
	}
	return gone
}

func (d *device) retained() retained {
	r := retained{own: true, components: make(map[string]string)}
	for key, e := range d.described.Entities {
		r.components[key] = e.Component
	}
	return r
}
