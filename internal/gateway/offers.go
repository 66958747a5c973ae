package gateway

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/discovery"
	"github.com/ferrulehq/ferrule/internal/agent/mqttserver"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/mqttclient/mcptopics"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
)

// buildOffers lets agents on MQTT brokers use the gateway. Its ID there is made from the
// key of the node, so that it stays the same: for another gateway it is the address of a
// device. Without a key it is new at each start.
func (g *Gateway) buildOffers() error {
	key, _ := journal.ReadPublicKey(g.parts.Data)
	sum := sha256.Sum256([]byte(cmp.Or(string(key), rand.Text())))
	b := g.Requests.brokers
	b.id = "ferrule-" + hex.EncodeToString(sum[:6])
	b.offer = func(cfg config.Broker, id string) (*mqttserver.Offer, error) {
		return mqttserver.New(mqttserver.Parts{
			Config: mqttserver.Config{
				Broker: cfg.Name, Server: mcptopics.Server{ID: id, Name: cfg.Offer}, Client: cfg.Client(),
				Description: "Ferrule gateway: reads and controls the devices that are connected to it",
			},
			Server: g.Agents, Check: server.CheckMessage, Log: g.parts.Log.With("broker", cfg.Name),
		})
	}
	b.publish = g.publisher
	return nil
}

// fromHome are the protocols of what comes from Home Assistant: it is not published there.
var fromHome = []string{hass.Name, homeassistant.Name, homeassistant.HomeName}

// publisher returns what shows the devices of this node in Home Assistant.
func (g *Gateway) publisher(cfg config.Broker, id string) *discovery.Publisher {
	client := cfg.Client()
	client.ClientID = id + "-entities"
	page, err := g.loginURL()
	if err != nil {
		page = "" // there are no pages to link to
	}
	parts := discovery.Parts{
		Node: discovery.Node{ID: strings.TrimPrefix(id, "ferrule-"), Name: g.node(), Version: g.parts.Version, URL: page, Prefix: cfg.Prefix},
		Name: g.node(), Broker: cfg.Name, Client: client, Watch: g.Fleet.WatchDevices, Handle: g.entry(telemetry.EntryAgent),
		Visible: g.visibility.Of, Changed: g.visibility.Changed, Skip: fromHome, Log: g.parts.Log.With("broker", cfg.Name),
	}
	if g.History != nil {
		parts.Latest = g.History.LatestOf
	}
	return discovery.New(parts)
}
