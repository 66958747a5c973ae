package hass

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/template"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// source is one way to hear whether something is available: a topic and how to read it.
// All devices with the same one share it, so that a message of a bridge with thousands of
// devices is read once.
type source struct {
	topic        string
	template     *template.Template // nil for the payload itself
	online, gone string             // payloads
	// problem is why the source can never be read; empty if it can.
	problem string

	heard, available bool
	// at orders the last messages of different sources.
	at   uint64
	used []*device // by these devices; each once
}

// sourceKey identifies a source.
type sourceKey struct{ topic, template, online, gone string }

// rule is the availability of entities: sources and how to combine them. Without sources
// it holds while the broker is connected.
type rule struct {
	mode    string // all, any or latest
	sources []*source
}

// read takes a message and reports whether it changed anything. Payloads that mean
// neither, and templates that fail, change nothing.
func (s *source) read(payload []byte, at uint64) bool {
	if len(payload) > maxAvailability {
		return false
	}
	text := string(payload)
	if s.template != nil {
		rendered, err := s.template.Render(template.Payload(payload))
		if err != nil {
			return false
		}
		text = rendered
	}
	var available bool
	switch text {
	case s.online:
		available = true
	case s.gone:
	default:
		return false
	}
	changed := !s.heard || s.available != available
	s.heard, s.available, s.at = true, available, at
	return changed || len(s.used) > 0 // the latest of several sources may be another one now
}

// maxAvailability is the length of the longest payload that is read. maxSources is the
// number of sources of a hub, and maxReaders that of one topic: each message is read by all.
const (
	maxAvailability = 16 << 10
	maxSources      = 200_000
	maxReaders      = 64
)

// available reports whether the rule holds, and why not.
func (r *rule) available() (bool, string) {
	if len(r.sources) == 0 {
		return true, ""
	}
	heard := slices.DeleteFunc(slices.Clone(r.sources), func(s *source) bool { return !s.heard })
	var holds bool
	switch r.mode {
	case "all":
		holds = len(heard) == len(r.sources) && !slices.ContainsFunc(heard, func(s *source) bool { return !s.available })
	case "any":
		holds = slices.ContainsFunc(heard, func(s *source) bool { return s.available })
	default:
		var last *source
		for _, s := range heard {
			if last == nil || s.at > last.at {
				last = s
			}
		}
		holds = last != nil && last.available
	}
	if holds {
		return true, ""
	}
	return false, r.why(heard)
}

// why returns why the rule does not hold.
func (r *rule) why(heard []*source) string {
	for _, s := range heard {
		switch {
		case s.available:
		case strings.HasSuffix(s.topic, "/bridge/state"):
			return fmt.Sprintf("Zigbee2MQTT is not running, says %s", ferrule.Clean(s.topic, 128))
		default:
			return fmt.Sprintf("unavailable, says %s", ferrule.Clean(s.topic, 128))
		}
	}
	for _, s := range r.sources {
		switch {
		case s.problem != "":
			return fmt.Sprintf("unavailable: %s: %s", ferrule.Clean(s.topic, 128), s.problem)
		case !s.heard:
			return fmt.Sprintf("unavailable: nothing was heard on %s", ferrule.Clean(s.topic, 128))
		}
	}
	return "unavailable"
}

// equal reports whether two rules are the same one.
func (r *rule) equal(other rule) bool {
	return r.mode == other.mode && slices.Equal(r.sources, other.sources)
}

// sources has all sources of a hub.
type sources struct {
	byKey   map[sourceKey]*source
	byTopic map[string][]*source
	prefix  string
	last    uint64 // number of the last message
	dropped bool   // some may be unused
}

func newSources(prefix string) sources {
	return sources{byKey: make(map[sourceKey]*source), byTopic: make(map[string][]*source), prefix: prefix}
}

// rule returns the availability of an entity. It adds sources that are new.
func (all *sources) rule(e *discovery.Entity) rule {
	r := rule{mode: e.Options.Text("availability_mode", "latest")}
	for _, each := range e.Options.Objects("availability") {
		r.add(all.source(each, "topic", "value_template"))
	}
	if len(r.sources) == 0 && e.Options.Text("availability_topic", "") != "" {
		r.add(all.source(e.Options, "availability_topic", "availability_template"))
	}
	return r
}

func (r *rule) add(s *source) {
	if s != nil && !slices.Contains(r.sources, s) {
		r.sources = append(r.sources, s)
	}
}

// source returns the source that options describe, or nil.
func (all *sources) source(o discovery.Options, topic, value string) *source {
	key := sourceKey{o.Text(topic, ""), o.Text(value, ""), o.Text("payload_available", "online"), o.Text("payload_not_available", "offline")}
	if key.topic == "" {
		return nil
	}
	if s := all.byKey[key]; s != nil {
		return s
	}
	if len(all.byKey) >= maxSources || len(all.byTopic[key.topic]) >= maxReaders {
		return &source{topic: key.topic, problem: "there are too many availability topics"}
	}
	s := &source{topic: key.topic, online: key.online, gone: key.gone, problem: checkState(key.topic, all.prefix)}
	if key.template != "" {
		var err error
		if s.template, err = template.Parse(key.template); err != nil {
			s.problem = "its template is not supported"
		}
	}
	all.byKey[key] = s
	if s.problem == "" {
		all.byTopic[key.topic] = append(all.byTopic[key.topic], s)
	}
	return s
}

// use lets a device hear the sources of another rule, and returns topics that nobody used
// before.
func (all *sources) use(d *device, r rule) (fresh []string) {
	for _, s := range r.sources {
		if slices.ContainsFunc(d.rules, func(r rule) bool { return slices.Contains(r.sources, s) }) {
			continue
		}
		if s.problem == "" && !all.inUse(s.topic) {
			fresh = append(fresh, s.topic)
		}
		s.used = append(s.used, d)
	}
	return fresh
}

// inUse reports whether any device uses a topic.
func (all *sources) inUse(topic string) bool {
	return slices.ContainsFunc(all.byTopic[topic], func(s *source) bool { return len(s.used) > 0 })
}

// drop ends the use of sources by a device.
func (all *sources) drop(d *device, rules []rule) {
	all.dropped = true
	for _, r := range rules {
		for _, s := range r.sources {
			if i := slices.Index(s.used, d); i >= 0 {
				s.used = slices.Delete(s.used, i, i+1)
			}
		}
	}
}

// sweep forgets the sources that no device uses. The broker still sends messages on their
// topics until the connection ends; they are ignored.
func (all *sources) sweep() {
	if !all.dropped {
		return
	}
	all.dropped = false
	for key, s := range all.byKey {
		if len(s.used) > 0 {
			continue
		}
		delete(all.byKey, key)
		left := slices.DeleteFunc(all.byTopic[s.topic], func(other *source) bool { return other == s })
		if all.byTopic[s.topic] = left; len(left) == 0 {
			delete(all.byTopic, s.topic)
		}
	}
}

// forget makes all sources unheard, because the connection was lost.
func (all *sources) forget() {
	for _, s := range all.byKey {
		s.heard, s.available = false, false
	}
}

// read passes a message to the sources of its topic, and returns the devices that it may
// concern.
func (all *sources) read(topic string, payload []byte) (concerned []*device) {
	all.last++
	for _, s := range all.byTopic[topic] {
		if s.read(payload, all.last) {
			concerned = append(concerned, s.used...)
		}
	}
	return concerned
}
