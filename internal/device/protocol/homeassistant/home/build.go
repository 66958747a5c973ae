package home

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Choice says which entities are used.
type Choice struct {
	// All includes entities that the owner does not expose to Assist, and Settings those that
	// are settings of devices.
	All, Settings bool
}

// Inventory is what a home has: devices with the entities that are used, and a place for each
// entity, used or not.
type Inventory struct {
	Devices []*Device
	Places  map[string]Place // by entity ID
}

// Place is where an entity belongs.
type Place struct {
	// Device is its index in Inventory.Devices, or -1 if the entity is not used; then Reason
	// says why.
	Device int
	Reason string
	Area   string
	Floor  string
	Labels []string
	// DeviceName is the name of its device in Home Assistant, used or not.
	DeviceName string
}

// The reasons for which entities are not used.
const (
	reasonDisabled   = "disabled in Home Assistant"
	reasonHidden     = "hidden in Home Assistant"
	reasonOurs       = "published by Ferrule itself"
	reasonSetting    = "a setting of its device: set settings to use it"
	reasonDiagnostic = "diagnostics of its device: set settings to use it"
	reasonUnexposed  = "not exposed to Assist in Home Assistant"
	reasonUnknown    = "it has no unique ID, so only an administrator's token can find out whether it is exposed to Assist: set all, or use such a token"
)

// Build returns the devices of a home with the given entities. State returns the state of an
// entity. Known returns how an entity was described before, or nil: Home Assistant does not know
// everything about an entity that it has only restored.
func (r *Registry) Build(ids []string, state func(id string) *State, known func(id string) *Entity, choice Choice) *Inventory {
	b := &builder{
		Registry: r, choice: choice, known: known, byKey: make(map[string]*draft),
		inventory: &Inventory{Places: make(map[string]Place, len(ids))},
	}
	slices.Sort(ids)
	for _, id := range ids {
		if s := state(id); s != nil && len(b.inventory.Places) < maxEntities {
			b.add(id, s)
		}
	}
	for id := range r.entities {
		if _, present := b.inventory.Places[id]; !present && len(b.inventory.Places) < maxEntities {
			b.add(id, nil)
		}
	}
	return b.finish()
}

// Unregistered reports whether the home has entities without an entry in the registry.
func (r *Registry) Unregistered(inventory *Inventory) bool {
	for id := range inventory.Places {
		if r.entities[id] == nil {
			return true
		}
	}
	return false
}

type builder struct {
	*Registry
	choice    Choice
	known     func(string) *Entity
	byKey     map[string]*draft // by device ID, or integration after a slash
	inventory *Inventory
}

// draft is a device with all candidates for its entities.
type draft struct {
	device   *Device
	entities []candidate
	exposed  bool // one that is not a setting is used
}

type candidate struct {
	entity Entity
	unique string
	stem   string // of the key
	// setting reports that it is used only because settings are.
	setting bool
}

// add decides about one entity. It has no state if it is disabled, or not loaded.
func (b *builder) add(id string, s *State) {
	entry := b.entities[id]
	if entry == nil {
		entry = &entityEntry{EntityID: id, Platform: b.sources[id]}
	}
	dev := b.devices[entry.DeviceID]
	place := b.place(entry, dev)
	e := describeEntity(id, entry, s)
	e = b.remember(e, s)
	setting := false
	if place.Reason, setting = b.reason(entry, dev, &e, s); place.Reason == "" {
		b.draft(entry, dev).put(candidate{entity: e, unique: string(entry.UniqueID), stem: stem(entry, &e), setting: setting})
	}
	place.Device = -1
	b.inventory.Places[id] = place
}

// remember completes the description of an entity that is unavailable or restored by how it was
// described before.
func (b *builder) remember(e Entity, s *State) Entity {
	if s != nil && !s.Unavailable() {
		return e
	}
	kept := b.known(e.ID)
	switch {
	case kept == nil:
	case s == nil || s.restored():
		e = *kept
	default:
		for name, value := range kept.Abilities {
			if e.Abilities == nil {
				e.Abilities = make(map[string]json.RawMessage)
			}
			if _, has := e.Abilities[name]; !has {
				e.Abilities[name] = value
			}
		}
	}
	return e
}

// place returns where an entity belongs: its own area, else that of its device.
func (b *builder) place(entry *entityEntry, dev *deviceEntry) Place {
	var p Place
	at, labels := entry.AreaID, entry.Labels
	if dev != nil {
		at = cmp.Or(at, dev.AreaID)
		labels = slices.Concat(labels, dev.Labels)
		p.DeviceName = cmp.Or(dev.NameByUser, dev.Name)
	}
	p.Area, p.Floor, p.Labels = b.areas[at].name, b.areas[at].floor, b.labelNames(labels)
	return p
}

