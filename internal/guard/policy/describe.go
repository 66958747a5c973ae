package policy

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Source is a file that the policy was read from.
type Source struct {
	Name string // without the directory
	Text string
	// Rules are those of a file with rules, and Tests is how many a file with tests has.
	Rules []SourceRule
	Tests int
}

// SourceRule is where a rule is in its file.
type SourceRule struct {
	Line, End int    // the first and the last line
	Name      string // its @id; empty if it has none
	Permit    bool
}

// Sources returns the files of the owner, in the order of their names.
func (p *Policy) Sources() []Source {
	if p == nil {
		return nil
	}
	all := slices.Clone(p.sources)
	for i := range all {
		for _, r := range p.own.rules {
			if r.file == all[i].Name {
				all[i].Rules = append(all[i].Rules, SourceRule{r.line, r.line + strings.Count(r.text, "\n"), r.name, r.permit})
			}
		}
	}
	return all
}

// Loaded is when the policy was read.
func (p *Policy) Loaded() time.Time { return p.loaded }

// Preset returns the preset of agents that have none of their own, and those of the agents
// that have one.
func (p *Policy) Preset() (preset string, agents map[string]string) {
	return p.cfg.Preset, maps.Clone(p.cfg.Agents)
}

// PresetOf returns the preset of an agent.
func (p *Policy) PresetOf(agent string) string { return p.preset(agent) }

// Groups returns the members of groups.
func (p *Policy) Groups() map[string][]string { return maps.Clone(p.cfg.Groups) }

// Problem is why rules cannot be used. File and Line are empty if they are not known.
type Problem struct {
	File string
	Line int
	Text string
}

// place matches the beginning of an error in a file.
var place = regexp.MustCompile(`^([^\s:/]+):(\d+): `)

// Problems returns what an error of Load consists of, at most limit.
func Problems(err error, limit int) (all []Problem) {
	var several interface{ Unwrap() []error }
	switch {
	case err == nil || limit <= 0:
		return nil
	case errors.As(err, &several):
		for _, one := range several.Unwrap() {
			all = append(all, Problems(one, limit-len(all))...)
		}
		return all
	}
	text := err.Error()
	var one Problem
	if m := place.FindStringSubmatch(text); m != nil {
		one.File = m[1]
		one.Line, _ = strconv.Atoi(m[2]) // digits
		text = text[len(m[0]):]
	}
	one.Text = ferrule.Clean(text, maxMessage)
	return []Problem{one}
}
