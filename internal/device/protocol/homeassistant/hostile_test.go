package homeassistant

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant/fake"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// watchLogged runs a hub until the test ends, and keeps its log.
func watchLogged(t *testing.T, url string) (*watched, *logBuffer) {
	t.Helper()
	text := new(logBuffer)
	log := slog.New(slog.NewTextHandler(text, nil))
	client := api.New(api.Config{URL: url, Token: func() (string, error) { return fake.Token, nil }}, log)
	w := &watched{Hub: NewHub(HubConfig{Home: "home", All: true}, client, log), client: client, all: make(map[string]transport.Sighting)}
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	tasks.Go(func() { client.Run(ctx) })
	tasks.Go(func() { w.Watch(ctx, w.update) })
	t.Cleanup(func() {
		cancel()
		tasks.Wait()
	})
	return w, text
}

// TestHostileAnswers: a wrong answer to any command is not fatal. Once Home Assistant answers
// properly, everything is there.
func TestHostileAnswers(t *testing.T) {
	good := playRecorded(t)
	w, _ := watchLogged(t, good.url)
	wait.For(t, "everything is read", func() bool { return w.Status().Complete })
	want := w.Status()
	for command := range good.answers {
		for name, junk := range map[string]string{"object": `{"a":{"b":[7]},"r":{}}`, "list": `[null,7,"x",{"id":{}},{"entity_id":[]}]`, "text": `"\u0000"`} {
			t.Run(command+" "+name, func(t *testing.T) {
				r := playRecorded(t)
				right := r.answers[command]
				r.set(command, json.RawMessage(junk))
				w, log := watchLogged(t, r.url)
				wait.For(t, "it is read", func() bool { s := w.Status(); return s.Complete || s.Note != "" })
				r.set(command, right)
				r.SetDown(true)
				r.SetDown(false)
				wait.For(t, "everything is read", func() bool {
					s := w.Status()
					return s.Complete && s.Devices == want.Devices && s.Entities == want.Entities && s.Note == ""
				})
				if n := strings.Count(log.String(), "\n"); n > 20 {
					t.Errorf("%d lines in the log", n)
				}
			})
		}
	}
}

// TestHostileFlood: events that are broken, or for entities that nobody has, are neither fatal nor
// logged each. What follows is heard.
func TestHostileFlood(t *testing.T) {
	r := playRecorded(t)
	w, log := watchLogged(t, r.url)
	wait.For(t, "everything is read", func() bool { return w.Status().Complete })
	link, _, _ := w.open(t, "Bed Light")
	for i := range 5000 {
		switch i % 4 {
		case 0:
			r.event(t, "subscribe_entities", `{"c":7}`)
		case 1:
			r.event(t, "subscribe_entities", `{"c":{"light.bed_light":{"+":{"s":7}}}}`)
		case 2:
			r.event(t, "subscribe_entities", fmt.Sprintf(`{"a":{"sensor.x%d":{"s":{}}}}`, i))
		case 3:
			r.event(t, "area_registry_updated", `[[[]]]`)
		}
	}
	r.event(t, "subscribe_entities", `{"c":{"light.bed_light":{"+":{"s":"on","lc":1743500009.9}}}}`)
	var states map[string]struct{ Value string }
	recv(t, link, channelStates, &states)
	if states["light.bed_light"].Value != "on" {
		t.Errorf("states %v", states)
	}
	if n := strings.Count(log.String(), "\n"); n > 50 {
		t.Errorf("%d lines in the log", n)
	}
}

// TestHostileGroup: a group with very many entities that come and go does not keep the connection
// busy.
func TestHostileGroup(t *testing.T) {
	const entities = 10_000
	r := playRecorded(t)
	states, sources := make(map[string]any), make(map[string]any)
	for i := range entities {
		id := fmt.Sprintf("switch.x%d", i)
		states[id] = map[string]any{"s": "on", "a": map[string]any{"friendly_name": strings.Repeat("x", 700)}, "lc": 1743500000}
		sources[id] = map[string]any{"domain": "many"}
	}
	for _, command := range []string{"config/device_registry/list", "config/entity_registry/list"} {
		r.set(command, []any{})
	}
	r.set("subscribe_entities", map[string]any{"a": states})
	r.set("entity/source", sources)
	w, _ := watchLogged(t, r.url)
	began := time.Now()
	wait.For(t, "everything is read", func() bool { s := w.Status(); return s.Complete && s.Entities == entities })
	t.Logf("read in %v", time.Since(began))
	all := func(state string) string {
		changes := make(map[string]any)
		for id := range states {
			changes[id] = map[string]any{"+": map[string]any{"s": state, "lc": 1743500001}}
		}
		data, err := json.Marshal(map[string]any{"c": changes})
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	var longest time.Duration
	for _, state := range []string{"unavailable", "off", "unavailable", "on"} {
		began := time.Now()
		r.event(t, "subscribe_entities", all(state))
		w.request(t, "get_config", nil, nil) // it is handled after that
		t.Logf("all %s in %v", state, time.Since(began))
		longest = max(longest, time.Since(began))
	}
	figure.AtMost(t, "10,000 changes in a group", longest, 10*time.Second)
}
