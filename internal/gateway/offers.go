package gateway

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

	"github.com/ferrulehq/ferrule/internal/agent/mqttserver"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/device/transport/mcpmqtt"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/ops/config"
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
				Broker: cfg.Name, Server: mcpmqtt.Server{ID: id, Name: cfg.Offer}, Client: cfg.Client(),
				Description: "Ferrule gateway: reads and controls the devices that are connected to it",
			},
			Server: g.Agents, Check: server.CheckMessage, Log: g.parts.Log.With("broker", cfg.Name),
		})
	}
	return nil
}
