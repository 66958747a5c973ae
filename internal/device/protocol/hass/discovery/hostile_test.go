package discovery_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
)

// hostile are messages that do harm to a careless reader. All are refused.
func hostile(t testing.TB) map[string]string {
	const device = `{"dev":{"ids":"a"},`
	components := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"c%d":{"p":"switch","name":"x"}`, i)
		}
		return device + `"o":{"name":"o"},"cmps":{` + b.String()[1:] + `}}`
	}
	return map[string]string{
		"empty":                  "",
		"not JSON":               "online",
		"list":                   "[]",
		"null":                   "null",
		"text":                   `"secret"`,
		"two values":             device + `"name":"x"}{}`,
		"1 MB and more":          device + `"name":` + quote(t, strings.Repeat("x", 1<<20)) + `}`,
		"long option":            device + `"command_template":` + quote(t, strings.Repeat("x", 1<<19)) + `}`,
		"long number":            device + `"min":` + strings.Repeat("1", 1<<16) + `}`,
		"10,000 components":      components(10_000),
		"many options":           device + `"x` + manyOptions(1000),
		"many availabilities":    device + `"avty":[` + strings.Repeat(`{"t":"x"},`, 1000) + `{}]}`,
		"depth 10,000":           device + `"x":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`,
		"depth 100":              device + `"x":` + strings.Repeat(`{"x":`, 100) + "1" + strings.Repeat("}", 100) + `}`,
		"deep and not closed":    strings.Repeat(`{"x":`, 100_000),
		"duplicate":              device + `"command_topic":"a","command_topic":"secret"}`,
		"duplicate, escaped":     device + `"command_topic":"a","command\u005ftopic":"secret"}`,
		"duplicate, nested":      `{"name":"x","dev":{"ids":"a","ids":"secret"}}`,
		"broken UTF-8":           device + "\"name\":\"\xff\xfe\"}",
		"broken UTF-8 in a key":  device + "\"\xc3\":\"x\"}",
		"long base topic":        device + `"~":` + quote(t, strings.Repeat("x", 2000)) + `,"cmd_t":"~"}`,
		"base topic of a kind":   device + `"~":["secret"],"cmd_t":"~"}`,
		"nothing but the device": `{"dev":{"ids":"a"}}`,
	}
}

func manyOptions(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `%d":1,"x`, i)
	}
	return b.String() + `":1}`
}

func TestHostile(t *testing.T) {
	for name, payload := range hostile(t) {
		for _, at := range []string{"switch/a", "device/a"} {
			m, err := discovery.Parse(topic(t, at), []byte(payload))
			if err == nil {
				t.Errorf("%s, %s: got %d entities", name, at, len(m.Entities))
			} else if text := err.Error(); strings.Contains(text, "secret") || len(text) > 300 {
				t.Errorf("%s, %s: the error says %q", name, at, text)
			}
		}
	}
}

// TestBaseBomb is a message that would be a hundred times as long with its base topics.
func TestBaseBomb(t *testing.T) {
	var options, components strings.Builder
	for i := range 200 {
		fmt.Fprintf(&options, `"%d_topic":"~",`, i)
	}
	for i := range 250 {
		fmt.Fprintf(&components, `,"c%d":{"p":"switch",%s"~":"%s"}`, i, options.String(), strings.Repeat("x", 1000))
	}
	payload := []byte(`{"dev":{"ids":"a"},"o":{"name":"o"},"cmps":{` + components.String()[1:] + `}}`)
	if len(payload) > discovery.MaxPayload {
		t.Fatalf("the message has %d bytes", len(payload))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := discovery.Parse(topic(t, "device/a"), payload)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	used := (after.TotalAlloc - before.TotalAlloc) >> 20
	t.Logf("%d entities, %d notes, %d MB", len(m.Entities), len(m.Notes), used)
	if len(m.Entities) > 10 || len(m.Notes) == 0 || len(m.Notes) > 16 || used > 100 {
		t.Errorf("got %d entities, %d notes, %d MB", len(m.Entities), len(m.Notes), used)
	}
}

// FuzzParse looks for messages that Parse should not accept, or that end the process.
func FuzzParse(f *testing.F) {
	for _, payload := range hostile(f) {
		if len(payload) < 1000 {
			f.Add("switch/a/b", []byte(payload))
		}
	}
	f.Add("device/a", []byte(`{"dev":{"ids":"a"},"o":{"name":"o"},"avty":{"t":"~/up"},"cmps":{"a":{"p":"switch","~":"b","cmd_t":"~/set"},"b":{"p":"light"}}}`))
	f.Add("cover/a", []byte(`{"dev":{"cns":[["mac","02:00:5e:00:7f:3a"]]},"pl_open":null,"pos_open":"100","~":"x/","pos_t":"~~"}`))
	f.Fuzz(func(t *testing.T, at string, payload []byte) {
		topic, ok := discovery.ParseTopic("p", "p/"+at+"/config")
		if !ok {
			t.Skip()
		}
		m, err := discovery.Parse(topic, payload)
		if err != nil {
			return
		}
		if !m.Migrate && m.Device.Key() == "" || len(m.Entities) > discovery.MaxEntities || len(m.Notes) > 16 {
			t.Fatalf("got %+v", m)
		}
		for _, e := range m.Entities {
			if e.Component == "" || e.ObjectID == "" || e.Topic != topic.String() {
				t.Fatalf("got %+v", e)
			}
			for key := range e.Options {
				e.Options.Text(key, "")
				e.Options.Number(key, 0)
				e.Options.Bool(key, false)
				e.Options.List(key)
				e.Options.Objects(key)
			}
		}
	})
}
