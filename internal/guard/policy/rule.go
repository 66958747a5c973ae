package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// rule is one Cedar policy, as a file has it and as it is evaluated.
type rule struct {
	id     types.PolicyID
	permit bool
	policy *cedar.Policy
	// preset is the name of the preset that the rule belongs to; empty for a file's rule.
	preset string
	file   string
	line   int
	name   string // its @id; empty if it has none
	text   string // its source

	principal, resource scope
	actions             []string // empty for all
	conditions          string   // canonical text; empty for none
	// dynamic is set if the rule depends on arguments, the time or the network.
	dynamic  bool
	args     *argType
	decimals bool // an argument is used as a decimal
}

// scope is the principal or the resource that a rule applies to: everything, one entity and
// all that is in it, one type, or both.
type scope struct {
	entity types.EntityUID // zero for all
	is     types.EntityType
	exact  bool // the entity itself only
}

// place returns where a rule is, for example house.cedar:12.
func (r *rule) place() string {
	if r.preset != "" {
		return "preset " + r.preset
	}
	return r.file + ":" + strconv.Itoa(r.line)
}

// title returns how messages refer to a rule.
func (r *rule) title() string {
	if r.preset != "" || r.name == "" {
		return r.place()
	}
	return fmt.Sprintf("%q (%s)", r.name, r.place())
}

// parseRules parses a file. Errors have the file and the line.
func parseRules(file, preset string, text []byte, check *checker) ([]*rule, error) {
	policies, err := parseCedar(text)
	if err != nil {
		return nil, syntaxError(file, err)
	}
	var rules []*rule
	for i, p := range policies {
		begin, end := p.Position().Offset, len(text)
		if i+1 < len(policies) {
			end = policies[i+1].Position().Offset
		}
		r := &rule{file: file, preset: preset, line: p.Position().Line, permit: p.Effect() == cedar.Permit, policy: p}
		r.name = ferrule.Clean(string(p.Annotations()["id"]), ferrule.MaxWord)
		r.text = source(string(text[begin:end]))
		if err := r.compile(check); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, r.lineOf(err), err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// parseCedar parses Cedar text. The parser is not ours, and the text comes from a file that
// may be broken in any way.
func parseCedar(text []byte) (list cedar.PolicyList, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the Cedar parser failed: %v", r)
		}
	}()
	if len(text) > maxFile {
		return nil, fmt.Errorf("has %d bytes; limit is %d", len(text), maxFile)
	}
	if tooDeep(text) {
		return nil, fmt.Errorf("has more than %d brackets in each other", maxDepth)
	}
	err = list.UnmarshalCedar(text)
	return list, err
}

// maxDepth is how deep brackets may be nested: the parser calls itself for each.
const maxDepth = 500

// tooDeep reports whether brackets or signs are nested too deep within a rule.
func tooDeep(text []byte) bool {
	depth, signs := 0, 0
	for _, c := range text {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case ';':
			depth = 0
		}
		if c == '!' || c == '-' {
			signs++
		} else if c > ' ' {
			signs = 0
		}
		if depth > maxDepth || signs > maxDepth {
			return true
		}
	}
	return false
}

// maxFile is the size of the largest policy file.
const maxFile = 16 << 20

// position finds the line in an error of the parser.
var position = regexp.MustCompile(`(?:<input>:)?(\d+):(\d+):? ?`)

// syntaxError returns an error of the parser with file and line.
func syntaxError(file string, err error) error {
	text := strings.TrimPrefix(err.Error(), "parser error: ")
	text = strings.TrimPrefix(text, "parse error at ")
	if at := position.FindStringSubmatchIndex(text); at != nil && at[0] == 0 {
		return fmt.Errorf("%s:%s: %s", file, text[at[2]:at[3]], ferrule.Clean("syntax error near "+text[at[1]:], maxMessage))
	}
	return fmt.Errorf("%s: %s", file, ferrule.Clean(text, maxMessage))
}

// maxMessage is the length of the longest message about a rule.
const maxMessage = 400

// source returns the text of one rule without the comments that follow it.
func source(text string) string {
	if end := strings.LastIndex(text, ";"); end >= 0 {
		text = text[:end+1]
	}
	return strings.TrimSpace(text)
}

