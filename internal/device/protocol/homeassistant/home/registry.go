package home

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of what is read. What exceeds one is left out.
const (
	maxDevices  = 20_000
	maxEntities = 50_000
	maxPlaces   = 2_000
	maxKeys     = 16
	maxLabels   = 16
	maxName     = 128
	maxID       = 255
)

// Answers are what Home Assistant answers to the commands that list what the home has.
type Answers struct {
	Areas, Floors, Labels, Devices, Entities json.RawMessage // of config/*_registry/list
	// Sources is the answer to entity/source, and Exposed that to
	// homeassistant/expose_entity/list, which only administrators may ask for; nil if not.
	Sources, Exposed json.RawMessage
}

// Registry is what a home has, without the states.
type Registry struct {
	areas    map[string]area
	labels   map[string]string
	devices  map[string]*deviceEntry
	entities map[string]*entityEntry
	sources  map[string]string // integration of each entity
	exposed  map[string]bool   // nil if that may not be read
}

type area struct{ name, floor string }

type deviceEntry struct {
	ID           string            `json:"id"`
	Name         string            `json:"name"`
	NameByUser   string            `json:"name_by_user"`
	AreaID       string            `json:"area_id"`
	Labels       []string          `json:"labels"`
	Manufacturer string            `json:"manufacturer"`
	Model        string            `json:"model"`
	ModelID      string            `json:"model_id"`
	Version      string            `json:"sw_version"`
	Identifiers  []json.RawMessage `json:"identifiers"`
	Connections  []json.RawMessage `json:"connections"`
	DisabledBy   string            `json:"disabled_by"`
	EntryType    string            `json:"entry_type"`
}

type entityEntry struct {
	EntityID       string   `json:"entity_id"`
	UniqueID       text     `json:"unique_id"`
	Platform       string   `json:"platform"`
	DeviceID       string   `json:"device_id"`
	AreaID         string   `json:"area_id"`
	Labels         []string `json:"labels"`
	Name           string   `json:"name"`
	OriginalName   string   `json:"original_name"`
	TranslationKey string   `json:"translation_key"`
	Category       string   `json:"entity_category"`
	HiddenBy       string   `json:"hidden_by"`
	DisabledBy     string   `json:"disabled_by"`
	Options        struct {
		Conversation struct {
			ShouldExpose *bool `json:"should_expose"`
		} `json:"conversation"`
	} `json:"options"`
}

// text is a string. Some integrations have numbers where strings are due.
type text string

func (t *text) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		s = string(data)
	}
	*t = text(s)
	return nil
}

var entityID = regexp.MustCompile(`^[a-z0-9_]+\.[a-z0-9_]+$`)

// ValidID reports whether a text has the form of an entity ID.
func ValidID(id string) bool { return len(id) <= maxID && entityID.MatchString(id) }

// domainOf returns the domain of an entity.
func domainOf(id string) string {
	domain, _, _ := strings.Cut(id, ".")
	return domain
}

// ReadRegistry decodes the answers. An entry that cannot be decoded is left out.
func ReadRegistry(a *Answers) (*Registry, error) {
	r := &Registry{
		areas: make(map[string]area), labels: make(map[string]string), devices: make(map[string]*deviceEntry),
		entities: make(map[string]*entityEntry), sources: make(map[string]string),
	}
	floors, err := readNames(a.Floors, "floor_id")
	if err != nil {
		return nil, fmt.Errorf("floors: %w", err)
	}
	if r.labels, err = readNames(a.Labels, "label_id"); err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	if err := r.readAreas(a.Areas, floors); err != nil {
		return nil, fmt.Errorf("areas: %w", err)
	}
	if err := r.readDevices(a.Devices); err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	if err := r.readEntities(a.Entities); err != nil {
		return nil, fmt.Errorf("entities: %w", err)
	}
	if err := r.readSources(a.Sources); err != nil {
		return nil, fmt.Errorf("sources of entities: %w", err)
	}
	if r.exposed, err = readExposed(a.Exposed); err != nil {
		return nil, fmt.Errorf("exposed entities: %w", err)
	}
	return r, nil
}

