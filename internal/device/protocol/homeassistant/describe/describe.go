// Package describe makes tools and signals of the entities of a device.
//
//	home.Offer --Device--> ferrule.Manifest   what agents see, equal for equal devices
//	                  └--> Plan               what its tools and signals stand for
//
// One service is one tool, whatever number of entities it acts on. Nothing in the manifest
// depends on names, IDs, areas or states.
package describe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// ReadState is the name of the tool that reads the states of entities.
const ReadState = "read_state"

// GetPicture is the name of the tool that returns the picture of a camera or an image entity. It
// is not a service of Home Assistant: those that take pictures write them into files there.
const GetPicture = "get_picture"

// EntityArg is the name of the argument that says which entity a tool acts on.
const EntityArg = "entity"

// The limits of a device.
const (
	maxEntities = 50_000
	maxEnum     = 64 // entities that an argument lists
)

// Plan is how to use a device: what its tools and signals stand for.
type Plan struct {
	// Tools are by name.
	Tools map[string]Tool
	// Signals has what is measured of each entity, by its ID.
	Signals map[string][]Signal
	// Unused has the entities that are neither, by ID, with the reason.
	Unused map[string]string
	// Hidden has the entities whose state is a secret, by ID.
	Hidden map[string]bool
}

// Tool is a service on entities of the device, or a read of their states.
type Tool struct {
	// Domain and Service are empty if the tool reads states. Service may be GetPicture.
	Domain, Service string
	// Entities are the entities that it acts on, by key. If there is more than one, or the
	// device is a group, the argument "entity" says which. Keys of a group are IDs.
	Entities map[string]string
	// Answers reports that the service returns a response.
	Answers bool
	// Secrets are arguments that must not be shown or recorded.
	Secrets []string
	// Choices has arguments whose values the entity lists in an attribute, by argument: the
	// owner may change that list at any time.
	Choices map[string]string
}

// Device describes a device. It never fails: what cannot be used has a reason in the plan.
func Device(offer *home.Offer) (*ferrule.Manifest, *Plan) {
	d := &device{
		offer: offer,
		plan: &Plan{
			Tools: make(map[string]Tool), Signals: make(map[string][]Signal),
			Unused: make(map[string]string), Hidden: make(map[string]bool),
		},
		manifest: &ferrule.Manifest{},
	}
	d.about()
	d.addEntities()
	d.addTools()
	d.addSignals()
	return d.manifest, d.plan
}

// device is a device while it is described.
type device struct {
	offer    *home.Offer
	plan     *Plan
	manifest *ferrule.Manifest
	// used are the entities that have tools or signals, in the order of their keys.
	used []*home.Entity
	all  map[string]string // their IDs by key
}

// about sets what the manifest says about the device.
func (d *device) about() {
	dev, m := &d.offer.Device, d.manifest
	m.Platform = "Home Assistant"
	if dev.Group {
		m.Model = ferrule.Clean(dev.ID, ferrule.MaxWord)
		m.Instructions = "All entities of the integration " + m.Model + " in Home Assistant that belong to no device. The argument entity is an entity_id."
		return
	}
	m.Model = ferrule.Clean(dev.Model, ferrule.MaxWord)
	if !dev.Service { // else it is the version of Home Assistant
		m.Version = ferrule.Clean(dev.Version, ferrule.MaxWord)
	}
	m.Instructions = strings.TrimSpace(ferrule.Clean(dev.Manufacturer, ferrule.MaxWord) + " " + m.Model + " via Home Assistant")
}

// addEntities finds the entities that can be used.
func (d *device) addEntities() {
	all := d.offer.Device.Entities
	for i := range all {
		e := &all[i]
		reason := home.Unused(e.Domain)
		if reason == "" && len(d.used) == maxEntities {
			reason = fmt.Sprintf("the device has more than %d entities", maxEntities)
		}
		if reason != "" {
			d.plan.Unused[e.ID] = reason
			continue
		}
		d.used = append(d.used, e)
		if secretState(e) {
			d.plan.Hidden[e.ID] = true
		}
	}
	slices.SortStableFunc(d.used, func(a, b *home.Entity) int { return cmp.Compare(d.key(a), d.key(b)) })
}

// key returns the name of an entity within the device.
func (d *device) key(e *home.Entity) string {
	if d.offer.Device.Group {
		return e.ID
	}
	return e.Key
}
