// Package discovery reads MQTT discovery messages, as Home Assistant defines them: which
// device a message is about, and which entities it has. It expands abbreviations and base
// topics, and bounds everything. It does not know what an entity of some component means.
//
//	topic, payload --Parse--> Message{Device, Origin, Entities}
package discovery

import "errors"

// Message is one discovery message. Several may describe the entities of one device.
type Message struct {
	Device Device
	Origin Origin
	// Entities has one entity, or all of a device. An entity without any option but its
	// platform is to be removed.
	Entities []Entity
	// Whole reports the form that describes a whole device.
	Whole bool
	// Migrate reports that the publisher is about to change between the two forms.
	Migrate bool
	// Notes are problems with parts that were left out.
	Notes []string
}

// Device is the block that identifies a device.
type Device struct {
	// Identifiers are its identifiers; MAC is from its connections. One is set at least.
	Identifiers                                             []string
	MAC                                                     string
	Name                                                    string
	Manufacturer, Model, ModelID, Version, Hardware, Serial string
	Area                                                    string // suggested_area
	Via                                                     string
}

// Key returns what identifies the device on its broker: the first identifier, else the MAC.
func (d *Device) Key() string { return "" }

// Origin is the software that publishes.
type Origin struct{ Name, Version string }

// Entity is one entity of a device.
type Entity struct {
	// Component is light, switch and so on. NodeID may be empty.
	Component, NodeID, ObjectID string
	// Topic is that of the config.
	Topic string
	// Options are all other keys with their full names, decoded with UseNumber, with base
	// topics expanded and the inherited ones of a device message set.
	Options Options
}

// Options are the options of an entity.
type Options map[string]any

// Text returns an option as Python prints it (True, 5, 5.0, None), or a default if it is
// missing or null.
func (o Options) Text(key, otherwise string) string { return otherwise }

// Has reports whether an option is there and not null.
func (o Options) Has(key string) bool { return false }

// Number returns an option that is a number or a text with one, or a default.
func (o Options) Number(key string, otherwise float64) float64 { return otherwise }

// Bool returns an option that is a boolean, or a default.
func (o Options) Bool(key string, otherwise bool) bool { return otherwise }

// List returns an option that is a list of texts.
func (o Options) List(key string) []string { return nil }

// Topic is what the topic of a discovery message says.
type Topic struct{ Component, NodeID, ObjectID string }

// ParseTopic splits PREFIX/COMPONENT/[NODE/]OBJECT/config. It reports false for other
// topics.
func ParseTopic(prefix, topic string) (Topic, bool) { return Topic{}, false }

// Parse reads a message. An empty payload is an error here: it removes the entity.
func Parse(topic Topic, payload []byte) (*Message, error) { return nil, errors.New("not written yet") }
