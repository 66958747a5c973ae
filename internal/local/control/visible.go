package control

import (
	"context"
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Visibility says what agents are shown of the fleet.
type Visibility interface {
	// Of returns what a caller is shown now.
	Of(who ferrule.Principal) ferrule.Visibility
	// Changed returns a channel that is closed when Of may return something else.
	Changed() <-chan struct{}
}

// seenBy returns what an agent at the other end of a connection is shown.
func (s *Server) seenBy(ctx context.Context, agent ferrule.Client) ferrule.Visibility {
	if s.parts.Visibility == nil {
		return ferrule.Visibility{}
	}
	return s.parts.Visibility.Of(principal(ctx, &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent}, Client: agent.Bounded()}))
}

// watchFor adds all devices and their changes to a queue, unless the agent is not known
// yet, until stop is called. The channel is closed when devices must be shown again.
func (s *Server) watchFor(agent *ferrule.Client, q *queue) (changed <-chan struct{}, stop func()) {
	if agent == nil {
		return nil, func() {}
	}
	if s.parts.Visibility != nil {
		changed = s.parts.Visibility.Changed() // before anything is shown
	}
	return changed, s.parts.Fleet.WatchDevices(&feed{q})
}

// feed adds changes to a queue. Two may do so at the same time, so that no change is missed
// when one follows the other.
type feed struct{ *queue }

// shownManifests makes manifests without what is hidden. Devices that
// show the same share one, as they share the whole one.
type shownManifests struct {
	made map[shownKey]*ferrule.Manifest
}

type shownKey struct {
	manifest *ferrule.Manifest
	shown    string // one character per tool, resource and prompt
}

// of returns the manifest of a device as it is shown.
func (s *shownManifests) of(dev *ferrule.Device, m *ferrule.Manifest, seen ferrule.Visibility) *ferrule.Manifest {
	if seen.Shows == nil {
		return m
	}
	short := *m
	var bits []byte
	short.Tools = shownOf(m.Tools, &bits, func(t *ferrule.Tool) bool { return seen.Tool(dev, t) })
	short.Resources = shownOf(m.Resources, &bits, func(r *ferrule.Resource) bool { return seen.Item(dev, m, ferrule.ReadResource, r.URI) })
	short.Prompts = shownOf(m.Prompts, &bits, func(p *ferrule.Prompt) bool { return seen.Item(dev, m, ferrule.GetPrompt, p.Name) })
	if !slices.Contains(bits, hidden) {
		return m
	}
	key := shownKey{m, string(bits)}
	if known := s.made[key]; known != nil {
		return known
	}
	if len(s.made) >= maxManifests {
		clear(s.made)
	}
	s.made[key] = &short
	return &short
}

// Characters of a shownKey.
const (
	shown  = '1'
	hidden = '0'
)

// shownOf returns the entries of a list that are shown, and adds a character for each.
func shownOf[T any](all []T, bits *[]byte, shows func(*T) bool) (some []T) {
	for i := range all {
		bit := byte(hidden)
		if shows(&all[i]) {
			bit = shown
			some = append(some, all[i])
		}
		*bits = append(*bits, bit)
	}
	return some
}
