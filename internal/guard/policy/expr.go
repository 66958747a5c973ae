package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// node is an expression in Cedar's JSON format: one operator with its operands.
type node = map[string]any

// argType is how a rule uses an argument. Cedar does not know the arguments of tools, so
// the rule itself says what it expects.
type argType struct {
	kind string // one of the kinds; empty if the rule does not say
	// elem is the type of the elements of a set; members are those of a record.
	elem    *argType
	members map[string]*argType
	// optional is set if the rule asks whether the argument is present.
	optional bool
}

// The kinds of values.
const (
	kindLong    = "Long"
	kindString  = "String"
	kindBool    = "Bool"
	kindDecimal = "decimal"
	kindSet     = "Set"
	kindRecord  = "Record"
)

// inWords describes kinds for people.
var inWords = map[string]string{
	kindLong: "a whole number", kindString: "text", kindBool: "true or false", kindDecimal: "a decimal", kindSet: "a set", kindRecord: "a record",
}

var (
	unknownType = &argType{}
	longType    = &argType{kind: kindLong}
	stringType  = &argType{kind: kindString}
	boolType    = &argType{kind: kindBool}
	decimalType = &argType{kind: kindDecimal}
)

// usage collects how a rule uses the arguments.
type usage struct {
	args *argType
	err  error // the first contradiction
}

// attributeTypes are the types of attributes that arguments may be compared with.
var attributeTypes = map[string]*argType{
	"context.hour": longType, "context.minute": longType, "context.weekday": stringType, "context.network": stringType, "context.approved": boolType,
	"resource.name": stringType, "resource.effect": stringType, "principal.auth": stringType, "principal.user": stringType,
	"resource.device.id": stringType, "resource.device.kind": stringType, "resource.device.model": stringType, "resource.device.version": stringType,
	"resource.device.transport": stringType, "resource.device.protocol": stringType, "resource.device.node": stringType,
}

// attributeValues are the values of attributes that have few. A rule that compares such an
// attribute with another value would never match.
var attributeValues = map[string][]string{
	"resource.effect": {"reads", "changes", "endangers"},
	"context.weekday": {"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"},
	"context.network": {"local", "remote"},
	"principal.auth":  {"token", "loopback", "socket", "stdio", "endpoint"},
}

// operator returns the operator of an expression and its operands.
func operator(n any) (op string, operands any) {
	m, ok := n.(node)
	if !ok || len(m) != 1 {
		return "", nil
	}
	for op, operands = range m {
	}
	return op, operands
}

// operand returns one operand of an operator.
func operand(operands any, name string) any {
	m, _ := operands.(node)
	return m[name]
}

// attribute returns the path of an attribute, such as resource.device.model; "" if n is not
// the attribute of a variable.
func attribute(n any) string {
	switch op, in := operator(n); op {
	case "Var":
		name, _ := in.(string)
		return name
	case ".":
		attr, _ := operand(in, "attr").(string)
		if left := attribute(operand(in, "left")); left != "" {
			return left + "." + attr
		}
	}
	return ""
}

// argument returns the path of an argument: nothing for context.args itself.
func argument(n any) (path []string, ok bool) {
	op, in := operator(n)
	if op != "." {
		return nil, false
	}
	attr, _ := operand(in, "attr").(string)
	left := operand(in, "left")
	if op, name := operator(left); op == "Var" && name == "context" && attr == "args" {
		return []string{}, true
	}
	path, ok = argument(left)
	return append(path, attr), ok
}

// typeOf returns the type of an expression as far as it shows.
func typeOf(n any) *argType {
	op, in := operator(n)
	switch op {
	case "Value":
		switch in.(type) {
		case string:
			return stringType
		case json.Number:
			return longType
		case bool:
			return boolType
		}
	case "+", "-", "*", "neg":
		return longType
	case "&&", "||", "!", "==", "!=", "<", "<=", ">", ">=", "like", "has", "in", "is", "contains", "containsAll", "containsAny", "isEmpty", "hasTag":
		return boolType
	case "getTag":
		return stringType
	case "decimal":
		return decimalType
	case "Record":
		return &argType{kind: kindRecord}
	case "Set":
		elem := unknownType
		if all, _ := in.([]any); len(all) > 0 {
			elem = typeOf(all[0])
		}
		return &argType{kind: kindSet, elem: elem}
	case ".":
		if t := attributeTypes[attribute(n)]; t != nil {
			return t
		}
	}
	return unknownType
}

// setOf returns the type of a set whose elements are compared with n.
func setOf(n any) *argType { return &argType{kind: kindSet, elem: typeOf(n)} }

