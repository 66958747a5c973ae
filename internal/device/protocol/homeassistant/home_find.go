package homeassistant

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of a list.
const (
	defaultFound = 50
	maxFound     = 500
)

// findInput is the input of find_entities.
type findInput struct {
	Domain  string `json:"domain,omitempty" jsonschema:"such as light, sensor or lock"`
	Area    string `json:"area,omitempty" jsonschema:"name of an area"`
	Floor   string `json:"floor,omitempty" jsonschema:"name of a floor"`
	Class   string `json:"device_class,omitempty" jsonschema:"such as temperature, door or motion"`
	State   string `json:"state,omitempty" jsonschema:"such as on, open or unavailable"`
	Pattern string `json:"pattern,omitempty" jsonschema:"part of the entity_id, of the name or of the device's name; * stands for anything"`
	Within  string `json:"changed_within,omitempty" jsonschema:"only what changed in this time, such as 10m or 24h"`
	Sort    string `json:"sort,omitempty" jsonschema:"entity (default), name, state or changed (newest first)"`
	Limit   int    `json:"limit,omitempty" jsonschema:"1 to 500, default 50"`
	Hidden  bool   `json:"hidden,omitempty" jsonschema:"list what Ferrule does not offer instead, with the reason"`
}

// foundEntity is an entity in a result.
type foundEntity struct {
	Entity string `json:"entity"`
	Name   string `json:"name,omitempty"`
	// Device is the ID of its device in Ferrule.
	Device  string     `json:"device,omitempty" jsonschema:"device of this gateway whose tools act on it"`
	State   string     `json:"state,omitempty"`
	Unit    string     `json:"unit,omitempty"`
	Class   string     `json:"device_class,omitempty"`
	Area    string     `json:"area,omitempty"`
	Floor   string     `json:"floor,omitempty"`
	Changed *time.Time `json:"changed,omitempty"`
	Reason  string     `json:"reason,omitempty" jsonschema:"why Ferrule does not offer it"`

	deviceName string // in Home Assistant
}

// findOutput is the output of find_entities.
type findOutput struct {
	Entities []foundEntity `json:"entities"`
	Total    int           `json:"total" jsonschema:"number of all that match"`
}

func findEntities() homeTool {
	return typed(ferrule.Tool{
		Name: "find_entities", Effect: ferrule.Reads,
		Text: "Finds entities of the home by domain, area, floor, class, state, name or time of the last change. Returns each with its state and the device of this gateway whose tools act on it.",
	}, func(_ context.Context, s *homeSession, call *ferrule.Call, in findInput) (findOutput, error) {
		since, err := in.since(time.Now())
		if err != nil {
			return findOutput{}, err
		}
		out := findOutput{Entities: []foundEntity{}}
		for _, e := range s.entities(call, in.Domain, in.Hidden) {
			if in.fits(e) && (since.IsZero() || e.Changed != nil && e.Changed.After(since)) {
				out.Entities = append(out.Entities, e)
			}
		}
		if err := in.sort(out.Entities); err != nil {
			return findOutput{}, err
		}
		out.Total = len(out.Entities)
		out.Entities = out.Entities[:min(len(out.Entities), cmp.Or(in.Limit, defaultFound))]
		return out, nil
	})
}

// since returns the time after which an entity must have changed; zero for any.
func (in findInput) since(now time.Time) (time.Time, error) {
	if in.Limit < 0 || in.Limit > maxFound {
		return time.Time{}, ferrule.Errorf(ferrule.Invalid, "limit must be 1 to %d, got %d", maxFound, in.Limit)
	}
	if in.Within == "" {
		return time.Time{}, nil
	}
	within, err := ferrule.ParseDuration(in.Within)
	if err != nil || within <= 0 {
		return time.Time{}, ferrule.Errorf(ferrule.Invalid, "changed_within must be a duration such as 10m, got %q", ferrule.Clean(in.Within, ferrule.MaxWord))
	}
	return now.Add(-within), nil
}

// fits reports whether an entity is one that is looked for.
func (in findInput) fits(e foundEntity) bool {
	same := func(want, got string) bool { return want == "" || strings.EqualFold(want, got) }
	return same(in.Area, e.Area) && same(in.Floor, e.Floor) && same(in.Class, e.Class) && same(in.State, e.State) &&
		(matches(in.Pattern, e.Entity) || matches(in.Pattern, e.Name) || matches(in.Pattern, e.deviceName))
}

// matches reports whether a text contains a pattern, in which * stands for anything.
func matches(pattern, text string) bool {
	text = strings.ToLower(text)
	for part := range strings.SplitSeq(strings.ToLower(pattern), "*") {
		_, rest, ok := strings.Cut(text, part)
		if !ok {
			return false
		}
		text = rest
	}
	return true
}

func (in findInput) sort(all []foundEntity) error {
	compare := map[string]func(a, b foundEntity) int{
		"entity": nil, // they are
		"name":   func(a, b foundEntity) int { return strings.Compare(a.Name, b.Name) },
		"state":  func(a, b foundEntity) int { return strings.Compare(a.State, b.State) },
		"changed": func(a, b foundEntity) int {
			if a.Changed == nil || b.Changed == nil {
				return 0
			}
			return b.Changed.Compare(*a.Changed)
		},
	}
	by, ok := compare[cmp.Or(in.Sort, "entity")]
	if !ok {
		return ferrule.Errorf(ferrule.Invalid, "sort must be entity, name, state or changed, got %q", ferrule.Clean(in.Sort, ferrule.MaxWord))
	}
	if by != nil {
		slices.SortStableFunc(all, by)
	}
	return nil
}

// entities returns the entities of a domain, or of all, that a caller may see. Hidden returns
// those that Ferrule does not offer instead: without a state, because their owner may not want
// agents to know it.
func (s *homeSession) entities(call *ferrule.Call, domain string, hidden bool) (all []foundEntity) {
	devices := s.link.device.cfg.Devices(call.Principal)
	for _, e := range s.hub.Entities(func(id string) bool { return domain == "" || strings.HasPrefix(id, domain+".") }) {
		found := foundEntity{Entity: e.ID, Name: e.Name, Area: e.Area, Floor: e.Floor, deviceName: e.Device}
		switch id, seen := devices[e.Address]; {
		case e.Address == "" && hidden:
			found.Reason = cmp.Or(e.Reason, "Ferrule has no tool or signal for it")
		case e.Address != "" && seen && !hidden:
			found.Device, found.State, found.Class, found.Unit = id, show(e.State, isPassword(e.State), true).State, e.Class, e.State.Text("unit_of_measurement")
			if at := e.State.Changed.UTC().Truncate(time.Second); !e.State.Changed.IsZero() {
				found.Changed = &at
			}
		default:
			continue
		}
		all = append(all, found)
	}
	return all
}
