package hass

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
)

func entityOf(t testing.TB, options string) *discovery.Entity {
	t.Helper()
	topic := discovery.Topic{Component: "sensor", NodeID: "n", ObjectID: "o"}
	m, err := discovery.Parse(topic, []byte(`{"dev":{"ids":"x"},"stat_t":"s",`+options+`}`))
	if err != nil {
		t.Fatal(err)
	}
	return &m.Entities[0]
}

// TestAvailability: modes, orders, silence, templates and payloads as Python writes them.
func TestAvailability(t *testing.T) {
	two := `"avty":[{"t":"a"},{"t":"b"}]`
	bridge := `"avty":[{"t":"a","val_tpl":"{{ value_json.state }}"},{"t":"b"}],"avty_mode":"all"`
	for _, test := range []struct {
		options, heard string // TOPIC=PAYLOAD
		want           bool
	}{
		{`"name":"x"`, "", true},
		{`"avty_t":"a"`, "", false},
		{`"avty_t":"a"`, "a=online", true},
		{`"avty_t":"a"`, "a=online a=offline", false},
		{`"avty_t":"a"`, "a=online a=other", true},
		{`"avty_t":"a","pl_avail":true,"pl_not_avail":false`, "a=True", true},
		{`"avty_t":"a","avty_tpl":"{{ value_json.up }}","pl_avail":1,"pl_not_avail":0`, `a={"up":1}`, true},
		{`"avty_t":"a","avty_tpl":"{{ value_json.up }}","pl_avail":1,"pl_not_avail":0`, `a={"up":1} a={"down":1} a=broken`, true},
		{two, "", false},
		{two, "a=online", true},
		{two, "a=online b=offline", false},
		{two, "b=offline a=online", true},
		{two, "b=offline a=online b=offline", false},
		{two + `,"avty_mode":"all"`, "a=online", false},
		{two + `,"avty_mode":"all"`, "a=online b=online", true},
		{two + `,"avty_mode":"all"`, "a=online b=online a=offline", false},
		{two + `,"avty_mode":"any"`, "a=online b=offline", true},
		{two + `,"avty_mode":"any"`, "a=offline b=offline", false},
		{two + `,"avty_mode":"any"`, "", false},
		{bridge, `a={"state":"online"} b=online`, true},
		{bridge, `a=online b=online`, false},
		{`"avty_t":"a/#"`, "", false},
		{`"avty_t":"a","avty_tpl":"{% for a in range(9) %}{% endfor %}"`, "a=online", false},
	} {
		all := newSources("homeassistant")
		d := &device{}
		d.rules = []rule{all.rule(entityOf(t, test.options))}
		h := &Hub{}
		for _, heard := range strings.Fields(test.heard) {
			topic, payload, _ := strings.Cut(heard, "=")
			all.read(topic, []byte(payload))
		}
		if absent := h.absence(d); (absent == "") != test.want {
			t.Errorf("%s after %s: %q", test.options, test.heard, absent)
		}
	}
}

// TestSharedAvailability: devices share what they have in common, and one message is read
// once for all.
func TestSharedAvailability(t *testing.T) {
	all := newSources("homeassistant")
	one, two := &device{}, &device{}
	for i, d := range []*device{one, two} {
		r := all.rule(entityOf(t, `"avty":[{"t":"bridge"},{"t":"own`+string(rune('1'+i))+`"}]`))
		fresh := all.use(d, r)
		d.rules = append(d.rules, r)
		if len(fresh) != 2-i {
			t.Errorf("device %d needs the topics %q", i, fresh)
		}
	}
	if len(all.byKey) != 3 {
		t.Errorf("%d sources", len(all.byKey))
	}
	if concerned := all.read("bridge", []byte("online")); len(concerned) != 2 {
		t.Errorf("%d devices are concerned", len(concerned))
	}
	all.drop(one, one.rules)
	all.sweep()
	if len(all.byKey) != 2 || len(all.byTopic) != 2 || len(all.read("own1", []byte("online"))) != 0 || len(all.read("bridge", []byte("offline"))) != 1 {
		t.Errorf("%d sources, %d topics", len(all.byKey), len(all.byTopic))
	}
}

// FuzzAvailability: no payload makes a source fail, and only the two known ones count.
func FuzzAvailability(f *testing.F) {
	f.Add("online", "{{ value_json.state }}")
	f.Add(`{"state":"online"}`, "{{ value_json.state }}")
	f.Add(`[[[`, "{{ value_json.a.b }}")
	f.Fuzz(func(t *testing.T, payload, text string) {
		all := newSources("homeassistant")
		options := discovery.Options{"availability_topic": "a", "availability_template": text, "payload_available": json.Number("1")}
		r := all.rule(&discovery.Entity{Options: options})
		all.read("a", []byte(payload))
		if holds, why := r.available(); holds == (why != "") {
			t.Errorf("%t, %q", holds, why)
		}
	})
}