func (b *builder) labelNames(ids []string) (names []string) {
	for _, id := range ids {
		if name := b.labels[id]; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// reason returns why an entity is not used; empty if it is. Setting reports that it is used only
// if its device is.
func (b *builder) reason(entry *entityEntry, dev *deviceEntry, e *Entity, s *State) (reason string, setting bool) {
	switch {
	case entry.DisabledBy != "" || dev != nil && dev.DisabledBy != "":
		return reasonDisabled, false
	case s == nil:
		return "not loaded by Home Assistant", false
	case dev != nil && dev.ours():
		return reasonOurs, false
	case Unused(e.Domain) != "":
		return Unused(e.Domain), false
	case entry.HiddenBy != "" && !b.choice.All:
		return reasonHidden, false
	case entry.Category != "" && b.choice.Settings:
		return "", true
	case entry.Category == "config":
		return reasonSetting, false
	case entry.Category != "" && e.Domain != "sensor" && e.Domain != "binary_sensor":
		return reasonDiagnostic, false
	case !b.choice.All && b.exposed == nil && b.entities[e.ID] == nil:
		return reasonUnknown, false // its owner may have decided against it
	case !b.choice.All && !b.isExposed(entry, e):
		return reasonUnexposed, false
	}
	return "", false
}

// The entities that Home Assistant exposes to Assist unless its owner has decided.
var (
	exposedDomains = []string{"climate", "cover", "fan", "humidifier", "light", "media_player", "scene", "switch", "todo", "vacuum", "water_heater"}
	exposedClasses = map[string][]string{
		"binary_sensor": {"door", "garage_door", "lock", "motion", "opening", "presence", "window"},
		"sensor":        {"aqi", "carbon_dioxide", "carbon_monoxide", "humidity", "pm10", "pm25", "temperature", "volatile_organic_compounds"},
	}
)

// isExposed reports whether the owner exposes an entity to Assist.
func (b *builder) isExposed(entry *entityEntry, e *Entity) bool {
	registered := b.entities[e.ID] != nil
	switch decided := entry.Options.Conversation.ShouldExpose; {
	case decided != nil:
		return *decided
	case !registered:
		return b.exposed[e.ID]
	case entry.Category != "" || entry.HiddenBy != "":
		return false
	}
	return slices.Contains(exposedDomains, e.Domain) || slices.Contains(exposedClasses[e.Domain], e.Class)
}

// draft returns the device that an entity belongs to, and creates it.
func (b *builder) draft(entry *entityEntry, dev *deviceEntry) *draft {
	key := "/" + entry.Platform
	if dev != nil {
		key = dev.ID
	}
	if d := b.byKey[key]; d != nil {
		return d
	}
	d := &draft{device: b.device(entry, dev)}
	b.byKey[key] = d
	return d
}

func (b *builder) device(entry *entityEntry, dev *deviceEntry) *Device {
	if dev == nil {
		name := cmp.Or(entry.Platform, "unknown")
		return &Device{ID: name, Group: true, Name: name}
	}
	at := b.areas[dev.AreaID]
	return &Device{
		ID: dev.ID, Keys: dev.keys(), Name: cmp.Or(dev.NameByUser, dev.Name), Manufacturer: dev.Manufacturer, Model: cmp.Or(dev.Model, dev.ModelID),
		Version: dev.Version, Area: at.name, Floor: at.floor, Labels: b.labelNames(dev.Labels), Service: dev.EntryType == "service",
	}
}

func (d *draft) put(c candidate) {
	d.entities = append(d.entities, c)
	d.exposed = d.exposed || !c.setting
}

// finish sorts the devices, names their entities, and notes the place of each.
func (b *builder) finish() *Inventory {
	for _, key := range slices.Sorted(maps.Keys(b.byKey)) {
		d := b.byKey[key]
		if !d.exposed && !b.choice.All {
			for _, c := range d.entities {
				b.leaveOut(c.entity.ID, reasonUnexposed)
			}
			continue
		}
		d.device.Entities = d.named()
		b.settleArea(d.device)
		for i := range d.device.Entities {
			id := d.device.Entities[i].ID
			p := b.inventory.Places[id]
			p.Device = len(b.inventory.Devices)
			b.inventory.Places[id] = p
		}
		b.inventory.Devices = append(b.inventory.Devices, d.device)
	}
	return b.inventory
}

func (b *builder) leaveOut(id, reason string) {
	p := b.inventory.Places[id]
	p.Reason = reason
	b.inventory.Places[id] = p
}

// settleArea gives a device without an area that of its entities, if they have the same.
func (b *builder) settleArea(d *Device) {
	if d.Area != "" || d.Group {
		return
	}
	var first Place
	for i := range d.Entities {
		p := b.inventory.Places[d.Entities[i].ID]
		if i > 0 && p.Area != first.Area {
			return
		}
		first = p
	}
	d.Area, d.Floor = first.Area, first.Floor
}

// stem returns what the key of an entity begins with: it is the same for all devices of a model.
func stem(entry *entityEntry, e *Entity) string {
	return cmp.Or(slug(entry.TranslationKey), slug(e.Class), e.Domain)
}

// slug returns a text as part of a key.
func slug(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, s)
	return ferrule.Clean(strings.Trim(s, "_"), 48)
}

// named returns the entities with their keys, sorted by them. Entities with the same stem are
// told apart by their domain, else they are numbered in the order of their unique IDs.
func (d *draft) named() []Entity {
	slices.SortFunc(d.entities, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.stem, b.stem), cmp.Compare(a.entity.Domain, b.entity.Domain), compareNatural(a.unique, b.unique), cmp.Compare(a.entity.ID, b.entity.ID))
	})
	taken := make(map[string]bool, len(d.entities))
	domains := make(map[string]map[string]bool) // of each stem
	for _, c := range d.entities {
		if domains[c.stem] == nil {
			domains[c.stem] = make(map[string]bool)
		}
		domains[c.stem][c.entity.Domain] = true
	}
	out := make([]Entity, 0, len(d.entities))
	for _, c := range d.entities {
		key := c.stem
		if d.device.Group {
			key = c.entity.ID
		} else if len(domains[key]) > 1 {
			key += "_" + c.entity.Domain
		}
		base := key
		for n := 2; taken[key]; n++ {
			key = fmt.Sprintf("%s_%d", base, n)
		}
		taken[key] = true
		c.entity.Key = key
		out = append(out, c.entity)
	}
	slices.SortFunc(out, func(a, b Entity) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// compareNatural compares texts so that a shorter number comes first: outlet_2 before outlet_10.
func compareNatural(a, b string) int {
	digits := func(s string) int {
		n := 0
		for n < len(s) && s[n] >= '0' && s[n] <= '9' {
			n++
		}
		return n
	}
	for a != "" && b != "" {
		if m, n := digits(a), digits(b); m > 0 && n > 0 {
			x, y := strings.TrimLeft(a[:m], "0"), strings.TrimLeft(b[:n], "0")
			if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
				return c
			}
			a, b = a[m:], b[n:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

// Abilities are the attributes that say what an entity can do. Home Assistant keeps them while
// the entity is unavailable.
var abilities = map[string]bool{
	"activity_list": true, "available_modes": true, "available_tones": true, "effect_list": true, "event_types": true,
	"fan_modes": true, "fan_speed_list": true, "has_date": true, "has_time": true, "hvac_modes": true, "max": true,
	"max_color_temp_kelvin": true, "max_humidity": true, "max_temp": true, "min": true, "min_color_temp_kelvin": true,
	"min_humidity": true, "min_temp": true, "mode": true, "operation_list": true, "options": true, "pattern": true,
	"preset_modes": true, "sound_mode_list": true, "source_list": true, "state_class": true, "step": true,
	"supported_color_modes": true, "swing_horizontal_modes": true, "swing_modes": true, "target_temp_step": true,
	// Of weather. Home Assistant does not keep them, so the builder does.
	"pressure_unit": true, "temperature_unit": true, "visibility_unit": true, "wind_speed_unit": true,
}

// modeDomains are the domains whose attribute mode is an ability: it says how to enter a value.
// Others have their state in it.
var modeDomains = []string{"number", "text", "input_number", "input_text"}

// Describes reports whether an attribute says what an entity is or can do.
func Describes(domain, attribute string) bool {
	switch attribute {
	case "device_class", "supported_features", "unit_of_measurement", "assumed_state", "friendly_name", "restored":
		return true
	case "mode":
		return slices.Contains(modeDomains, domain)
	}
	return abilities[attribute]
}

// describeEntity returns an entity without its key.
func describeEntity(id string, entry *entityEntry, s *State) Entity {
	e := Entity{ID: id, Domain: domainOf(id), Platform: entry.Platform, Name: cmp.Or(entry.Name, entry.OriginalName)}
	if s == nil {
		return e
	}
	for name, value := range s.Attributes {
		switch name {
		case "friendly_name":
			e.Name = cmp.Or(asText(value), e.Name)
		case "device_class":
			e.Class = asText(value)
		case "unit_of_measurement":
			e.Unit = asText(value)
		case "supported_features":
			var n float64
			if json.Unmarshal(value, &n) == nil && n >= 0 && n < 1<<31 {
				e.Features = int(n)
			}
		case "assumed_state":
			e.Assumed = string(value) == "true"
		default:
			if Describes(e.Domain, name) && name != "restored" {
				if e.Abilities == nil {
					e.Abilities = make(map[string]json.RawMessage)
				}
				e.Abilities[name] = value
			}
		}
	}
	e.Measures = e.Unit != "" || e.Abilities["state_class"] != nil
	return e
}

// asText returns a JSON string as a line of text; empty if it is anything else.
func asText(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) != nil {
		return ""
	}
	return ferrule.Clean(s, maxName)
}
