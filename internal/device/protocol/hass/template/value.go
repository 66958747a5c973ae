package template

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Values are nil, bool, int64, float64, bigInt, string, missing, *object, *array, list,
// *dict and view.
type (
	// bigInt is the digits of a whole number that is too large for an int64.
	bigInt string
	// missing is what Jinja calls undefined: the name of a variable or key that is not
	// there.
	missing string
	// list is a list that a template made.
	list []any
	// dict is a mapping that a template made, in the order of its text.
	dict struct{ keys, values []any }
	// view is the keys of a mapping.
	view struct{ of any }
)

// normal returns the value for a variable that the caller gave.
func normal(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, int64, float64, string, missing, *object, *array, list, *dict:
		return v, nil
	case *document:
		return v.get(), nil
	case int:
		return int64(v), nil
	case json.Number:
		return parseNumber(string(v)), nil
	case []any:
		made := make(list, len(v))
		for i := range v {
			var err error
			if made[i], err = normal(v[i]); err != nil {
				return nil, err
			}
		}
		return made, nil
	case map[string]any:
		made := &dict{}
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			value, err := normal(v[name])
			if err != nil {
				return nil, err
			}
			made.keys, made.values = append(made.keys, name), append(made.values, value)
		}
		return made, nil
	default:
		return nil, errorf("a variable has an unknown type")
	}
}

// get returns the value of a key.
func (d *dict) get(key any) (any, bool) {
	for i := range d.keys {
		if same(d.keys[i], key) {
			return d.values[i], true
		}
	}
	return nil, false
}

// put sets the value of a key.
func (d *dict) put(key, value any) {
	for i := range d.keys {
		if same(d.keys[i], key) {
			d.values[i] = value
			return
		}
	}
	d.keys, d.values = append(d.keys, key), append(d.values, value)
}

// items returns the keys and values of a mapping.
func items(v any) (keys, values []any, ok bool) {
	switch v := v.(type) {
	case *dict:
		return v.keys, v.values, true
	case *object:
		for i := range v.members {
			keys, values = append(keys, v.members[i].name), append(values, v.members[i].get())
		}
		return keys, values, true
	}
	return nil, nil, false
}

// elements returns the elements of a list, the keys of a mapping or the characters of a
// string, which is what Python iterates over.
func elements(v any) ([]any, bool) {
	switch v := v.(type) {
	case list:
		return v, true
	case *array:
		made := make([]any, len(v.members))
		for i := range v.members {
			made[i] = v.members[i].get()
		}
		return made, true
	case string:
		var made []any
		for _, r := range v {
			made = append(made, string(r))
		}
		return made, true
	case missing:
		return nil, true
	case view:
		return elements(v.of)
	}
	keys, _, ok := items(v)
	return keys, ok
}

// size returns the length of a value as Python's len does.
func size(v any) (int, bool) {
	switch v := v.(type) {
	case string:
		n := 0
		for range v {
			n++
		}
		return n, true
	case list:
		return len(v), true
	case *array:
		return len(v.members), true
	case *dict:
		return len(v.keys), true
	case *object:
		return len(v.members), true
	case missing:
		return 0, true
	case view:
		return size(v.of)
	}
	return 0, false
}

// truth returns the truth of a value in Python.
func truth(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case bigInt:
		return true
	}
	if s, ok := v.(string); ok {
		return s != ""
	}
	n, _ := size(v)
	return n > 0
}

// asNumber returns a number as an int64 or a float64. Booleans are numbers in Python.
func asNumber(v any) (i int64, f float64, whole, ok bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, 1, true, true
		}
		return 0, 0, true, true
	case int64:
		return v, float64(v), true, true
	case float64:
		return 0, v, false, true
	}
	return 0, 0, false, false
}

// scalar reports whether a value is neither a list nor a mapping.
func scalar(v any) bool {
	switch v.(type) {
	case list, *array, *dict, *object, view:
		return false
	}
	return true
}

// same reports whether two values that are neither lists nor mappings are equal in Python.
func same(a, b any) bool {
	ai, af, aWhole, aNumber := asNumber(a)
	bi, bf, bWhole, bNumber := asNumber(b)
	switch {
	case aWhole && bWhole:
		return ai == bi
	case aNumber && bNumber:
		return af == bf
	case isMissing(a) && isMissing(b):
		return true
	case !scalar(a) || !scalar(b):
		return false
	}
	return a == b
}

// formatFloat returns a number as Python's repr does.
func formatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if size := math.Abs(f); size != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// text returns a value as Python's str does.
func text(v any) (string, error) {
	switch v := v.(type) {
	case string:
		if len(v) > maxValue {
			return "", errTooLarge
		}
		return v, nil
	case missing:
		return "", nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case bool:
		if v {
			return "True", nil
		}
		return "False", nil
	}
	p := printer{}
	p.print(v, 0)
	return p.b.String(), p.err
}

// printer writes values as Python's repr does, or as JSON.
type printer struct {
	b     strings.Builder
	style style
	err   error
}

