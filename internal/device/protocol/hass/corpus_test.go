//go:build unix

package hass

import (
	"encoding/json"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/zigbee"
)

// corpus returns the offers of all devices that Zigbee2MQTT supports.
func corpus(t testing.TB) []offer {
	devices := map[string]*offer{}
	for _, m := range zigbee.Corpus(t) {
		topic, ok := discovery.ParseTopic("homeassistant", m.Topic)
		if !ok {
			t.Logf("%s is not a topic of discovery", m.Topic)
			continue
		}
		o := devices[topic.NodeID]
		if o == nil {
			o = &offer{Prefix: "homeassistant"}
			devices[topic.NodeID] = o
		}
		o.Configs = append(o.Configs, config{topic.Component, topic.NodeID, topic.ObjectID, string(m.Payload)})
	}
	all := make([]offer, 0, len(devices))
	for _, o := range devices {
		all = append(all, *o)
	}
	return all
}

// TestCorpus describes each device that Zigbee2MQTT supports, and measures the memory of
// their sessions.
func TestCorpus(t *testing.T) {
	offers := corpus(t)
	kinds, tools, states, quarantined, notes := map[ferrule.Kind]bool{}, 0, 0, 0, 0
	reasons := map[string]int{}
	for i := range offers {
		o := &offers[i]
		d := describe(o)
		shuffled := offer{Configs: append([]config(nil), o.Configs...), Prefix: o.Prefix}
		rand.Shuffle(len(shuffled.Configs), func(a, b int) {
			shuffled.Configs[a], shuffled.Configs[b] = shuffled.Configs[b], shuffled.Configs[a]
		})
		text, _ := json.Marshal(d.manifest)
		d.manifest.Bound()
		kind, err := d.manifest.Kind()
		if err != nil {
			t.Fatal(err)
		}
		if other := kindOf(t, shuffled); other != kind {
			t.Errorf("%s: the order of its configs changes its kind", o.Configs[0].Node)
		}
		kinds[kind] = true
		if strings.Contains(string(text), o.Configs[0].Node) || strings.Contains(string(text), "zigbee2mqtt/") {
			t.Errorf("the manifest identifies one device: %s", text)
		}
		tools, states, notes = tools+len(d.tools), states+len(d.states), notes+len(d.manifest.Notes)
		for _, tool := range d.tools {
			// Only the hub knows that Zigbee2MQTT may update firmware by a topic of the bridge.
			if tool.refusal != "" && tool.refusal != heldBridge {
				quarantined++
				reasons[tool.refusal]++
			}
		}
	}
	t.Log(reasons)
	t.Logf("%d devices, %d kinds, %d tools, %d of them in quarantine, %d states, %d notes", len(offers), len(kinds), tools, quarantined, states, notes)
	if len(offers) < 4478 || tools < 10000 || quarantined > tools/100 {
		t.Error("too few")
	}
	sessions := make([]*Session, 0, len(offers))
	before := heap()
	for i := range offers {
		sessions = append(sessions, newSession(nil, describe(&offers[i])))
	}
	per := int(heap()-before) / len(offers)
	t.Logf("%d bytes a session", per)
	if per > 4096 {
		t.Error("limit is 4096")
	}
	runtime.KeepAlive(sessions)
	runtime.KeepAlive(offers)
}
