package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Probe is what a File says about one probe: it changes the one of that name, or makes
// it. What it leaves out stays as it was.
type Poll struct {
	About string          `json:"about,omitempty"`
	Tool  string          `json:"tool,omitempty"`
	Args  json.RawMessage `json:"args,omitempty"`
	// Every is how often it is asked; zero is not at all.
	Every *ferrule.Duration `json:"every,omitempty"`
	Unit  string            `json:"unit,omitempty"`
	// Ring tells that the answer has the last samples that the device took by itself.
	Ring *ferrule.Sampling `json:"ring,omitempty"`
}

// The bounds of a probe.
const (
	maxArgs  = ferrule.MaxText // bytes
	maxEvery = 24 * time.Hour
	minRing  = ferrule.Duration(time.Millisecond)
)

func (p Poll) check() error {
	if p.Tool != ferrule.Clean(p.Tool, ferrule.MaxToolName) {
		return fmt.Errorf("tool: want a name of up to %d bytes that can be shown, got %q", ferrule.MaxToolName, ferrule.Clean(p.Tool, ferrule.MaxWord))
	}
	if p.Args != nil {
		if len(p.Args) > maxArgs {
			return fmt.Errorf("args: %d bytes; at most %d are possible", len(p.Args), maxArgs)
		}
		if !strings.HasPrefix(string(p.Args), "{") {
			return errors.New("args: want an object")
		}
	}
	if e := p.Every; e != nil && (*e < 0 || *e > ferrule.Duration(maxEvery)) {
		return fmt.Errorf("every: want from 0s to %v, got %v", maxEvery, *e)
	}
	if r := p.Ring; r != nil {
		if r.Interval < minRing || r.Interval > ferrule.Duration(maxEvery) {
			return fmt.Errorf("ring.interval: want from %v to %v, got %v", minRing, maxEvery, r.Interval)
		}
		if r.Size < 2 || r.Size > ferrule.MaxSamples {
			return fmt.Errorf("ring.size: want from 2 to %d, got %d", ferrule.MaxSamples, r.Size)
		}
	}
	if p.Unit != ferrule.Clean(p.Unit, ferrule.MaxUnit) {
		return fmt.Errorf("unit: want up to %d bytes that can be shown, got %q", ferrule.MaxUnit, ferrule.Clean(p.Unit, ferrule.MaxWord))
	}
	return nil
}

// probes is everything that is said about what a device measures, by name. Which of
// them it has by itself is not known here.
func (s *Set) probes(dialect string, kind ferrule.Kind, device string) (all []ferrule.Poll) {
	said := make(map[string]ferrule.Poll)
	for _, f := range s.files {
		if len(f.Polls) == 0 || !f.Match.matches(dialect, kind, device) {
			continue
		}
		for name, p := range f.Polls {
			under := said[name]
			under.Merge(ferrule.Poll{Tool: p.Tool, Args: p.Args, Every: p.Every, Unit: p.Unit, Ring: p.Ring})
			said[name] = under
		}
	}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		p := said[name]
		p.Name = name
		all = append(all, p)
	}
	return all
}