// mentioned finds the attribute or entity that an error is about.
var mentioned = regexp.MustCompile("[`\"]([^`\"]+)[`\"]|context\\.args\\.([A-Za-z0-9_]+)")

// lineOf returns the line of what an error mentions, or of the rule.
func (r *rule) lineOf(err error) int {
	for _, m := range mentioned.FindAllStringSubmatch(err.Error(), -1) {
		word := m[1] + m[2]
		if at := strings.LastIndex(word, "::"); at >= 0 {
			word = word[:at]
		}
		whole, err := regexp.Compile(`\b` + regexp.QuoteMeta(word) + `\b`)
		if err != nil {
			continue
		}
		if at := whole.FindStringIndex(r.text); at != nil {
			return r.line + strings.Count(r.text[:at[0]], "\n")
		}
	}
	return r.line
}

// compile checks a rule and prepares it for evaluation.
func (r *rule) compile(check *checker) error {
	data, err := r.policy.MarshalJSON()
	if err != nil {
		return err
	}
	var tree node
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return err
	}
	if r.principal, err = scopeOf(tree["principal"]); err != nil {
		return err
	}
	if r.resource, err = scopeOf(tree["resource"]); err != nil {
		return err
	}
	r.actions = actionsOf(tree["action"])
	u := usage{args: &argType{kind: kindRecord}}
	conditions, _ := tree["conditions"].([]any)
	for _, c := range conditions {
		body := operand(c, "body")
		u.walk(body, boolType)
		r.dynamic = r.dynamic || usesContext(body)
		if err := checkValues(body); err != nil {
			return err
		}
	}
	if u.err != nil {
		return u.err
	}
	r.args, r.decimals = u.args, u.args.anyDecimals()
	if err := check.rule(r, tree); err != nil {
		return err
	}
	if len(conditions) > 0 {
		text, err := json.Marshal(conditions)
		if err != nil {
			return err
		}
		r.conditions = string(text)
	}
	for _, c := range conditions {
		c.(node)["body"] = u.rewrite(operand(c, "body"))
	}
	renamed(tree["resource"])
	if data, err = json.Marshal(tree); err != nil {
		return err
	}
	r.policy = new(cedar.Policy)
	return r.policy.UnmarshalJSON(data)
}

// renamed lets a rule about one tool also apply under earlier IDs of its device: those are
// parents of the tool.
func renamed(resource any) {
	if m, ok := resource.(node); ok && m["op"] == "==" {
		m["op"] = "in"
	}
}

// scopeOf returns the scope of a rule.
func scopeOf(n any) (s scope, err error) {
	m, _ := n.(node)
	switch op, _ := m["op"].(string); op {
	case "All":
		return s, nil
	case "==":
		s.exact = true
		s.entity, err = entityOf(m["entity"])
	case "in":
		s.entity, err = entityOf(m["entity"])
	case "is":
		is, _ := m["entity_type"].(string)
		s.is = types.EntityType(is)
		if in, ok := m["in"].(node); ok {
			s.entity, err = entityOf(in["entity"])
		}
	default:
		err = fmt.Errorf("unknown scope %q", op)
	}
	return s, err
}

func entityOf(n any) (types.EntityUID, error) {
	m, _ := n.(node)
	t, ok := m["type"].(string)
	id, ok2 := m["id"].(string)
	if !ok || !ok2 {
		return types.EntityUID{}, fmt.Errorf("unknown entity in the scope")
	}
	return types.NewEntityUID(types.EntityType(t), types.String(id)), nil
}

// actionsOf returns the names of the actions that a rule applies to; nil for all.
func actionsOf(n any) (names []string) {
	m, _ := n.(node)
	all, _ := m["entities"].([]any)
	if m["entity"] != nil {
		all = append(all, m["entity"])
	}
	for _, e := range all {
		if uid, err := entityOf(e); err == nil {
			names = append(names, string(uid.ID))
		}
	}
	return names
}

// entities calls fn with every entity that a part of a rule names.
func entities(n any, fn func(types.EntityUID) error) error {
	switch n := n.(type) {
	case node:
		if uid, err := entityOf(n); err == nil && len(n) == 2 {
			return fn(uid)
		}
		for _, e := range n {
			if err := entities(e, fn); err != nil {
				return err
			}
		}
	case []any:
		for _, e := range n {
			if err := entities(e, fn); err != nil {
				return err
			}
		}
	}
	return nil
}
