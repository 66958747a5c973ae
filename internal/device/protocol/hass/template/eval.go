package template

import (
	"math"
	"strings"
)

// run is one evaluation. Its methods panic with a failure.
type run struct {
	vars  Vars
	set   map[string]any
	out   strings.Builder
	steps int
	total int
}

// failure ends an evaluation.
type failure struct{ err error }

func (r *run) fail(format string, args ...any) { panic(failure{errorf(format, args...)}) }

// node is a part of the text of a template: literal, output, branch or set.
type node interface{ run(*run) }

// expr is a part of an expression.
type expr interface{ eval(*run) any }

type (
	literal string
	output  struct{ x expr }
	branch  []choice
	choice  struct {
		test expr // nil for else
		body []node
	}
	set struct {
		to string
		x  expr
	}

	constant    struct{ v any }
	name        string
	listLiteral []expr
	dictLiteral struct{ keys, values []expr }
	// attr reads a member with a constant name: x.name, or x["name"].
	attr struct {
		x    expr
		name string
		dot  bool
	}
	index       struct{ x, at expr }
	slice       struct{ x, from, to expr }
	conditional struct{ test, yes, no expr }
	logic       struct {
		a, b expr
		or   bool
	}
	unary struct {
		op string
		x  expr
	}
	binary struct {
		op   string
		a, b expr
	}
	// comparison is a chain such as 1 < x < 3.
	comparison struct {
		first expr
		ops   []string
		rest  []expr
	}
	// call is a filter, a test, a method or a function with its arguments. Those that are
	// not given are nil.
	call struct {
		x    expr
		of   *callable
		args []expr
	}
)

// render evaluates a template.
func (r *run) render(body []node) (s string, err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failure:
			s, err = "", e.err
		default:
			panic(e)
		}
	}()
	r.all(body)
	return trim(r.out.String()), nil
}

// step counts work: one step, and one for each KB that is read.
func (r *run) step(bytes int) {
	if r.steps += 1 + bytes>>10; r.steps > maxSteps {
		panic(failure{errTooLong})
	}
}

// made counts a value that the evaluation made, before it is made where it can be large.
func (r *run) made(bytes int) {
	if r.total += bytes; bytes > maxValue || r.total > maxTotal {
		panic(failure{errTooLarge})
	}
}

// work counts the use of a whole value.
func (r *run) work(v any) {
	switch v := v.(type) {
	case string:
		r.step(len(v))
	case *object, *array, list, *dict, view:
		n, _ := size(v)
		r.step(n << 5)
	}
}

// text returns a value as Python prints it.
func (r *run) text(v any) string {
	r.work(v)
	s, err := text(v)
	if err != nil {
		panic(failure{err})
	}
	if _, ok := v.(string); !ok {
		r.made(len(s))
	}
	return s
}

func (r *run) eval(x expr) any {
	r.step(0)
	return x.eval(r)
}

func (r *run) all(body []node) {
	for _, n := range body {
		r.step(0)
		n.run(r)
	}
}

func (r *run) write(s string) {
	if r.out.Len()+len(s) > maxValue {
		panic(failure{errTooLarge})
	}
	r.out.WriteString(s)
}

func (n literal) run(r *run) { r.write(string(n)) }
func (n output) run(r *run)  { r.write(r.text(r.eval(n.x))) }
func (n branch) run(r *run) {
	for _, c := range n {
		if c.test == nil || truth(r.eval(c.test)) {
			r.all(c.body)
			return
		}
	}
}
func (n set) run(r *run) {
	v := r.eval(n.x)
	if r.set == nil {
		r.set = map[string]any{}
	}
	r.set[n.to] = v
}

func (x constant) eval(*run) any { return x.v }

func (x name) eval(r *run) any {
	if v, ok := r.set[string(x)]; ok {
		return v
	}
	v, ok := r.vars[string(x)]
	if !ok {
		return missing(x)
	}
	v, err := normal(v)
	if err != nil {
		panic(failure{err})
	}
	return v
}

func (x listLiteral) eval(r *run) any {
	made := make(list, len(x))
	r.made(16 * len(x))
	for i := range x {
		made[i] = r.eval(x[i])
	}
	return made
}

