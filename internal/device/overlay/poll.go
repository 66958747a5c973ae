package overlay

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Poll changes the poll of that name, or adds it. Fields that are not set stay as
// they are.
type Poll struct {
	About string          `json:"about,omitempty"`
	Tool  string          `json:"tool,omitempty"`
	Args  json.RawMessage `json:"args,omitempty"`
	// Every is the interval; zero disables the poll.
	Every *ferrule.Duration `json:"every,omitempty"`
	Unit  string            `json:"unit,omitempty"`
	// Ring is set if the answer is a ring buffer that the device fills by itself.
	Ring *ferrule.Sampling `json:"ring,omitempty"`
}

// The limits of a poll.
const (
	maxArgs  = ferrule.MaxText // bytes
	maxEvery = 24 * time.Hour
	minRing  = ferrule.Duration(time.Millisecond)
)

func (p Poll) check() error {
	if p.Tool != ferrule.Clean(p.Tool, ferrule.MaxToolName) {
		return fmt.Errorf("tool: must be a printable name of up to %d bytes, got %q", ferrule.MaxToolName, ferrule.Clean(p.Tool, ferrule.MaxWord))
	}
	if err := checkArgs(p.Args); err != nil {
		return err
	}
	if e := p.Every; e != nil && (*e < 0 || *e > ferrule.Duration(maxEvery)) {
		return fmt.Errorf("every: must be from 0s to %v, got %v", maxEvery, *e)
	}
	if r := p.Ring; r != nil {
		if r.Interval < minRing || r.Interval > ferrule.Duration(maxEvery) {
			return fmt.Errorf("ring.interval: must be from %v to %v, got %v", minRing, maxEvery, r.Interval)
		}
		if r.Size < 2 || r.Size > ferrule.MaxSamples {
			return fmt.Errorf("ring.size: must be from 2 to %d, got %d", ferrule.MaxSamples, r.Size)
		}
	}
	if p.Unit != ferrule.Clean(p.Unit, ferrule.MaxUnit) {
		return fmt.Errorf("unit: must be printable and up to %d bytes, got %q", ferrule.MaxUnit, ferrule.Clean(p.Unit, ferrule.MaxWord))
	}
	return nil
}

// polls returns the polls of all matching files, sorted by name. They may change
// polls that follow from the manifest, which are not known here.
func (s *Set) polls(of subject) (all []ferrule.Poll) {
	merged := make(map[string]ferrule.Poll)
	for _, f := range s.files {
		if len(f.Polls) == 0 || !f.Match.matches(of) {
			continue
		}
		for name, p := range f.Polls {
			poll := merged[name]
			poll.Merge(ferrule.Poll{Tool: p.Tool, Args: p.Args, Every: p.Every, Unit: p.Unit, Ring: p.Ring})
			merged[name] = poll
		}
	}
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		p := merged[name]
		p.Name = name
		all = append(all, p)
	}
	return all
}
