// Package discovery shows the devices of this gateway in Home Assistant, as MQTT discovery
// describes devices.
//
//	fleet ---Put-----> Publisher --config, state, availability--> broker --> Home Assistant
//	poller --Measured----^   |                                                    |
//	devices --HandleEvent----+--Call--> pipeline <-------- command topic <--------+
//
// Describe is a pure function: it makes the discovery message of a device from its manifest
// and its signals. The Publisher keeps what the broker has equal to that, over one connection
// of its own, whose will says that the gateway is gone.
//
// A command is a Call by the broker's principal, so that policy and approvals apply. The
// broker decides who may send one. A state is published if the device has confirmed it; after
// a call that may have run, the state is unknown. Only the node that holds a device publishes
// it, and nothing is published that came from Home Assistant or from discovery messages.
package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Node is the gateway that publishes.
type Node struct {
	// ID is unique among gateways: letters and digits.
	ID string
	// Name and Version are for people. URL is the address of the console; it may be empty.
	Name, Version, URL string
	// Prefix is that of discovery topics.
	Prefix string
}

// base is the prefix of all topics except those of discovery.
func (n Node) base() string { return "ferrule/" + n.ID }

// status is the topic that says whether the gateway is connected.
func (n Node) status() string { return n.base() + "/status" }

// key identifies the gateway in Home Assistant.
func (n Node) key() string { return ferrule.EntityPrefix + n.ID }

// configTopic is the topic of a discovery message.
func (n Node) configTopic(key string) string { return n.Prefix + "/device/" + key + "/config" }

// Signal is something that a device measures.
type Signal struct {
	Name, Unit string
	// State reports whether the value is valid until the next one.
	State bool
	// Binary reports whether all values are 0 or 1, and mean off and on.
	Binary bool
}

// Input is what Describe needs.
type Input struct {
	Node     Node
	Device   *ferrule.Device
	Manifest *ferrule.Manifest
	// Seen is what the broker's principal is shown.
	Seen    ferrule.Visibility
	Signals []Signal
	// Events are the notifications that the device has sent.
	Events []string
}

// Description is a device as Home Assistant knows it.
type Description struct {
	// Key identifies the device in topics and in Home Assistant.
	Key      string
	Config   []byte
	Entities map[string]*Entity
}

// payloads of availability.
const (
	online  = "online"
	offline = "offline"
	unknown = "None"
)

// Keys of entities that are not those of a tool or a signal.
const (
	outcomeKey = "ferrule_last_command"
	eventsKey  = "ferrule_events"
)

// Describe returns a device as Home Assistant is to know it.
func Describe(in Input) Description {
	d := Description{Key: DeviceKey(in.Node, in.Device), Entities: make(map[string]*Entity)}
	b := builder{in: in, out: &d}
	b.owners()
	b.tools()
	b.signals()
	b.others()
	d.Config = d.encode(in, nil)
	return d
}

// DeviceKey returns what identifies a device in Home Assistant. It is made from the address
// of the hardware, so that it stays when the device gets another name. It is long enough that
// nobody can make an address with the key of another device, whose commands it would get.
func DeviceKey(n Node, dev *ferrule.Device) string {
	const readable, digits = 24, 20
	scope := ""
	if dev.Local {
		scope = n.ID
	}
	sum := sha256.Sum256([]byte(scope + "\n" + dev.Hub + "\n" + dev.Address))
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, dev.Address)
	return ferrule.EntityPrefix + name[:min(len(name), readable)] + "_" + hex.EncodeToString(sum[:digits/2])
}

// encode returns the discovery message. Gone are the components of entities by key that are
// removed with it: a message without them would leave them.
func (d *Description) encode(in Input, gone map[string]string) []byte {
	n, dev := in.Node, in.Device
	about := map[string]any{"identifiers": []string{d.Key}, "name": deviceName(dev), "via_device": n.key()}
	for key, value := range map[string]string{
		"model": dev.Model, "sw_version": dev.Version, "suggested_area": area(dev), "configuration_url": deviceURL(n, dev),
	} {
		if value != "" {
			about[key] = value
		}
	}
	components := make(map[string]any)
	for key, e := range d.Entities {
		components[key] = e.config
	}
	for key, component := range gone {
		components[key] = map[string]string{"platform": component}
	}
	return encodeConfig(n, about, components, n.status(), n.availability(d.Key))
}

func encodeConfig(n Node, about, components map[string]any, available ...string) []byte {
	var topics []map[string]string
	for _, topic := range available {
		topics = append(topics, map[string]string{"topic": topic})
	}
	message := map[string]any{
		"device": about, "components": components,
		"origin": map[string]string{"name": ferrule.EntityOrigin, "sw_version": cmp.Or(n.Version, "0")},
	}
	if len(topics) > 0 {
		message["availability"], message["availability_mode"] = topics, "all"
	}
	data, _ := json.Marshal(message) // it has texts and numbers only
	return data
}

// nodeConfig returns the discovery message of the gateway itself, through which its devices
// are connected.
func nodeConfig(n Node) []byte {
	about := map[string]any{"identifiers": []string{n.key()}, "name": "Ferrule " + n.Name, "manufacturer": ferrule.EntityOrigin, "model": "Gateway", "sw_version": cmp.Or(n.Version, "0")}
	if strings.HasPrefix(n.URL, "http") {
		about["configuration_url"] = n.URL
	}
	return encodeConfig(n, about, map[string]any{"connected": map[string]any{
		"platform": "binary_sensor", "unique_id": n.key() + "_connected", "name": "Connected", "device_class": "connectivity",
		"entity_category": "diagnostic", "state_topic": n.status(), "payload_on": online, "payload_off": offline,
	}})
}

func (n Node) availability(device string) string { return n.base() + "/" + device + "/availability" }
func (n Node) state(device, entity string) string {
	return n.base() + "/" + device + "/" + entity + "/state"
}
func (n Node) command(device, entity string) string {
	return n.base() + "/" + device + "/" + entity + "/set"
}
func (n Node) attributes(device, entity string) string {
	return n.base() + "/" + device + "/" + entity + "/attributes"
}

func deviceName(dev *ferrule.Device) string {
	if dev.Named || dev.Title == "" {
		return dev.ID
	}
	return dev.Title
}

// area returns the room that the owner or the device names.
func area(dev *ferrule.Device) string {
	for _, labels := range []map[string]string{dev.Labels, dev.Claims} {
		for _, key := range []string{"area", "room"} {
			if labels[key] != "" {
				return labels[key]
			}
		}
	}
	return ""
}

func deviceURL(n Node, dev *ferrule.Device) string {
	if !strings.HasPrefix(n.URL, "http") {
		return ""
	}
	return strings.TrimSuffix(n.URL, "/") + "/devices/" + dev.ID
}
