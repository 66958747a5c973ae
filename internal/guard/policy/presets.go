package policy

import (
	"embed"
	"fmt"
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The presets, from the mildest to the strictest.
const (
	Open     = "open"
	Careful  = "careful"
	ReadOnly = "read-only"
)

var presetNames = []string{Open, Careful, ReadOnly}

// rank returns how strict a preset is; -1 for a preset that does not exist.
func rank(preset string) int { return slices.Index(presetNames, preset) }

// people is the name of the rules for people, which no agent can have.
const people = "people"

//go:embed presets/*.cedar
var presetFiles embed.FS

// PresetText returns the rules of a preset in Cedar.
func PresetText(name string) ([]byte, error) {
	return presetFiles.ReadFile("presets/" + name + ".cedar")
}

// presetRules parses the rules of all presets.
func presetRules(check *checker) (all []*rule, err error) {
	for _, name := range append([]string{people}, presetNames...) {
		text, err := PresetText(name)
		if err != nil {
			return nil, err
		}
		rules, err := parseRules(name+".cedar", name, text, check)
		if err != nil {
			return nil, fmt.Errorf("preset: %w", err)
		}
		all = append(all, rules...)
	}
	return all, nil
}

// byPreset is what the rules of the presets decide, without Cedar: most gateways have no
// other rules. A test compares it with the rules.
func byPreset(preset string, role ferrule.Role, op ferrule.Operation, effect ferrule.Effect) ferrule.Verdict {
	switch {
	case role == ferrule.Person:
		return ferrule.Verdict{Ruling: ferrule.Permit, Reason: "people may do everything", Rule: "preset people"}
	case preset == Open:
		return ferrule.Verdict{Ruling: ferrule.Permit, Reason: "the preset open permits everything", Rule: "preset open"}
	case preset == Careful && op == ferrule.CallTool && effect == ferrule.Endangers:
		return ferrule.Verdict{Ruling: ferrule.Ask, Reason: "the preset careful asks a person before what can do harm", Rule: "preset careful"}
	case preset == Careful:
		return ferrule.Verdict{Ruling: ferrule.Permit, Reason: "the preset careful permits it", Rule: "preset careful"}
	case preset == ReadOnly && effect == ferrule.Reads:
		return ferrule.Verdict{Ruling: ferrule.Permit, Reason: "the preset read-only permits what only reads", Rule: "preset read-only"}
	case preset == ReadOnly:
		return ferrule.Verdict{Ruling: ferrule.Forbid, Reason: "the preset read-only permits only what reads, and no other rule permits it"}
	}
	return forbid("the preset of the caller is unknown")
}

// forbid returns a verdict that no rule made.
func forbid(reason string) ferrule.Verdict {
	return ferrule.Verdict{Ruling: ferrule.Forbid, Reason: reason}
}
