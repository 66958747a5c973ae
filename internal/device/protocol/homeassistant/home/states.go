package home

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of a state.
const (
	maxAttributes = 128
	maxValue      = 8 << 10  // bytes of one attribute
	maxState      = 32 << 10 // bytes of all attributes
)

// secretWords are parts of the names of what is never kept: what lets somebody in, and where
// people are.
var secretWords = []string{"token", "password", "secret", "api_key", "apikey", "credential", "entity_picture", "latitude", "longitude"}

// Secret reports whether a member or an attribute with a name may be a secret.
func Secret(name string) bool {
	name = strings.ToLower(name)
	return name == "code" || name == "pin" || slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(name, word) })
}

// secretMarks are what addresses with a credential have in them.
var secretMarks = []string{"authSig=", "token="}

// secretSigns are parts of all JSON values with a secret, in small letters.
var secretSigns = append(strings.Fields(`authsig "code" "pin" \u`), secretWords...)

// HiddenValue is the value of the state of a text that is a password.
const HiddenValue = "(hidden)"

// States are the states of all entities, as JSON: there are thousands, and most are read by
// nobody.
type States struct {
	packed map[string][]byte
}

// Change is what an event has changed.
type Change struct {
	// Changed are the entities with another state, new ones among them, and Removed those that
	// are gone. Both are sorted.
	Changed, Removed []string
	// Reshaped reports that something was added or removed, or says otherwise what it can do.
	Reshaped bool
}

// event is an event of subscribe_entities.
type event struct {
	Added   map[string]json.RawMessage `json:"a"` // a compact each; one that is broken harms no other
	Changed map[string]difference      `json:"c"`
	Removed []string                   `json:"r"`
}

type compact struct {
	State       *string                    `json:"s"`
	Attributes  map[string]json.RawMessage `json:"a"`
	Context     json.RawMessage            `json:"c"`
	LastChanged *float64                   `json:"lc"`
	LastUpdated *float64                   `json:"lu"`
}

// difference is what has changed of a state: "+" is a compact, and "-" has names of attributes.
type difference map[string]json.RawMessage

// parts returns what was added and which attributes were removed.
func (d difference) parts() (plus compact, removed []string, ok bool) {
	var minus struct {
		Attributes []string `json:"a"`
	}
	for part, to := range map[string]any{"+": &plus, "-": &minus} {
		if len(d[part]) > 0 && json.Unmarshal(d[part], to) != nil {
			return plus, nil, false
		}
	}
	return plus, minus.Attributes, true
}

// Apply merges an event of subscribe_entities. The first event of a subscription has all
// entities: the caller then starts with an empty States.
func (s *States) Apply(data json.RawMessage) (Change, error) {
	var e event
	if err := json.Unmarshal(data, &e); err != nil {
		return Change{}, errors.New("the event of Home Assistant cannot be decoded")
	}
	if s.packed == nil {
		s.packed = make(map[string][]byte, len(e.Added))
	}
	var c Change
	for id, data := range e.Added {
		var added compact
		if !ValidID(id) || s.packed[id] == nil && len(s.packed) >= maxEntities || json.Unmarshal(data, &added) != nil {
			continue
		}
		var state State
		state.merge(id, added)
		c.Reshaped = true
		s.put(&c, id, &state)
	}
	for id, diff := range e.Changed {
		state := s.Get(id)
		plus, removed, ok := diff.parts()
		if state == nil || !ok {
			continue
		}
		for _, name := range removed {
			delete(state.Attributes, name)
			c.Reshaped = c.Reshaped || Describes(domainOf(id), name)
		}
		for name := range plus.Attributes {
			c.Reshaped = c.Reshaped || Describes(domainOf(id), name)
		}
		state.merge(id, plus)
		s.put(&c, id, state)
	}
	for _, id := range e.Removed {
		if s.packed[id] != nil {
			delete(s.packed, id)
			c.Removed, c.Reshaped = append(c.Removed, id), true
		}
	}
	slices.Sort(c.Changed)
	slices.Sort(c.Removed)
	return c, nil
}

// put stores a state. It is a change if more than the time of the update is another one: a
// camera gets a new token every five minutes, and that is a change for Home Assistant.
func (s *States) put(c *Change, id string, state *State) {
	was := s.Get(id)
	packed, err := json.Marshal(state)
	if err != nil {
		return // every part of it was JSON
	}
	s.packed[id] = packed
	if was == nil || !was.same(state) {
		c.Changed = append(c.Changed, id)
	}
}