type style int

const (
	python style = iota
	// jinjaJSON is the form of Jinja's tojson: sorted keys, ASCII, no characters that
	// have a meaning in HTML.
	jinjaJSON
	// compactJSON is the form of Home Assistant's to_json.
	compactJSON
)

func (p *printer) print(v any, depth int) {
	switch {
	case p.err != nil:
		return
	case p.b.Len() > maxValue:
		p.err = errTooLarge
		return
	case depth > maxDepth:
		p.err = errorf("a value is nested too deeply")
		return
	}
	switch v := v.(type) {
	case nil:
		p.b.WriteString(p.either("None", "null"))
	case bool:
		if v {
			p.b.WriteString(p.either("True", "true"))
		} else {
			p.b.WriteString(p.either("False", "false"))
		}
	case int64:
		p.b.WriteString(strconv.FormatInt(v, 10))
	case float64:
		p.b.WriteString(formatFloat(v))
	case bigInt:
		p.write(string(v))
	case string:
		p.quote(v)
	case missing:
		if p.style != python {
			p.err = missingError(v)
		}
		p.b.WriteString("Undefined")
	case list, *array:
		p.list(v, depth)
	default:
		p.mapping(v, depth)
	}
	if p.err == nil && p.b.Len() > maxValue {
		p.err = errTooLarge
	}
}

func (p *printer) either(inPython, inJSON string) string {
	if p.style == python {
		return inPython
	}
	return inJSON
}

// write writes a text if it is not too large.
func (p *printer) write(s string) {
	if len(s) > maxValue {
		p.err = errTooLarge
		return
	}
	p.b.WriteString(s)
}

// separator returns what stands between elements, or between a key and its value.
func (p *printer) separator(s string) string {
	if p.style == compactJSON {
		return s
	}
	return s + " "
}

func (p *printer) list(v any, depth int) {
	p.b.WriteByte('[')
	of, _ := elements(v)
	for i, e := range of {
		if p.err != nil {
			return
		}
		if i > 0 {
			p.b.WriteString(p.separator(","))
		}
		p.print(e, depth+1)
	}
	p.b.WriteByte(']')
}

func (p *printer) mapping(v any, depth int) {
	keys, values, ok := items(v)
	if !ok {
		p.err = errorf("a value cannot be printed")
		return
	}
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	if p.style != python {
		for _, key := range keys {
			if _, ok := key.(string); !ok {
				p.err = errorf("a key is not a text")
				return
			}
		}
	}
	if p.style == jinjaJSON {
		slices.SortFunc(order, func(a, b int) int { return strings.Compare(keys[a].(string), keys[b].(string)) })
	}
	p.b.WriteByte('{')
	for n, i := range order {
		if p.err != nil {
			return
		}
		if n > 0 {
			p.b.WriteString(p.separator(","))
		}
		p.print(keys[i], depth+1)
		p.b.WriteString(p.separator(":"))
		p.print(values[i], depth+1)
	}
	p.b.WriteByte('}')
}

// quote writes a text in quotes.
func (p *printer) quote(s string) {
	if len(s) > maxValue {
		p.err = errTooLarge
		return
	}
	mark := '\''
	if p.style != python || strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		mark = '"'
	}
	p.b.WriteRune(mark)
	for _, r := range s {
		switch {
		case r == '\\' || r == mark:
			p.b.WriteByte('\\')
			p.b.WriteRune(r)
		case r == '\n':
			p.b.WriteString(`\n`)
		case r == '\r':
			p.b.WriteString(`\r`)
		case r == '\t':
			p.b.WriteString(`\t`)
		case p.plain(r):
			p.b.WriteRune(r)
		default:
			p.escape(r)
		}
	}
	p.b.WriteRune(mark)
}

// plain reports whether a character stands for itself in quotes.
func (p *printer) plain(r rune) bool {
	switch p.style {
	case python:
		return unicode.IsPrint(r)
	case jinjaJSON:
		return r >= ' ' && r < 0x7f && !strings.ContainsRune("<>&'", r)
	default:
		return r >= ' '
	}
}

// escape writes a character as an escape sequence.
func (p *printer) escape(r rune) {
	hex := func(prefix string, digits int, v rune) {
		s := strconv.FormatInt(int64(v), 16)
		p.b.WriteString(prefix + strings.Repeat("0", digits-len(s)) + s)
	}
	switch {
	case p.style != python && r == '\b':
		p.b.WriteString(`\b`)
	case p.style != python && r == '\f':
		p.b.WriteString(`\f`)
	case p.style == python && r < 0x100:
		hex(`\x`, 2, r)
	case r < 0x10000:
		hex(`\u`, 4, r)
	case p.style == python:
		hex(`\U`, 8, r)
	default:
		hex(`\u`, 4, 0xd800+(r-0x10000)>>10)
		hex(`\u`, 4, 0xdc00+(r-0x10000)&0x3ff)
	}
}