// elements returns the type of the elements of a set.
func elements(n any) *argType {
	if t := typeOf(n); t.elem != nil {
		return t.elem
	}
	return unknownType
}

// walk records how an expression uses arguments. want is the type that its place requires.
func (u *usage) walk(n any, want *argType) {
	if path, ok := argument(n); ok {
		u.note(path, want)
		return
	}
	op, in := operator(n)
	left, right := operand(in, "left"), operand(in, "right")
	switch op {
	case "Value", "Var":
	case "==", "!=":
		u.walk(left, typeOf(right))
		u.walk(right, typeOf(left))
	case "<", "<=", ">", ">=", "+", "-", "*":
		u.walk(left, longType)
		u.walk(right, longType)
	case "neg":
		u.walk(operand(in, "arg"), longType)
	case "&&", "||":
		u.walk(left, boolType)
		u.walk(right, boolType)
	case "!":
		u.walk(operand(in, "arg"), boolType)
	case "if-then-else":
		u.walk(operand(in, "if"), boolType)
		u.walk(operand(in, "then"), want)
		u.walk(operand(in, "else"), want)
	case "like":
		u.walk(left, stringType)
	case "has":
		attr, _ := operand(in, "attr").(string)
		if path, ok := argument(left); ok {
			if t := u.note(append(path, attr), unknownType); t != nil {
				t.optional = true
			}
			return
		}
		u.walk(left, unknownType)
	case "contains":
		u.walk(left, setOf(right))
		u.walk(right, elements(left))
	case "containsAll", "containsAny":
		u.walk(left, typeOf(right))
		u.walk(right, typeOf(left))
	case "isEmpty":
		u.walk(operand(in, "arg"), &argType{kind: kindSet, elem: unknownType})
	case "getTag", "hasTag":
		u.walk(left, unknownType)
		u.walk(right, stringType)
	case "Set":
		all, _ := in.([]any)
		for _, e := range all {
			u.walk(e, unknownType)
		}
	case "lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual":
		all, _ := in.([]any)
		for _, e := range all {
			u.walk(e, decimalType)
		}
	default:
		for child := range children(in) {
			u.walk(child, unknownType)
		}
	}
}

// children calls yield with each operand, whatever the operator.
func children(in any) func(yield func(any) bool) {
	return func(yield func(any) bool) {
		switch in := in.(type) {
		case []any:
			for _, e := range in {
				if !yield(e) {
					return
				}
			}
		case node:
			for _, e := range in {
				if _, ok := e.(node); ok && !yield(e) {
					return
				}
			}
		}
	}
}

// note records that the argument at a path is used as want, and returns its type.
func (u *usage) note(path []string, want *argType) *argType {
	t := u.args
	for _, name := range path {
		if t.kind != "" && t.kind != kindRecord {
			u.contradict(path, t.kind, kindRecord)
			return nil
		}
		t.kind = kindRecord
		if t.members == nil {
			t.members = make(map[string]*argType)
		}
		if t.members[name] == nil {
			t.members[name] = &argType{}
		}
		t = t.members[name]
	}
	switch {
	case want.kind == "":
	case want.kind == kindRecord:
		u.fail(fmt.Errorf("context.%s is compared with a record; compare its members one by one", dotted(path)))
	case t.kind == "":
		t.kind, t.elem = want.kind, want.elem
	case t.kind != want.kind:
		u.contradict(path, t.kind, want.kind)
	case t.elem != nil && t.elem.kind == "":
		t.elem = want.elem
	case t.elem != nil && want.elem != nil && want.elem.kind != "" && t.elem.kind != want.elem.kind:
		u.contradict(path, "a set of "+t.elem.kind, "a set of "+want.elem.kind)
	}
	if t.elem != nil && t.elem.kind == kindRecord {
		u.fail(fmt.Errorf("context.%s is compared with records; Ferrule cannot check that", dotted(path)))
	}
	return t
}

func dotted(path []string) string { return strings.Join(append([]string{"args"}, path...), ".") }

func (u *usage) contradict(path []string, a, b string) {
	words := func(kind string) string {
		if w := inWords[kind]; w != "" {
			return w
		}
		return kind
	}
	u.fail(fmt.Errorf("context.%s is used as %s and as %s; an argument has one type in a rule", dotted(path), words(a), words(b)))
}

func (u *usage) fail(err error) {
	if u.err == nil {
		u.err = err
	}
}

