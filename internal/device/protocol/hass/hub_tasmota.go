package hass

import (
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/tasmota"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
)

// tasmotaParts are the two messages of a device with Tasmota.
type tasmotaParts struct{ config, sensors []byte }

// maxTasmota limits the devices with Tasmota, and maxTasmotaPart each message in bytes.
const (
	maxTasmota     = 4096
	maxTasmotaPart = 16 << 10
)

// applyTasmota applies a message in which Tasmota describes a device, as if it were a
// discovery message. It reports false for all other messages.
func (h *Hub) applyTasmota(m *mqttclient.Message) bool {
	mac, part, ok := tasmota.ParseTopic(m.Topic)
	if !ok {
		return false
	}
	said := h.tasmota[mac]
	switch {
	case len(m.Payload) > maxTasmotaPart:
		h.refuse(m.Topic, "the message is too long")
		return true
	case said == nil && len(h.tasmota) >= maxTasmota:
		h.refuse(m.Topic, "too many devices with Tasmota")
		return true
	case said == nil:
		said = &tasmotaParts{}
		h.tasmota[mac] = said
	}
	if part == "config" {
		said.config = m.Payload
	} else {
		said.sensors = m.Payload
	}
	translated := mqttclient.Message{Topic: h.cfg.Prefix + "/device/tasmota_" + mac + "/config", Retained: m.Retained}
	if len(said.config) > 0 {
		payload, err := tasmota.Translate(said.config, said.sensors)
		if err != nil {
			h.refuse(m.Topic, err.Error())
			return true
		}
		translated.Payload = payload
	} else if len(said.sensors) == 0 {
		delete(h.tasmota, mac)
	}
	h.apply(&translated)
	return true
}
