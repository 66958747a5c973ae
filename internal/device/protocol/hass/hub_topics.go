package hass

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/entity"
)

// parsed is the configs of a device, read.
type parsed struct {
	configs  []config
	messages []*discovery.Message // of each config
}

// parse reads the configs of a device. Those that a publisher is replacing are left out if
// there are others.
func (h *Hub) parse(d *device, configs []config) parsed {
	old := func(c config) bool {
		k := d.config(h.hash(c.topic().String()))
		return k == nil || k.migrating
	}
	if slices.ContainsFunc(configs, func(c config) bool { return !old(c) }) {
		configs = slices.DeleteFunc(configs, old)
	}
	p := parsed{}
	for _, c := range configs {
		m, err := discovery.Parse(c.topic(), []byte(c.Payload))
		if err != nil {
			continue // it was read before
		}
		p.configs, p.messages = append(p.configs, c), append(p.messages, m)
	}
	return p
}

func (c *config) topic() discovery.Topic {
	return discovery.Topic{Component: c.Component, NodeID: c.Node, ObjectID: c.Object}
}

// derive sets what follows from all configs of a device.
func (h *Hub) derive(d *device) {
	configs, err := unpack(d.packed)
	if err != nil {
		h.log.Error("configs are lost", "device", d.address, "err", err)
		return
	}
	h.sources.drop(d, d.rules)
	h.release(d)
	d.title, d.area, d.entities, d.commands, d.secret, d.stale, d.rules = "", "", 0, false, false, false, nil
	for _, m := range h.parse(d, configs).messages {
		h.add(d, m)
	}
	d.claims = slices.Clip(d.claims)
}

// add sets what follows from one config of a device.
func (h *Hub) add(d *device, m *discovery.Message) {
	d.title, d.area = cmp.Or(d.title, strings.Clone(m.Device.Name)), cmp.Or(d.area, strings.Clone(m.Device.Area))
	for i := range m.Entities {
		e := &m.Entities[i]
		if len(e.Options) == 0 {
			continue // to be removed
		}
		d.entities++
		heard, commanded := topicsOf(e)
		d.commands = d.commands || len(commanded) > 0
		d.secret = d.secret || entity.HasSecret(e)
		for _, topic := range heard {
			r := root(topic)
			if !h.isCommanded(d, r) {
				h.claim(d, h.hash("root", r))
			}
			if strings.Contains(r, "/") { // one level may be that of a whole home
				h.contest(d, h.hash("root", r))
			}
		}
		for _, name := range slices.Concat(m.Device.Identifiers, []string{e.NodeID}) {
			for _, address := range addresses(name) {
				h.claim(d, h.hash("address", address))
				h.contest(d, h.hash("address", address))
			}
		}
		for _, topic := range commanded {
			h.claimCommand(d, topic)
		}
		if r := h.sources.rule(e); len(d.rules) < maxRules && !slices.ContainsFunc(d.rules, r.equal) {
			h.wanted = append(h.wanted, h.sources.use(d, r)...)
			d.rules = append(d.rules, r)
		} else {
			h.sources.dropped = true // those that are new are not used
		}
	}
}

// claim gives a topic to a device, unless another one has it. The first one wins: a device
// that comes later cannot take the topics of one that the owner knows.
func (h *Hub) claim(d *device, topic uint64) {
	other := h.claims[topic]
	if other != nil && !other.commands && d.commands && !h.complete {
		other = nil // a sensor needs no topics to command
	}
	if other == nil && len(d.claims) < maxClaims {
		h.claims[topic] = d
		d.claims = append(d.claims, topic)
	}
}

// contest notes that a device claims what another one has. While everything is read after a
// start, the order means nothing: a lamp is read before a lock. Then neither may command by
// it until the gateway is restarted.
func (h *Hub) contest(d *device, topic uint64) {
	other := h.claims[topic]
	if h.complete || other == nil || other == d || !other.commands || !d.commands || len(h.contested) >= maxRefused {
		return
	}
	if len(h.contested) < maxReasons {
		h.log.Warn("two devices claim the same topic, so neither can be commanded by it", "device", d.address, "other", other.address)
	}
	h.contested[topic] = struct{}{}
}

// claimCommand gives a command topic to a device, unless it belongs to another one, and what
// lies between it and the device's root: another device that says to be heard on
// zigbee2mqtt/bath/set must not command the bath by it.
func (h *Hub) claimCommand(d *device, topic string) {
	command := h.hash("command", topic)
	if h.isForeign(d, topic) {
		h.contest(d, command)
		return
	}
	h.claim(d, command)
	var between []uint64
	for part := parentOf(trimAspect(topic)); part != ""; part = parentOf(part) {
		r := h.hash("root", part)
		if h.claims[r] == d {
			for _, r := range between {
				h.claim(d, r)
			}
			return
		}
		between = append(between, r)
	}
}

// isCommanded reports whether a topic, or one above it, is a command topic of another
// device.
func (h *Hub) isCommanded(d *device, topic string) bool {
	for part := topic; part != ""; part = parentOf(part) {
		if h.isOthers(d, h.hash("command", part)) {
			return true
		}
	}
	return false
}

// isOthers reports whether another device has a topic, or wants it just as well.
func (h *Hub) isOthers(d *device, topic uint64) bool {
	other := h.claims[topic]
	_, contested := h.contested[topic]
	return contested || other != nil && other != d
}

// release gives up the topics of a device.
func (h *Hub) release(d *device) {
	for _, topic := range d.claims {
		if h.claims[topic] == d {
			delete(h.claims, topic)
		}
	}
	d.claims = d.claims[:0]
}

