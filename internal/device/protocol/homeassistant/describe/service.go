package describe

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// addTools adds a tool for each service that an entity supports, and the one that reads.
func (d *device) addTools() {
	var services []*home.Service
	acts := make(map[*home.Service][]*home.Entity)
	domains := make(map[string]int) // of services with one name
	for i := range d.offer.Services {
		s := &d.offer.Services[i]
		entities := d.supporting(s)
		if len(entities) == 0 || withheld(s) {
			continue
		}
		services, acts[s] = append(services, s), entities
		domains[s.Name]++
	}
	domains[ReadState]++
	domains[GetPicture]++
	slices.SortFunc(services, func(a, b *home.Service) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Name, b.Name))
	})
	for _, s := range services {
		name := s.Name
		if domains[name] > 1 {
			name = s.Domain + "_" + name
		}
		if _, taken := d.plan.Tools[name]; taken {
			d.manifest.Notes = append(d.manifest.Notes, s.Domain+"."+s.Name+" is not offered: another tool has its name")
			continue
		}
		d.addService(name, s, acts[s])
	}
	if len(d.used) > 0 {
		d.addReader()
	}
	d.addPicture()
}

// addPicture adds the tool that returns pictures.
func (d *device) addPicture() {
	var entities []*home.Entity
	for _, e := range d.used {
		if e.Domain == "camera" || e.Domain == "image" {
			entities = append(entities, e)
		}
	}
	if len(entities) == 0 {
		return
	}
	b := &builder{properties: make(map[string]any)}
	if d.choosing(entities) {
		b.properties[EntityArg], b.required = d.entityArg(entities), []string{EntityArg}
	}
	d.manifest.Tools = append(d.manifest.Tools, ferrule.Tool{Name: GetPicture, Text: "Returns the current picture.", Input: b.schema()})
	d.plan.Tools[GetPicture] = Tool{Domain: "camera", Service: GetPicture, Entities: d.keys(entities), Answers: true}
}

// supporting returns the entities that a service acts on.
func (d *device) supporting(s *home.Service) (entities []*home.Entity) {
	if s.Domain == "homeassistant" { // acts on entities of any domain
		return nil
	}
	for _, e := range d.used {
		if slices.ContainsFunc(s.Targets, func(t home.Target) bool { return fits(s, t, e) }) {
			entities = append(entities, e)
		}
	}
	return entities
}

// fits reports whether a target of a service fits an entity.
func fits(s *home.Service, t home.Target, e *home.Entity) bool {
	if mask := masks[s.Domain+"."+s.Name]; mask != 0 && len(t.Features) == 0 {
		t.Features = []int{mask}
	}
	return t.Fits(e)
}

// masks are features that services need without saying so.
var masks = map[string]int{
	"camera.turn_off":                 1,
	"camera.turn_on":                  1,
	"media_player.browse_media":       1 << 17,
	"update.install":                  1,
	"vacuum.clean_spot":               1 << 10,
	"vacuum.send_command":             1 << 8,
	"vacuum.set_fan_speed":            1 << 5,
	"water_heater.set_away_mode":      4,
	"water_heater.set_operation_mode": 2,
	"water_heater.set_temperature":    1,
	"water_heater.turn_off":           8,
	"water_heater.turn_on":            8,
}

// withheld reports whether a service is not offered as a tool: it writes files, or acts on
// other entities than those of the device, which the policy for this device must not decide.
func withheld(s *home.Service) bool {
	switch s.Domain + "." + s.Name {
	case "camera.record", "camera.snapshot", "image.snapshot":
		return true
	}
	return slices.ContainsFunc(s.Fields, func(f home.Field) bool {
		kind, _ := readSelector(f.Selector)
		return f.Required && (references[kind] || notOffered[kind])
	})
}