// readList calls add with each element of a JSON array, at most limit of them.
func readList(data json.RawMessage, limit int, add func(json.RawMessage)) error {
	if len(data) == 0 {
		return nil
	}
	var all []json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	for _, one := range all[:min(len(all), limit)] {
		add(one)
	}
	return nil
}

// readNames returns the name of each entry of a list, by its ID.
func readNames(data json.RawMessage, id string) (map[string]string, error) {
	names := make(map[string]string)
	err := readList(data, maxPlaces, func(one json.RawMessage) {
		var entry map[string]json.RawMessage
		var key, name string
		if json.Unmarshal(one, &entry) == nil && json.Unmarshal(entry[id], &key) == nil && json.Unmarshal(entry["name"], &name) == nil {
			names[ferrule.Clean(key, maxID)] = ferrule.Clean(name, maxName)
		}
	})
	return names, err
}

func (r *Registry) readAreas(data json.RawMessage, floors map[string]string) error {
	return readList(data, maxPlaces, func(one json.RawMessage) {
		var entry struct {
			ID    string `json:"area_id"`
			Name  string `json:"name"`
			Floor string `json:"floor_id"`
		}
		if json.Unmarshal(one, &entry) == nil {
			r.areas[ferrule.Clean(entry.ID, maxID)] = area{ferrule.Clean(entry.Name, maxName), floors[entry.Floor]}
		}
	})
}

func (r *Registry) readDevices(data json.RawMessage) error {
	return readList(data, maxDevices, func(one json.RawMessage) {
		var d deviceEntry
		if json.Unmarshal(one, &d) != nil || d.ID == "" || len(d.ID) > maxID || d.ID != ferrule.Clean(d.ID, maxID) {
			return
		}
		for _, field := range []*string{&d.Name, &d.NameByUser, &d.Manufacturer, &d.Model, &d.ModelID, &d.Version} {
			*field = ferrule.Clean(*field, maxName)
		}
		d.Labels = d.Labels[:min(len(d.Labels), maxLabels)]
		r.devices[d.ID] = &d
	})
}

func (r *Registry) readEntities(data json.RawMessage) error {
	return readList(data, maxEntities, func(one json.RawMessage) {
		var e entityEntry
		if json.Unmarshal(one, &e) != nil || !ValidID(e.EntityID) {
			return
		}
		for _, field := range []*string{&e.Name, &e.OriginalName, &e.TranslationKey, &e.Platform} {
			*field = ferrule.Clean(*field, maxName)
		}
		e.Labels = e.Labels[:min(len(e.Labels), maxLabels)]
		r.entities[e.EntityID] = &e
	})
}

func (r *Registry) readSources(data json.RawMessage) error {
	if len(data) == 0 {
		return nil
	}
	var all map[string]struct {
		Domain string `json:"domain"`
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	for id, source := range all {
		if ValidID(id) && len(r.sources) < maxEntities {
			r.sources[id] = ferrule.Clean(source.Domain, maxName)
		}
	}
	return nil
}

func readExposed(data json.RawMessage) (map[string]bool, error) {
	if len(data) == 0 {
		return nil, nil
	}
	var list struct {
		Entities map[string]struct {
			Conversation bool `json:"conversation"`
		} `json:"exposed_entities"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	exposed := make(map[string]bool)
	for id, to := range list.Entities {
		if to.Conversation && len(exposed) < maxEntities {
			exposed[id] = true
		}
	}
	return exposed, nil
}

// keys returns the identifiers of a device, then its connections, each sorted.
func (d *deviceEntry) keys() []string {
	var all []string
	for _, list := range [][]json.RawMessage{d.Identifiers, d.Connections} {
		var some []string
		for _, one := range list[:min(len(list), maxKeys)] {
			var parts []text
			if json.Unmarshal(one, &parts) != nil || len(parts) < 2 || len(parts) > 4 {
				continue
			}
			joined := make([]string, len(parts))
			for i, part := range parts {
				joined[i] = string(part)
			}
			some = append(some, ferrule.Clean(strings.Join(joined, ":"), maxID))
		}
		slices.Sort(some)
		all = append(all, some...)
	}
	return all
}

// ours reports whether this is a device that Ferrule has published over MQTT.
func (d *deviceEntry) ours() bool {
	return slices.ContainsFunc(d.keys(), func(key string) bool { return strings.HasPrefix(key, "mqtt:ferrule_") })
}
