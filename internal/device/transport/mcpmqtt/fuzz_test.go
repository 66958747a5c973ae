package mcpmqtt

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/transport/mqttclient"
)

// FuzzPresence: no presence message makes a device that cannot be addressed, or breaks the
// connector.
func FuzzPresence(f *testing.F) {
	for _, topic := range []string{"$mcp-server/presence/lamp/light/rgb", "$mcp-server/presence/capability/x", "$mcp-server/presence//x", "x"} {
		f.Add(topic, Online("light/rgb", "a lamp"), true)
		f.Add(topic, []byte(nil), false)
		f.Add(topic, []byte(`{"method":"notifications/server/online","params":{"meta":[]}}`), false)
	}
	f.Fuzz(func(t *testing.T, topic string, payload []byte, retained bool) {
		c := New(Config{Broker: "b"}, nil, slog.New(slog.DiscardHandler))
		c.hear(mqttclient.Message{Topic: "$mcp-server/presence/lamp/light/rgb", Payload: Online("light/rgb", ""), Retained: true})
		c.hear(mqttclient.Message{Topic: topic, Payload: payload, Retained: retained})
		for _, s := range c.sightings() {
			id, ok := strings.CutPrefix(s.Address, "mcp:b/")
			if err := (Server{ID: id, Name: s.Title}).Check(); !ok || err != nil || s.Instance == 0 {
				t.Errorf("%q: %+v: %v", topic, s, err)
			}
		}
	})
}