// isForeign reports whether a command topic belongs to another device: it had the topic, or
// one above it, first; or its address is in the topic; or it is heard on the nearest topic
// above.
func (h *Hub) isForeign(d *device, topic string) bool {
	if h.isCommanded(d, topic) {
		return true
	}
	for _, address := range addresses(topic) {
		if h.isOthers(d, h.hash("address", address)) {
			return true
		}
	}
	var nearest *device
	for part := trimAspect(topic); part != ""; part = parentOf(part) {
		r := h.hash("root", part)
		if _, contested := h.contested[r]; contested {
			return true
		}
		nearest = cmp.Or(nearest, h.claims[r])
	}
	return nearest != nil && nearest != d
}

// isForeignState reports whether another device is heard on a topic and was first.
func (h *Hub) isForeignState(d *device, topic string) bool {
	other := h.claims[h.hash("root", root(topic))]
	return other != nil && other != d
}

// terms are what a link needs of a device. Maps are nil if they are empty: there are
// thousands of links.
type terms struct {
	offer   offer                    // until it was received: it is larger than all else
	allowed []uint64                 // hashes of topics that commands may use, sorted
	held    map[string]string        // topics that they must not use, with the reason
	refused map[string]string        // state topics that are not subscribed to, with the reason
	expiry  map[string]time.Duration // of command topics, if the publisher limits it
	secret  map[string]bool          // topics whose payloads must not be shown
}

// set adds an element to a map, and makes the map if it is nil.
func set[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = value
}

// termsOf judges all topics of a device.
func (h *Hub) termsOf(d *device, p parsed) *terms {
	out := &terms{
		offer: offer{
			Configs: p.configs, Settings: h.cfg.Settings, Disabled: h.cfg.Disabled, Prefix: h.cfg.Prefix, Topics: make(map[string]string),
		},
	}
	own := h.territory(d, p)
	for _, m := range p.messages {
		for i := range m.Entities {
			e := &m.Entities[i]
			heard, commanded := topicsOf(e)
			for _, topic := range commanded {
				if reason := h.judge(d, own, topic, e.Component, m.Origin.Name); reason != "" || out.offer.Topics[topic] == "" {
					out.offer.Topics[topic] = reason
				}
				if limit := e.Options.Number("message_expiry_interval", 0); limit > 0 && limit < 1e6 {
					set(&out.expiry, topic, time.Duration(limit*float64(time.Second)))
				}
			}
			for _, topic := range heard {
				reason := checkState(topic, h.cfg.Prefix)
				if reason == "" {
					reason = h.judgeState(d, topic)
				}
				if reason == heardForeign {
					out.offer.Foreign = append(out.offer.Foreign, topic)
				}
				if reason != "" {
					set(&out.refused, topic, reason)
				}
			}
			if entity.HasSecret(e) {
				for _, topic := range append(heard, commanded...) {
					set(&out.secret, topic, true)
				}
			}
		}
	}
	out.allowed = make([]uint64, 0, len(out.offer.Topics))
	for topic, reason := range out.offer.Topics {
		switch reason {
		case "":
			out.allowed = append(out.allowed, h.hash(topic))
			continue
		case heldForeign:
			out.offer.Foreign = append(out.offer.Foreign, topic)
		}
		set(&out.held, topic, reason)
	}
	slices.Sort(out.allowed)
	slices.Sort(out.offer.Foreign)
	out.offer.Foreign = slices.Compact(out.offer.Foreign)
	return out
}

// The reasons for which a state topic is not subscribed to.
const (
	heardForeign = "another device is heard on it"
	heardSecret  = "another device may be told or may say a code on it"
)

// judgeState returns why a device may not be heard on a topic; empty if it may. Sensors may
// be heard on topics of other devices, but not where codes are: everybody may read a sensor.
func (h *Hub) judgeState(d *device, topic string) string {
	if h.isForeignState(d, topic) && d.commands {
		return heardForeign // its commands would be confirmed by what another device says
	}
	var nearest *device
	for part := topic; part != ""; part = parentOf(part) {
		if other := h.claims[h.hash("command", part)]; other != nil && other != d && other.secret {
			return heardSecret
		}
		nearest = cmp.Or(nearest, h.claims[h.hash("root", trimAspect(part))])
	}
	if nearest != nil && nearest != d && nearest.secret {
		return heardSecret
	}
	return ""
}

// judge returns why a device may not use a command topic; empty if it may.
func (h *Hub) judge(d *device, own *territory, topic, component, origin string) string {
	switch reason := checkCommand(topic, h.cfg.Prefix); {
	case reason == heldBridge && isUpdateOfBridge(topic, component, origin):
		return ""
	case reason != "":
		return reason
	case h.isForeign(d, topic):
		return heldForeign
	case !own.owns(topic):
		return heldOutside
	}
	return ""
}

// territory returns what is known about the topics of a device.
func (h *Hub) territory(d *device, p parsed) *territory {
	own := &territory{}
	addRoot := func(topic string) {
		own.heard = append(own.heard, topic)
		if r := root(topic); !slices.Contains(own.roots, r) {
			own.roots = append(own.roots, r)
		}
	}
	for i, m := range p.messages {
		own.addNames(p.configs[i].Node, m.Device.Name, m.Device.MAC, m.Device.Serial)
		own.addNames(m.Device.Identifiers...)
		for i := range m.Entities {
			heard, _ := topicsOf(&m.Entities[i])
			for _, topic := range heard {
				if !slices.Contains(own.heard, topic) && !h.isForeignState(d, topic) {
					addRoot(topic)
				}
			}
		}
	}
	for _, r := range d.rules {
		for _, s := range r.sources {
			if len(s.used) == 1 && s.problem == "" && !slices.Contains(own.heard, s.topic) {
				addRoot(s.topic)
			}
		}
	}
	return own
}
