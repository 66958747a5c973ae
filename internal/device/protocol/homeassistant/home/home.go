// Package home is what a Home Assistant has: areas, devices, entities, their states, and the
// services that act on them. Everything here was said by Home Assistant: it is bounded and
// cleaned when it is read.
package home

import (
	"encoding/json"
	"time"
)

// Device is a device of Home Assistant, or all entities of one integration that have none.
type Device struct {
	// ID is that of the registry, or the name of an integration.
	ID string `json:"id"`
	// Group reports that this is not a device but the entities of an integration.
	Group bool `json:"group,omitempty"`
	// Keys are its identifiers and connections, such as mac:00:11:22:33:44:55. They tell which
	// device this is if Home Assistant gives it another ID.
	Keys         []string `json:"keys,omitempty"`
	Name         string   `json:"name,omitempty"`
	Manufacturer string   `json:"manufacturer,omitempty"`
	Model        string   `json:"model,omitempty"`
	Version      string   `json:"version,omitempty"`
	// Area, Floor and Labels are names, not IDs.
	Area   string   `json:"area,omitempty"`
	Floor  string   `json:"floor,omitempty"`
	Labels []string `json:"labels,omitempty"`
	// Service reports that it is not hardware.
	Service  bool     `json:"service,omitempty"`
	Entities []Entity `json:"entities,omitempty"`
}

// Entity is one thing of a device that has a state.
type Entity struct {
	ID string `json:"id"` // such as light.kitchen
	// Key names the entity within its device. Devices of one model have the same keys.
	Key    string `json:"key"`
	Domain string `json:"domain"` // such as light
	// Platform is the integration that provides it.
	Platform string `json:"platform,omitempty"`
	Name     string `json:"name,omitempty"`
	Class    string `json:"class,omitempty"` // device_class
	Features int    `json:"features,omitempty"`
	// Abilities are attributes that say what the entity can do, such as min_temp or
	// supported_color_modes. They do not change with its state.
	Abilities map[string]json.RawMessage `json:"abilities,omitempty"`
	Unit      string                     `json:"unit,omitempty"`
	// Measures reports that its state is a number: it has a unit or a state_class.
	Measures bool `json:"measures,omitempty"`
	// Assumed reports that Home Assistant does not hear of the state, but assumes it.
	Assumed bool `json:"assumed,omitempty"`
}

// State is the state of an entity.
type State struct {
	Value      string                     `json:"value"`
	Attributes map[string]json.RawMessage `json:"attributes,omitempty"`
	// Context is the ID of what changed it last.
	Context string    `json:"context,omitempty"`
	Changed time.Time `json:"changed"` // of Value
	Updated time.Time `json:"updated"`
}

// Unavailable reports whether the entity cannot be reached. One whose state is unknown can be: a
// button has none before it is pressed.
func (s State) Unavailable() bool { return s.Value == "unavailable" }

// Service is an action that Home Assistant offers.
type Service struct {
	Domain string `json:"domain"`
	Name   string `json:"name"`
	Title  string `json:"title,omitempty"`
	Text   string `json:"text,omitempty"`
	// Targets says which entities it acts on; one must fit. Without any, it has no target.
	Targets []Target `json:"targets,omitempty"`
	Fields  []Field  `json:"fields,omitempty"`
	// Response says whether the service answers: "", optional or always.
	Response string `json:"response,omitempty"`
}

// Target fits entities. An empty list fits every entity.
type Target struct {
	Domains   []string `json:"domains,omitempty"`
	Platforms []string `json:"platforms,omitempty"`
	Classes   []string `json:"classes,omitempty"`
	// Features are masks: an entity fits if it has all bits of one of them.
	Features []int `json:"features,omitempty"`
}

// Field is an argument of a service.
type Field struct {
	Name     string          `json:"name"`
	Title    string          `json:"title,omitempty"`
	Text     string          `json:"text,omitempty"`
	Required bool            `json:"required,omitempty"`
	Default  json.RawMessage `json:"default,omitempty"`
	Example  json.RawMessage `json:"example,omitempty"`
	// Selector is how Home Assistant describes its values: {"number":{"min":0}}.
	Selector json.RawMessage `json:"selector,omitempty"`
	// Features are masks: an entity has the field if it has all bits of one. Attributes has
	// values: the attribute of the entity must have one of them.
	Features   []int                        `json:"features,omitempty"`
	Attributes map[string][]json.RawMessage `json:"attributes,omitempty"`
}

// Offer is what a device is described from: the first message on its link.
type Offer struct {
	Device   Device    `json:"device"`
	Services []Service `json:"services,omitempty"` // of the domains of its entities
	// Temperature is the unit in which the home measures it.
	Temperature string `json:"temperature,omitempty"`
	// Settings lets agents use entities that are settings of the device.
	Settings bool `json:"settings,omitempty"`
}
