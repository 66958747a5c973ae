package policy

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// This file has all uses of cedar-go's experimental packages, whose API may change with any
// version: validation against a schema, and partial evaluation.

// Schema is the Cedar schema that rules are checked against.
//
//go:embed schema.cedarschema
var Schema []byte

// checker checks rules against the schema and the configured groups.
type checker struct {
	schema *resolved.Schema
	cfg    Config
}

func newChecker(cfg Config) (*checker, error) {
	var s schema.Schema
	if err := s.UnmarshalCedar(Schema); err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	r, err := s.Resolve()
	if err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	return &checker{r, cfg}, nil
}

// rule returns an error if a rule uses what is not in the schema, or uses it wrongly.
func (c *checker) rule(r *rule, tree node) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the schema validator failed: %v", r)
		}
	}()
	if err := entities(tree, c.entity); err != nil {
		return err
	}
	known := *c.schema
	known.Actions = make(map[types.EntityUID]resolved.Action, len(c.schema.Actions))
	for uid, action := range c.schema.Actions {
		applies := *action.AppliesTo
		applies.Context = make(resolved.RecordType, len(action.AppliesTo.Context))
		for name, attr := range action.AppliesTo.Context {
			applies.Context[name] = attr
		}
		applies.Context["args"] = resolved.Attribute{Type: r.args.schema()}
		action.AppliesTo = &applies
		known.Actions[uid] = action
	}
	err = validate.New(&known).Policy("", (*ast.Policy)(r.policy.AST()))
	if err == nil {
		return nil
	}
	var messages []string
	for line := range strings.Lines(err.Error()) {
		line = eachAction.ReplaceAllString(strings.TrimSpace(line), "in the context not found")
		if !slices.Contains(messages, line) {
			messages = append(messages, line)
		}
	}
	return errors.New(ferrule.Clean(strings.Join(messages, "; "), maxMessage))
}

// eachAction matches what the validator says once for each action.
var eachAction = regexp.MustCompile(`in context for Action::"[a-z]+" not found`)

// entity returns an error if a rule names what cannot exist, so that it would never match.
func (c *checker) entity(uid types.EntityUID) error {
	id := string(uid.ID)
	switch uid.Type {
	case typeAgent, typePerson:
		if kind, name, ok := strings.Cut(id, ":"); ok && (kind == string(ferrule.Agent) || kind == string(ferrule.Person)) {
			return fmt.Errorf("%q is never the name of a caller; write %s::%q", id, uid.Type, name)
		}
	case typeTool:
		if !strings.Contains(id, "/") {
			return fmt.Errorf("%q is never a tool; write Tool::\"DEVICE/%s\"", id, id)
		}
	case typeLabel:
		if !strings.Contains(id, "=") {
			return fmt.Errorf("%q is never a label; write Label::\"%s=VALUE\"", id, id)
		}
	case typeGroup:
		if _, ok := c.cfg.Groups[id]; !ok && !slices.Contains(c.cfg.Claimed, id) {
			return fmt.Errorf("group %q is not in policy.groups of ferrule.yaml, and no issuer in auth.issuers gives it to anybody", id)
		}
	case typePreset:
		if rank(id) < 0 {
			return fmt.Errorf("unknown preset %q; it must be %s", id, strings.Join(presetNames, ", "))
		}
	}
	return nil
}

// schema returns the type in terms of the schema. What the rule does not say is text.
func (t *argType) schema() resolved.IsType {
	switch t.kind {
	case kindLong:
		return resolved.LongType{}
	case kindBool:
		return resolved.BoolType{}
	case kindDecimal:
		return resolved.ExtensionType("decimal")
	case kindSet:
		return resolved.SetType{Element: t.elem.schema()}
	case kindRecord:
		out := make(resolved.RecordType, len(t.members))
		for name, m := range t.members {
			out[types.String(name)] = resolved.Attribute{Type: m.schema(), Optional: m.optional}
		}
		return out
	}
	return resolved.StringType{}
}

// outcome is what is known about a rule if arguments and time are unknown.
type outcome int

const (
	never  outcome = iota // it does not match
	maybe                 // it depends
	always                // it matches
	broken                // its evaluation fails
)

// unknownContext returns a context in which everything but the approval is unknown.
func unknownContext(approved bool) types.Record {
	context := types.RecordMap{attrApproved: types.Boolean(approved)}
	for _, name := range []types.String{attrArgs, decimalArgs, attrHour, attrMinute, attrWeekday, attrTime, attrNetwork} {
		context[name] = eval.Variable(name)
	}
	return types.NewRecord(context)
}

// unknownContexts are those without and with an approval.
var unknownContexts = [2]types.Record{unknownContext(false), unknownContext(true)}

// partial evaluates a rule for a request whose arguments, time and network are unknown. A
// fault of the evaluator counts as maybe: what is shown is decided again when it is called.
func partial(r *rule, q *request, context types.Record) (result outcome) {
	defer func() {
		if recover() != nil {
			result = maybe
		}
	}()
	rest, keep := eval.PartialPolicy(eval.Env{
		Entities: q, Principal: q.principal, Action: q.action, Resource: q.resource, Context: context,
	}, (*ast.Policy)(r.policy.AST()))
	switch {
	case !keep:
		return never
	case len(rest.Conditions) == 0:
		return always
	}
	if _, failed := eval.ToPartialError(rest.Conditions[0].Body); failed {
		return broken
	}
	return maybe
}