// addService adds a tool that calls a service.
func (d *device) addService(name string, s *home.Service, entities []*home.Entity) {
	b := &builder{device: d, service: s, entities: entities, properties: make(map[string]any)}
	plan := Tool{Domain: s.Domain, Service: s.Name, Entities: d.keys(entities), Answers: s.Response == "always"}
	for i := range s.Fields {
		b.addField(&s.Fields[i], &plan)
	}
	text := cmp.Or(serviceTexts[s.Domain+"."+s.Name], s.Text, s.Title, "Calls the service "+s.Domain+"."+s.Name+" of Home Assistant.")
	if d.choosing(entities) {
		b.properties[EntityArg], b.required = d.entityArg(entities), append(b.required, EntityArg)
	}
	slices.Sort(plan.Secrets)
	d.manifest.Tools = append(d.manifest.Tools, ferrule.Tool{
		Name: ferrule.Clean(name, ferrule.MaxToolName), Text: ferrule.Clean(text, ferrule.MaxText), Input: b.schema(),
		Class: d.class(s, entities), Secrets: slices.Clone(plan.Secrets),
	})
	d.plan.Tools[name] = plan
}

// addReader adds the tool that reads states.
func (d *device) addReader() {
	b := &builder{properties: make(map[string]any)}
	text := "Reads the current state of the device and its attributes."
	if d.choosing(d.used) {
		b.properties[EntityArg] = d.entityArg(d.used)
		text = "Reads the current states of the entities and their attributes, of all of them or of one."
	}
	d.manifest.Tools = append(d.manifest.Tools, ferrule.Tool{Name: ReadState, Text: text, Input: b.schema()})
	d.plan.Tools[ReadState] = Tool{Entities: d.keys(d.used)}
}

// keys returns the IDs of entities by key.
func (d *device) keys(entities []*home.Entity) map[string]string {
	if len(entities) == len(d.used) && d.all != nil { // most services of a large group act on all
		return d.all
	}
	keys := make(map[string]string, len(entities))
	for _, e := range entities {
		keys[d.key(e)] = e.ID
	}
	if len(entities) == len(d.used) {
		d.all = keys
	}
	return keys
}

// choosing reports whether a call has to say which of the entities it acts on. The entities of a
// group change with every helper that the owner adds, and its tools should not.
func (d *device) choosing(entities []*home.Entity) bool {
	return d.offer.Device.Group || len(entities) > 1
}

// entityArg returns the schema of the argument that says which entity.
func (d *device) entityArg(entities []*home.Entity) map[string]any {
	if d.offer.Device.Group {
		return map[string]any{"type": "string", "description": "The entity_id. To list them, call " + ReadState + "."}
	}
	if len(entities) > maxEnum {
		return map[string]any{"type": "string", "description": "The key of the entity, as " + ReadState + " returns it."}
	}
	keys := slices.Sorted(maps.Keys(d.keys(entities)))
	return map[string]any{"type": "string", "enum": keys, "description": "The entity that the call is about."}
}

// class returns the class of a tool: domain, device class if there is one, service. Services of
// integrations, whose effects are not known, have the class integration.
func (d *device) class(s *home.Service, entities []*home.Entity) string {
	if !slices.ContainsFunc(entities, func(e *home.Entity) bool { return e.Domain == s.Domain }) {
		return "integration." + s.Domain + "." + s.Name
	}
	class := entities[0].Class
	for _, e := range entities[1:] {
		switch {
		case dangerous[s.Domain][class]:
		case dangerous[s.Domain][e.Class]:
			class = e.Class
		case class != e.Class:
			class = ""
		}
	}
	if d.offer.Device.Group { // a dangerous one may be added at any time
		class = ""
		if dangerous[s.Domain] != nil {
			class = "any"
		}
	}
	if class == "" || strings.Trim(class, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return s.Domain + "." + s.Name
	}
	return s.Domain + "." + class + "." + s.Name
}

// dangerous are device classes that the overlay treats differently from others of the domain.
var dangerous = map[string]map[string]bool{
	"button": set("restart", "update"),
	"cover":  set("door", "garage", "gate", "window"),
}

// builder collects the arguments of a tool.
type builder struct {
	*device
	service    *home.Service
	entities   []*home.Entity
	properties map[string]any
	required   []string
}

// schema returns the schema of the arguments. Others are refused.
func (b *builder) schema() json.RawMessage {
	schema := map[string]any{"type": "object", "properties": b.properties, "additionalProperties": false}
	if len(b.required) > 0 {
		slices.Sort(b.required)
		schema["required"] = b.required
	}
	text, err := json.Marshal(schema) // sorted by name, so that equal devices have equal ones
	if err != nil {
		return json.RawMessage("false") // all values come from JSON
	}
	return text
}