// at returns the type of the argument at a path.
func (t *argType) at(path []string) *argType {
	for _, name := range path {
		if t = t.members[name]; t == nil {
			return unknownType
		}
	}
	return t
}

// inDecimals reports whether numbers of the type must be decimals.
func (t *argType) inDecimals() bool {
	return t.kind == kindDecimal || t.elem != nil && t.elem.kind == kindDecimal
}

// anyDecimals reports whether the type or a member of it must be in decimals.
func (t *argType) anyDecimals() bool {
	for _, m := range t.members {
		if m.anyDecimals() {
			return true
		}
	}
	return t.inDecimals()
}

// rewrite returns an expression whose evaluation fails if an argument has another type than
// the rule expects. Cedar itself compares values of different types, and finds them to
// differ: a rule that forbids a value would not match. It also makes arguments that the rule
// compares with decimals decimals, even if they are whole numbers.
func (u *usage) rewrite(n any) any {
	if path, ok := argument(n); ok {
		return u.rewriteArgument(n, u.args.at(path))
	}
	op, in := operator(n)
	out := n
	switch in := in.(type) {
	case []any:
		all := make([]any, len(in))
		for i, e := range in {
			all[i] = u.rewrite(e)
		}
		out = node{op: all}
	case node:
		if op == "Value" {
			return n
		}
		m := make(node, len(in))
		for name, e := range in {
			m[name] = e
			if _, ok := e.(node); ok {
				m[name] = u.rewrite(e)
			}
		}
		out = node{op: m}
	}
	if op == "==" || op == "!=" || op == "contains" {
		for _, side := range []string{"left", "right"} {
			if path, ok := argument(operand(in, side)); ok {
				if check := typeCheck(u.rewrite(operand(in, side)), u.args.at(path)); check != nil {
					out = node{"&&": node{"left": check, "right": out}}
				}
			}
		}
	}
	return out
}

// rewriteArgument returns the argument, from context.decimals if it must be a decimal.
func (u *usage) rewriteArgument(n any, t *argType) any {
	if !t.inDecimals() {
		return n
	}
	_, in := operator(n)
	attr, left := operand(in, "attr"), operand(in, "left")
	if path, ok := argument(left); ok && len(path) > 0 {
		left = u.rewriteArgument(left, t)
	} else if ok {
		left = node{".": node{"left": node{"Var": "context"}, "attr": decimalArgs}}
	}
	return node{".": node{"left": left, "attr": attr}}
}

// decimalArgs is the attribute of the context with all numbers as decimals.
const decimalArgs = "decimals"

// typeCheck returns an expression that is true if n has a type, and fails otherwise; nil if
// there is nothing to check.
func typeCheck(n any, t *argType) any {
	same := node{"left": n, "right": n}
	switch t.kind {
	case kindLong:
		return node{"<=": same}
	case kindString:
		return node{"like": node{"left": n, "pattern": []any{"Wildcard"}}}
	case kindBool:
		return node{"||": node{"left": n, "right": node{"Value": true}}}
	case kindDecimal:
		return node{"lessThanOrEqual": []any{n, n}}
	case kindSet:
		return node{"containsAll": same}
	}
	return nil
}

// usesContext reports whether an expression depends on more of the context than approved.
func usesContext(n any) bool {
	op, in := operator(n)
	if op == "Var" {
		return in == "context"
	}
	if op == "." && attribute(n) == "context.approved" || op == "Value" {
		return false
	}
	for child := range children(in) {
		if usesContext(child) {
			return true
		}
	}
	return false
}

// checkValues returns an error if an expression compares an attribute with a value that it
// never has.
func checkValues(n any) error {
	op, in := operator(n)
	left, right := operand(in, "left"), operand(in, "right")
	switch op {
	case "Value":
		return nil
	case "==", "!=", "contains":
		for _, pair := range [][2]any{{left, right}, {right, left}} {
			name := attribute(pair[0])
			known := attributeValues[name]
			for _, text := range texts(pair[1]) {
				if known != nil && !slices.Contains(known, text) {
					return fmt.Errorf("%s is never %q; it is %s", name, text, strings.Join(known, ", "))
				}
			}
		}
	}
	for child := range children(in) {
		if err := checkValues(child); err != nil {
			return err
		}
	}
	return nil
}

// texts returns the strings of a literal or of a set of them.
func texts(n any) (all []string) {
	switch op, in := operator(n); op {
	case "Value":
		if s, ok := in.(string); ok {
			return []string{s}
		}
	case "Set":
		elements, _ := in.([]any)
		for _, e := range elements {
			all = append(all, texts(e)...)
		}
	}
	return all
}
