// Package discovery reads MQTT discovery messages, as Home Assistant defines them: which
// device a message is about, and which entities it has. It expands abbreviations and base
// topics, and bounds everything. It does not know what an entity of some component means.
//
//	topic, payload --Parse--> Message{Device, Origin, Entities}
//
// Options may hold secrets such as codes. No error and no note has the value of an option.
package discovery

import "strings"

// Limits of a message. What exceeds one is refused, because a publisher could do harm with
// an option that is cut or left out: a command without its template is another command.
const (
	MaxPayload      = 1 << 20 // bytes
	MaxEntities     = 1024    // of a message
	maxDepth        = 16      // of objects and lists
	maxOptions      = 256     // of an entity
	maxAvailability = 64      // topics in the list of an entity
	maxText         = 16384   // bytes of a text
	maxBase         = 1024    // bytes of a base topic
	maxID           = 255     // bytes of a part of a topic
	maxShown        = 256     // bytes of a text that people see
	maxIDs          = 16      // identifiers of a device
	maxConnection   = 16      // connections of a device
	maxNotes        = 16
)

// Message is one discovery message. Several may describe the entities of one device.
type Message struct {
	Device Device
	Origin Origin
	// Entities has one entity, or all of a device, sorted by component and ID. An entity
	// without options is to be removed.
	Entities []Entity
	// Whole reports the form that describes a whole device.
	Whole bool
	// Migrate reports that the publisher is about to change between the two forms. Such a
	// message has no device.
	Migrate bool
	// Notes are problems with parts that were left out.
	Notes []string
}

// Device is the block that identifies a device. Its texts are clean, and may be shown.
type Device struct {
	// Identifiers are its identifiers. MAC is the first address in its connections, in
	// lower-case hexadecimal digits without separators. One of both is set at least.
	Identifiers                                   []string
	MAC                                           string
	Name                                          string
	Manufacturer, Model, ModelID, Version, Serial string
	Area                                          string // suggested_area
}

// Key returns what identifies the device on its broker: the first identifier, else the MAC.
func (d *Device) Key() string {
	if len(d.Identifiers) > 0 {
		return d.Identifiers[0]
	}
	return d.MAC
}

// Origin is the software that publishes.
type Origin struct{ Name, Version string }

// Entity is one entity of a device.
type Entity struct {
	// Component is light, switch and so on. In the form that describes a whole device,
	// NodeID is the object ID of the topic, and ObjectID is the key of the component: the
	// same entity has the same IDs in both forms. NodeID may be empty.
	Component, NodeID, ObjectID string
	// Topic is that of the config, without the prefix and "/config".
	Topic string
	// Options are all other keys with their full names, decoded with UseNumber, with base
	// topics expanded and the inherited ones of a device message set. Those without a
	// meaning here, such as icons, are left out. An empty name is null, which says that
	// the entity is the main function of its device.
	Options Options
}

// Topic is what the topic of a discovery message says. The component of a message about a
// whole device is "device".
type Topic struct{ Component, NodeID, ObjectID string }

// String returns the topic without the prefix and "/config".
func (t Topic) String() string {
	if t.NodeID == "" {
		return t.Component + "/" + t.ObjectID
	}
	return t.Component + "/" + t.NodeID + "/" + t.ObjectID
}

// device is the component in the topic of a message about a whole device.
const device = "device"

// ParseTopic splits PREFIX/COMPONENT/[NODE/]OBJECT/config. It reports false for other
// topics.
func ParseTopic(prefix, topic string) (Topic, bool) {
	rest, found := strings.CutPrefix(topic, prefix+"/")
	if !found {
		return Topic{}, false
	}
	if rest, found = strings.CutSuffix(rest, "/config"); !found {
		return Topic{}, false
	}
	parts := strings.Split(rest, "/")
	if len(parts) < 2 || len(parts) > 3 || !isComponent(parts[0]) {
		return Topic{}, false
	}
	t := Topic{Component: parts[0], ObjectID: parts[len(parts)-1]}
	if len(parts) == 3 {
		t.NodeID = parts[1]
		if !isID(t.NodeID) {
			return Topic{}, false
		}
	}
	return t, isID(t.ObjectID)
}

// isComponent reports whether a text can be the name of a component.
func isComponent(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// isID reports whether Home Assistant accepts a node ID or object ID.
func isID(s string) bool {
	return s != "" && len(s) <= maxID && strings.IndexFunc(s, notInID) < 0
}

func notInID(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
}
