// Package pinning compares what a device says about itself with what its owner accepted.
//
//	accepted manifest ─┐
//	                   ├─ Compare ─▶ the part that is still in use
//	offered manifest ──┘             and how many changes wait for the owner
//	                   └─ Diff ────▶ the changes, word by word, for the owner
//
// What is in use is always a part of the accepted manifest. A tool, resource, prompt or
// pin that is new or says something else waits. One that is gone is gone. An effect that
// became stricter is used at once, and is the reference from then on.
//
// Everything here is a pure function. The dock stores manifests and decides when to
// compare.
package pinning

import (
	"bytes"
	"cmp"
	"encoding/json"
	"regexp"
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Usable is the part of a device that its owner accepted.
type Usable struct {
	// Manifest is what may be used. It is the accepted manifest itself if nothing that
	// was accepted is gone, changed or stricter.
	Manifest *ferrule.Manifest
	// Reference takes the place of the accepted manifest, and differs from it if an
	// effect became stricter. It is nil if the accepted manifest is not known.
	Reference *ferrule.Manifest
	// Waiting is the number of changes that are not in use.
	Waiting int
}

// changedReason is why a tool cannot be used.
const changedReason = "it changed since its owner accepted it; to see how, run `ferrule diff` with the device's name"

// Compare returns the part of what a device offers that its owner accepted as a Kind. If
// the accepted manifest is nil, because it was lost, nothing may be used.
func Compare(kind ferrule.Kind, accepted, offered *ferrule.Manifest) Usable {
	if accepted == nil {
		return Usable{Manifest: &ferrule.Manifest{PartOf: kind}, Waiting: max(1, Compare(kind, &ferrule.Manifest{}, offered).Waiting)}
	}
	root := cmp.Or(accepted.PartOf, kind)
	used, reference := *accepted, *accepted
	used.PartOf, reference.PartOf = root, root
	waiting := heldTexts(accepted, offered)
	tools := compareTools(accepted.Tools, offered.Tools)
	used.Tools, reference.Tools = tools.used, tools.reference
	var held int
	used.Pins, held = common(accepted.Pins, offered.Pins, func(p *ferrule.Pin) int { return p.Number })
	waiting += tools.waiting + held
	used.Prompts, held = common(accepted.Prompts, offered.Prompts, func(p *ferrule.Prompt) string { return p.Name })
	waiting += held
	used.Resources, held = commonResources(accepted.Resources, offered.Resources)
	used.ListedOnly = held > 0
	waiting += held
	used.Operations, held = common(accepted.Operations, offered.Operations, func(op *ferrule.Operation) ferrule.Operation { return *op })
	waiting += held
	out := Usable{Manifest: &used, Reference: accepted, Waiting: waiting}
	if tools.stricter {
		out.Reference = &reference
	}
	whole := len(used.Pins) == len(accepted.Pins) && len(used.Prompts) == len(accepted.Prompts) &&
		len(used.Resources) == len(accepted.Resources) && len(used.Operations) == len(accepted.Operations) && !used.ListedOnly
	if whole && tools.whole {
		out.Manifest = out.Reference
	}
	return out
}

// texts returns what a device says about itself as a whole. A version is not one of them,
// see PlainVersion.
func texts(m *ferrule.Manifest) []field {
	return []field{
		{"model", m.Model}, {"title", m.Title}, {"platform", m.Platform}, {"instructions", m.Instructions}, {"icons", text(m.Icons)},
	}
}

// heldTexts counts the texts that are new or changed.
func heldTexts(accepted, offered *ferrule.Manifest) (held int) {
	before := texts(accepted)
	for i, now := range texts(offered) {
		if now.text != "" && now.text != before[i].text {
			held++
		}
	}
	return held
}

var plainVersion = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._+~-]{0,31}$`)

// PlainVersion reports whether a version is one word, so that a new one can be shown
// before the owner accepts it: a sentence could be meant for a model.
func PlainVersion(version string) bool { return plainVersion.MatchString(version) }

// tools is the result of compareTools.
type tools struct {
	used, reference []ferrule.Tool
	waiting         int
	stricter        bool // reference differs from what was accepted
	whole           bool // used is reference
}

// compareTools compares tools. A changed tool stays in the list, as it was accepted, and
// cannot be used. A new one is left out: its very name may be a text for a model.
func compareTools(accepted, offered []ferrule.Tool) tools {
	now := byName(offered, func(t *ferrule.Tool) string { return t.Name })
	seen := make(map[string]bool, len(accepted))
	out := tools{whole: true}
	for i := range accepted {
		was := accepted[i]
		is := now[was.Name]
		if seen[was.Name] { // it is in quarantine
			is = &accepted[i]
		} else {
			delete(now, was.Name)
		}
		seen[was.Name] = true
		reference := was
		switch {
		case is == nil:
			out.whole = false
		case !sameTool(&was, is) || compareEffects(&was, is) == milder:
			out.whole = false
			out.waiting++
			if was.Quarantine == "" {
				was.Quarantine = changedReason
			}
			out.used = append(out.used, was)
		default:
			if compareEffects(&was, is) == stricter {
				out.stricter = true
				reference.Effect, reference.Idempotent, reference.UserOnly = is.Effect, is.Idempotent, is.UserOnly
			}
			out.used = append(out.used, reference)
		}
		out.reference = append(out.reference, reference)
	}
	out.waiting += len(now) // the new ones
	return out
}

// sameTool reports whether two tools say the same, apart from their effects.
func sameTool(a, b *ferrule.Tool) bool {
	return bytes.Equal(canonical(a), canonical(b))
}

func canonical(t *ferrule.Tool) []byte {
	plain := *t
	plain.Effect, plain.Idempotent, plain.UserOnly = "", false, false
	data, err := (&ferrule.Manifest{Tools: []ferrule.Tool{plain}}).Canonical()
	if err != nil { // its schema is not JSON; it is in quarantine
		return []byte(t.Name + "\x00" + string(t.Input) + "\x00" + string(t.Output))
	}
	return data
}

// comparison says how the effects of a tool have changed.
type comparison int

const (
	milder   comparison = -1
	equal    comparison = 0
	stricter comparison = 1
)

// compareEffects compares the effects of a tool as it was and as it is. If one became
// milder, the others do not count.
func compareEffects(was, is *ferrule.Tool) comparison {
	all := []int{
		cmp.Compare(severity(is.Effect), severity(was.Effect)),
		cmp.Compare(number(was.Idempotent), number(is.Idempotent)),
		cmp.Compare(number(is.UserOnly), number(was.UserOnly)),
	}
	switch {
	case slices.Min(all) < 0:
		return milder
	case slices.Max(all) > 0:
		return stricter
	}
	return equal
}

// severity orders effects. A tool without one is treated like one that changes something.
func severity(e ferrule.Effect) int {
	switch e {
	case ferrule.Reads:
		return 0
	case ferrule.Endangers:
		return 2
	}
	return 1
}

func number(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// commonResources is common for resources. A size and a time of modification change all
// the time, and mean nothing for what may be read.
func commonResources(accepted, offered []ferrule.Resource) (kept []ferrule.Resource, held int) {
	return commonBy(accepted, offered, func(r *ferrule.Resource) string { return r.URI }, func(a, b *ferrule.Resource) bool {
		return text(steady(a)) == text(steady(b))
	})
}

// steady returns a resource without what changes all the time.
func steady(r *ferrule.Resource) ferrule.Resource {
	out := *r
	out.Size = 0
	if a := r.Annotations; a != nil {
		out.Annotations = &ferrule.Annotations{Audience: a.Audience, Priority: a.Priority}
		if a.Audience == nil && a.Priority == nil {
			out.Annotations = nil
		}
	}
	return out
}

// common returns the entries of a list that are offered as they were accepted, and the
// number of entries that are new or changed.
func common[T any, Name cmp.Ordered](accepted, offered []T, name func(*T) Name) (kept []T, held int) {
	return commonBy(accepted, offered, name, func(a, b *T) bool { return text(*a) == text(*b) })
}

func commonBy[T any, Name cmp.Ordered](accepted, offered []T, name func(*T) Name, same func(a, b *T) bool) (kept []T, held int) {
	now := byName(offered, name)
	for i := range accepted {
		was := &accepted[i]
		is := now[name(was)]
		delete(now, name(was))
		switch {
		case is == nil:
		case same(was, is):
			kept = append(kept, *was)
		default:
			held++
		}
	}
	return kept, held + len(now)
}

// byName returns the first entry of each name.
func byName[T any, Name cmp.Ordered](all []T, name func(*T) Name) map[Name]*T {
	named := make(map[Name]*T, len(all))
	for i := range all {
		if n := name(&all[i]); named[n] == nil {
			named[n] = &all[i]
		}
	}
	return named
}

// text returns a value as text that can be compared; "" for a nil slice.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil || string(data) == "null" {
		return ""
	}
	return string(data)
}