func (x *dictLiteral) eval(r *run) any {
	made := &dict{}
	r.made(32 * len(x.keys))
	for i := range x.keys {
		key, value := r.eval(x.keys[i]), r.eval(x.values[i])
		if !scalar(key) {
			r.fail("a list or mapping cannot be a key")
		}
		made.put(key, value)
	}
	return made
}

func (x *attr) eval(r *run) any {
	of := r.eval(x.x)
	if x.dot && hasMethod(of, x.name) {
		r.fail("the method %s is used as a value", cleaned(x.name))
	}
	return r.member(of, x.name)
}

func (x *index) eval(r *run) any {
	of := r.eval(x.x)
	return r.member(of, r.eval(x.at))
}

// member returns a member of a value, or a missing value.
func (r *run) member(of, key any) any {
	found, ok := any(nil), false
	switch of := of.(type) {
	case missing:
		panic(failure{missingError(of)})
	case *object:
		if s, isText := key.(string); isText {
			found, ok = of.find(s)
		}
	case *dict:
		r.work(of)
		found, ok = of.get(key)
	case list, *array, string:
		if at, _, whole, _ := asNumber(key); whole {
			found, ok = r.element(of, at)
		}
	}
	if ok {
		return found
	}
	if s, isText := key.(string); isText {
		return missing(s)
	}
	return missing("an element")
}

// element returns an element by its number. Negative ones count from the end.
func (r *run) element(of any, at int64) (any, bool) {
	n, _ := size(of)
	r.work(of)
	if at < 0 {
		at += int64(n)
	}
	if at < 0 || at >= int64(n) {
		return nil, false
	}
	switch of := of.(type) {
	case list:
		return of[at], true
	case *array:
		return of.members[at].get(), true
	}
	return string([]rune(of.(string))[at]), true
}

func (x *slice) eval(r *run) any {
	of := r.eval(x.x)
	n, _ := size(of)
	r.work(of)
	from, to := r.bound(x.from, 0, n), r.bound(x.to, n, n)
	to = max(from, to)
	switch of := of.(type) {
	case missing:
		panic(failure{missingError(of)})
	case string:
		r.made(len(of))
		return string([]rune(of)[from:to])
	case list:
		return of[from:to]
	case *array:
		return &array{of.members[from:to]}
	}
	r.fail("only a text or a list has parts")
	return nil
}

// bound returns an end of a slice, from 0 to n.
func (r *run) bound(x expr, otherwise, n int) int {
	if x == nil {
		return otherwise
	}
	v := r.eval(x)
	if v == nil {
		return otherwise
	}
	at, _, whole, _ := asNumber(v)
	if !whole {
		r.fail("the end of a slice is not a whole number")
	}
	if at < 0 {
		at += int64(n)
	}
	return int(min(max(at, 0), int64(n)))
}

func (x *conditional) eval(r *run) any {
	if truth(r.eval(x.test)) {
		return r.eval(x.yes)
	}
	if x.no == nil {
		return missing("else")
	}
	return r.eval(x.no)
}

func (x *logic) eval(r *run) any {
	if v := r.eval(x.a); truth(v) == x.or {
		return v
	}
	return r.eval(x.b)
}

func (x *unary) eval(r *run) any {
	v := r.eval(x.x)
	if x.op == "not" {
		return !truth(v)
	}
	if m, ok := v.(missing); ok {
		panic(failure{missingError(m)})
	}
	i, f, whole, ok := asNumber(v)
	switch {
	case !ok:
		r.fail("%s needs a number", x.op)
	case x.op == "-" && whole:
		if i == math.MinInt64 {
			r.fail("a number is too large")
		}
		return -i
	case x.op == "-":
		return -f
	case whole:
		return i
	}
	return f
}

func (x *comparison) eval(r *run) any {
	a := r.eval(x.first)
	for i, op := range x.ops {
		b := r.eval(x.rest[i])
		if !r.compare(op, a, b) {
			return false
		}
		a = b
	}
	return true
}

func (x *call) eval(r *run) any {
	var of any
	if x.x != nil {
		of = r.eval(x.x)
	}
	args := make([]any, len(x.args))
	for i, arg := range x.args {
		args[i] = absent{}
		if arg != nil {
			args[i] = r.eval(arg)
		}
	}
	return x.of.do(r, of, args)
}
