package policy

import (
	"iter"
	"slices"
	"strconv"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
)

// index finds the rules whose scope can match a request. Cedar evaluates every rule that it
// is given; a rule for another device never matches and never fails, so it can be left out.
type index struct {
	rules []*rule
	// byScope has the rules by the scope of their resource, then of their principal.
	byScope map[key]map[key][]*rule
}

// key is what a scope requires: an entity, or a type, or nothing.
type key struct {
	entity types.EntityUID
	is     types.EntityType
}

// key returns the entity that a scope requires, which says more than its type.
func (s scope) key() key {
	if s.entity != (types.EntityUID{}) {
		return key{entity: s.entity}
	}
	return key{is: s.is}
}

// newIndex returns an index, and numbers the rules from first.
func newIndex(rules []*rule, first int) *index {
	x := &index{rules: rules, byScope: make(map[key]map[key][]*rule)}
	for i, r := range rules {
		r.id = types.PolicyID(strconv.Itoa(first + i))
		resource, principal := r.resource.key(), r.principal.key()
		if x.byScope[resource] == nil {
			x.byScope[resource] = make(map[key][]*rule)
		}
		x.byScope[resource][principal] = append(x.byScope[resource][principal], r)
	}
	return x
}

// find returns the rules that may apply to a request.
func (x *index) find(q *request) candidates {
	if len(x.rules) == 0 {
		return nil
	}
	var found candidates
	x.add(&found, x.byScope[key{}], q)
	x.add(&found, x.byScope[key{is: q.resource.Type}], q)
	x.add(&found, x.byScope[key{entity: q.resource}], q)
	for _, parent := range q.resources {
		x.add(&found, x.byScope[key{entity: parent}], q)
	}
	return found
}

// add adds the rules of one resource that may apply to the principal.
func (x *index) add(found *candidates, byPrincipal map[key][]*rule, q *request) {
	if len(byPrincipal) == 0 {
		return
	}
	found.add(byPrincipal[key{}], q)
	found.add(byPrincipal[key{is: q.principal.Type}], q)
	found.add(byPrincipal[key{entity: q.principal}], q)
	for _, parent := range q.principals {
		found.add(byPrincipal[key{entity: parent}], q)
	}
}

// candidates are rules that may apply. They implement cedar.PolicyIterator.
type candidates []*rule

func (c *candidates) add(rules []*rule, q *request) {
	for _, r := range rules {
		if len(r.actions) == 0 || slices.Contains(r.actions, string(q.action.ID)) {
			*c = append(*c, r)
		}
	}
}

// All implements cedar.PolicyIterator.
func (c candidates) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, r := range c {
			if !yield(r.id, r.policy) {
				return
			}
		}
	}
}
