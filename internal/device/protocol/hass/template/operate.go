package template

import (
	"cmp"
	"math"
	"strings"
)

func (r *run) compare(op string, a, b any) bool {
	switch op {
	case "==":
		return r.equal(a, b, 0)
	case "!=":
		return !r.equal(a, b, 0)
	case "in":
		return r.contains(b, a)
	case "not in":
		return !r.contains(b, a)
	}
	order := r.order(a, b)
	switch op {
	case "<":
		return order == -1
	case "<=":
		return order == -1 || order == 0
	case ">":
		return order == 1
	default:
		return order == 1 || order == 0
	}
}

// unordered is the order of two numbers if one of them is not a number.
const unordered = 2

// order compares numbers or texts.
func (r *run) order(a, b any) int {
	for _, v := range []any{a, b} {
		if m, ok := v.(missing); ok {
			panic(failure{missingError(m)})
		}
	}
	r.work(a)
	r.work(b)
	ai, af, aWhole, aNumber := asNumber(inexact(a))
	bi, bf, bWhole, bNumber := asNumber(inexact(b))
	as, aText := a.(string)
	bs, bText := b.(string)
	switch {
	case aWhole && bWhole:
		return cmp.Compare(ai, bi)
	case aNumber && bNumber:
		if math.IsNaN(af) || math.IsNaN(bf) {
			return unordered
		}
		return cmp.Compare(af, bf)
	case aText && bText:
		return cmp.Compare(as, bs)
	}
	r.fail("values of different types cannot be ordered")
	return 0
}

// inexact returns a number that is too large for calculations as a fraction.
func inexact(v any) any {
	if big, ok := v.(bigInt); ok {
		f, _ := number(string(big))
		return f
	}
	return v
}

// equal reports whether two values are equal in Python.
func (r *run) equal(a, b any, depth int) bool {
	r.step(0)
	if scalar(a) || scalar(b) {
		return same(a, b)
	}
	if depth > maxDepth {
		r.fail("a value is nested too deeply")
	}
	r.work(a)
	r.work(b)
	aKeys, aValues, aMap := items(a)
	_, bValues, bMap := items(b)
	if !aMap && !bMap {
		aValues, _ = elements(a)
		bValues, _ = elements(b)
	}
	if aMap != bMap || len(aValues) != len(bValues) {
		return false
	}
	for i := range aValues {
		other := bValues[i]
		if aMap {
			var ok bool
			if other, ok = r.lookup(b, aKeys[i]); !ok {
				return false
			}
		}
		if !r.equal(aValues[i], other, depth+1) {
			return false
		}
	}
	return true
}

// lookup returns the value of a key of a mapping.
func (r *run) lookup(of, key any) (any, bool) {
	if !scalar(key) {
		r.fail("a list or mapping cannot be a key")
	}
	switch of := of.(type) {
	case *object:
		if s, ok := key.(string); ok {
			return of.find(s)
		}
	case *dict:
		r.work(of)
		return of.get(key)
	}
	return nil, false
}

// contains reports whether a value is in a text, a list or the keys of a mapping.
func (r *run) contains(of, v any) bool {
	r.work(of)
	switch of := of.(type) {
	case string:
		s, ok := v.(string)
		if !ok {
			r.fail("only a text can be in a text")
		}
		return strings.Contains(of, s)
	case missing:
		return false
	case *object, *dict:
		_, ok := r.lookup(of, v)
		return ok
	case view:
		return r.contains(of.of, v)
	case list, *array:
		all, _ := elements(of)
		for _, e := range all {
			if r.equal(e, v, 0) {
				return true
			}
		}
		return false
	}
	r.fail("in needs a text, a list or a mapping")
	return false
}

func (x *binary) eval(r *run) any {
	a, b := r.eval(x.a), r.eval(x.b)
	if x.op == "~" {
		as, bs := r.text(a), r.text(b)
		r.made(len(as) + len(bs))
		return as + bs
	}
	for _, v := range []any{a, b} {
		if m, ok := v.(missing); ok {
			panic(failure{missingError(m)})
		}
	}
	if x.op == "+" {
		if sum, ok := r.join(a, b); ok {
			return sum
		}
	}
	ai, af, aWhole, aNumber := asNumber(a)
	bi, bf, bWhole, bNumber := asNumber(b)
	switch {
	case !aNumber || !bNumber:
		r.fail("%s needs numbers", x.op)
	case x.op == "/" || !aWhole || !bWhole:
		return r.floats(x.op, af, bf)
	}
	return r.ints(x.op, ai, bi)
}

// join returns the sum of two texts or two lists.
func (r *run) join(a, b any) (any, bool) {
	as, aText := a.(string)
	bs, bText := b.(string)
	if aText && bText {
		r.made(len(as) + len(bs))
		return as + bs, true
	}
	if aText || bText || scalar(a) || scalar(b) {
		return nil, false
	}
	_, _, aMap := items(a)
	_, _, bMap := items(b)
	if aMap || bMap {
		return nil, false
	}
	x, _ := elements(a)
	y, _ := elements(b)
	r.made(16 * (len(x) + len(y)))
	return append(append(list{}, x...), y...), true
}

// floats calculates as Python does: the remainder has the sign of the divisor.
func (r *run) floats(op string, a, b float64) any {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	}
	if b == 0 {
		r.fail("division by zero")
	}
	if op == "/" {
		return a / b
	}
	rest := math.Mod(a, b)
	div := (a - rest) / b
	if rest != 0 && (b < 0) != (rest < 0) {
		rest += b
		div--
	}
	if op == "%" {
		if rest == 0 {
			return math.Copysign(0, b)
		}
		return rest
	}
	if div == 0 {
		return math.Copysign(0, a/b)
	}
	floor := math.Floor(div)
	if div-floor > 0.5 {
		floor++
	}
	return floor
}

// ints calculates with whole numbers. A result that is too large is an error.
func (r *run) ints(op string, a, b int64) any {
	switch op {
	case "+":
		if sum := a + b; (sum > a) == (b > 0) {
			return sum
		}
	case "-":
		if diff := a - b; (diff < a) == (b > 0) {
			return diff
		}
	case "*":
		if a == 0 || b == 0 {
			return int64(0)
		}
		if p := a * b; p/b == a && (a != math.MinInt64 || b != -1) && (b != math.MinInt64 || a != -1) {
			return p
		}
	default:
		if b == 0 {
			r.fail("division by zero")
		}
		if a == math.MinInt64 && b == -1 {
			break
		}
		div, rest := a/b, a%b
		if rest != 0 && (rest < 0) != (b < 0) {
			div--
			rest += b
		}
		if op == "%" {
			return rest
		}
		return div
	}
	r.fail("a number is too large")
	return nil
}