func (s *State) same(other *State) bool {
	return s.Value == other.Value && s.Context == other.Context && s.Changed.Equal(other.Changed) &&
		maps.EqualFunc(s.Attributes, other.Attributes, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
}

// merge applies the parts of a state that Home Assistant has sent.
func (s *State) merge(id string, c compact) {
	if c.State != nil {
		s.Value = ferrule.Clean(*c.State, maxID)
	}
	for name, value := range c.Attributes {
		s.setAttribute(ferrule.Clean(name, maxName), value)
	}
	if id := contextID(c.Context); id != "" {
		s.Context = id
	}
	if c.LastChanged != nil {
		s.Changed = seconds(*c.LastChanged)
		s.Updated = s.Changed
	}
	if c.LastUpdated != nil {
		s.Updated = seconds(*c.LastUpdated)
	}
	if domain := domainOf(id); (domain == "text" || domain == "input_text") && string(s.Attributes["mode"]) == `"password"` && !s.Unavailable() {
		s.Value = HiddenValue
	}
}

// setAttribute stores an attribute, unless it is a secret or too long.
func (s *State) setAttribute(name string, value json.RawMessage) {
	delete(s.Attributes, name)
	size := len(value)
	for _, other := range s.Attributes {
		size += len(other)
	}
	if Secret(name) || len(value) > maxValue || size > maxState || len(s.Attributes) >= maxAttributes {
		return
	}
	if s.Attributes == nil {
		s.Attributes = make(map[string]json.RawMessage)
	}
	if value = Redact(value); value != nil {
		s.Attributes[name] = value
	}
}

// contextID returns the ID of a context: a text, or a part of an object.
func contextID(context json.RawMessage) string {
	var id string
	var object struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(context, &id) != nil && json.Unmarshal(context, &object) == nil {
		id = object.ID
	}
	return ferrule.Clean(id, maxName)
}

// seconds returns the time that Home Assistant writes as a number.
func seconds(at float64) time.Time {
	if math.IsNaN(at) || at < 0 || at > 1e11 {
		return time.Time{}
	}
	return time.UnixMicro(int64(math.Round(at * 1e6))).UTC()
}

// restored reports that Home Assistant has only remembered the entity: what provides it is not
// loaded.
func (s *State) restored() bool { return string(s.Attributes["restored"]) == "true" }

// Len returns the number of entities.
func (s *States) Len() int { return len(s.packed) }

// IDs returns the IDs of all entities, in any order.
func (s *States) IDs() iter.Seq[string] { return maps.Keys(s.packed) }

// JSON returns the state of an entity as JSON, which the caller must not change; nil if there is
// none.
func (s *States) JSON(id string) json.RawMessage { return s.packed[id] }

// Get returns the state of an entity; nil if there is none.
func (s *States) Get(id string) *State {
	packed := s.packed[id]
	if packed == nil {
		return nil
	}
	var state State
	if json.Unmarshal(packed, &state) != nil {
		return nil
	}
	return &state
}

// Text returns an attribute that is a text; empty if it is not.
func (s *State) Text(attribute string) string { return asText(s.Attributes[attribute]) }

// unavailable is how the JSON of the state of an unavailable entity begins.
var unavailable = []byte(`{"value":"unavailable"`)

// IsUnavailable reports whether a state as JSON is that of an unavailable entity.
func IsUnavailable(state json.RawMessage) bool { return bytes.HasPrefix(state, unavailable) }

// missed is the state of an entity that is gone and kept for some time.
var missed = []byte(`{"value":"unavailable","attributes":{"restored":true},"changed":"0001-01-01T00:00:00Z","updated":"0001-01-01T00:00:00Z"}`)

// Miss adds an entity that is expected to come back, as unavailable.
func (s *States) Miss(id string) {
	if s.packed == nil {
		s.packed = make(map[string][]byte)
	}
	s.packed[id] = missed
}

// DropMissed removes an entity that Miss added, unless it came back. It reports whether it did.
func (s *States) DropMissed(id string) bool {
	if !bytes.Equal(s.packed[id], missed) {
		return false
	}
	delete(s.packed, id)
	return true
}

// Redact returns a JSON value without secrets: neither attributes that are, nor addresses with a
// credential.
func Redact(value json.RawMessage) json.RawMessage {
	small := bytes.ToLower(value)
	if !slices.ContainsFunc(secretSigns, func(sign string) bool { return bytes.Contains(small, []byte(sign)) }) {
		return ferrule.CleanJSON(value)
	}
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var decoded any
	if decoder.Decode(&decoded) != nil {
		return nil
	}
	clean, err := json.Marshal(redact(decoded))
	if err != nil {
		return nil
	}
	return ferrule.CleanJSON(clean)
}

func redact(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, one := range v {
			if Secret(name) {
				delete(v, name)
			} else {
				v[name] = redact(one)
			}
		}
	case []any:
		for i := range v {
			v[i] = redact(v[i])
		}
	case string:
		if slices.ContainsFunc(secretMarks, func(mark string) bool { return strings.Contains(v, mark) }) {
			return HiddenValue
		}
	}
	return value
}
