package template

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// callable is a filter, a test, a method or a function.
type callable struct {
	params []string
	min    int // number of arguments that must be given
	do     func(r *run, of any, args []any) any
}

// absent is an argument that was not given.
type absent struct{}

// given returns an argument, or what stands for it if it was not given.
func given(v, otherwise any) any {
	if _, ok := v.(absent); ok {
		return otherwise
	}
	return v
}

// textOf adapts a function of a text. As in Jinja, filters print other values first.
func textOf(do func(string) string) func(*run, any, []any) any {
	return func(r *run, of any, _ []any) any {
		s := r.text(of)
		r.made(2 * len(s))
		return do(s)
	}
}

var filters = map[string]*callable{
	"default":    {[]string{"default_value", "boolean"}, 0, byDefault},
	"d":          {[]string{"default_value", "boolean"}, 0, byDefault},
	"string":     {nil, 0, func(r *run, of any, _ []any) any { return r.text(of) }},
	"lower":      {nil, 0, textOf(strings.ToLower)},
	"upper":      {nil, 0, textOf(strings.ToUpper)},
	"capitalize": {nil, 0, textOf(capitalize)},
	"trim":       {[]string{"chars"}, 0, strip(strings.Trim, strings.TrimFunc)},
	"truncate":   {[]string{"length", "killwords", "end", "leeway"}, 0, truncate},
	"replace":    {[]string{"old", "new", "count"}, 2, replace},
	"join":       {[]string{"d"}, 0, join},
	"length":     {nil, 0, length},
	"count":      {nil, 0, length},
	"first":      {nil, 0, func(r *run, of any, _ []any) any { return r.end(of, 0) }},
	"last":       {nil, 0, func(r *run, of any, _ []any) any { return r.end(of, -1) }},
	"int":        {[]string{"default", "base"}, 0, toInt},
	"float":      {[]string{"default"}, 0, toFloat},
	"round":      {[]string{"precision", "method", "default"}, 0, round},
	"abs":        {nil, 0, absolute},
	"tojson":     {nil, 0, toJSON(jinjaJSON)},
	"to_json":    {nil, 0, toJSON(compactJSON)},
	"from_json":  {[]string{"default"}, 0, fromJSON},
	"is_defined": {nil, 0, isDefined},
	"iif":        {[]string{"if_true", "if_false", "if_none"}, 0, iif},
}

var functions = map[string]*callable{
	"float": {[]string{"value", "default"}, 1, asFunction(toFloat)},
	"int":   {[]string{"value", "default", "base"}, 1, asFunction(toInt)},
	"iif":   {[]string{"value", "if_true", "if_false", "if_none"}, 1, asFunction(iif)},
	"min":   {[]string{"a", "b", "c", "d"}, 1, extreme(-1)},
	"max":   {[]string{"a", "b", "c", "d"}, 1, extreme(1)},
}

// asFunction makes a function of a filter.
func asFunction(do func(*run, any, []any) any) func(*run, any, []any) any {
	return func(r *run, _ any, args []any) any { return do(r, args[0], args[1:]) }
}

var tests = map[string]*callable{
	"defined":   {nil, 0, kindTest(func(v any) bool { return !isMissing(v) })},
	"undefined": {nil, 0, kindTest(isMissing)},
	"none":      {nil, 0, kindTest(func(v any) bool { return v == nil })},
	"true":      {nil, 0, kindTest(func(v any) bool { return v == true })},
	"false":     {nil, 0, kindTest(func(v any) bool { return v == false })},
	"string":    {nil, 0, kindTest(func(v any) bool { _, ok := v.(string); return ok })},
	"boolean":   {nil, 0, kindTest(func(v any) bool { _, ok := v.(bool); return ok })},
	"integer": {nil, 0, kindTest(func(v any) bool {
		_, small := v.(int64)
		_, big := v.(bigInt)
		return small || big
	})},
	"float": {nil, 0, kindTest(func(v any) bool { _, ok := v.(float64); return ok })},
	"number": {nil, 0, kindTest(func(v any) bool {
		_, _, _, small := asNumber(v)
		_, big := v.(bigInt)
		return small || big
	})},
	"mapping": {nil, 0, kindTest(func(v any) bool { _, _, ok := items(v); return ok })},
	"in":      {[]string{"seq"}, 1, func(r *run, of any, args []any) any { return r.contains(args[0], of) }},
	"eq":      {[]string{"other"}, 1, func(r *run, of any, args []any) any { return r.equal(of, args[0], 0) }},
	"equalto": {[]string{"other"}, 1, func(r *run, of any, args []any) any { return r.equal(of, args[0], 0) }},
}

func kindTest(is func(any) bool) func(*run, any, []any) any {
	return func(_ *run, of any, _ []any) any { return is(of) }
}

func isMissing(v any) bool { _, ok := v.(missing); return ok }

var methods = map[string]*callable{
	"get":        {[]string{"key", "default"}, 1, get},
	"keys":       {nil, 0, keys},
	"lower":      {nil, 0, method(textOf(strings.ToLower))},
	"upper":      {nil, 0, method(textOf(strings.ToUpper))},
	"capitalize": {nil, 0, method(textOf(capitalize))},
	"strip":      {[]string{"chars"}, 0, method(strip(strings.Trim, strings.TrimFunc))},
	"lstrip":     {[]string{"chars"}, 0, method(strip(strings.TrimLeft, strings.TrimLeftFunc))},
	"rstrip":     {[]string{"chars"}, 0, method(strip(strings.TrimRight, strings.TrimRightFunc))},
	"replace":    {[]string{"old", "new", "count"}, 2, method(replace)},
	"split":      {[]string{"sep", "maxsplit"}, 0, method(split)},
	"startswith": {[]string{"prefix"}, 1, method(affix(strings.HasPrefix))},
	"endswith":   {[]string{"suffix"}, 1, method(affix(strings.HasSuffix))},
}

// method makes a method of texts.
func method(do func(*run, any, []any) any) func(*run, any, []any) any {
	return func(r *run, of any, args []any) any {
		if m, ok := of.(missing); ok {
			panic(failure{missingError(m)})
		}
		if _, ok := of.(string); !ok {
			r.fail("a method of texts is called on another value")
		}
		return do(r, of, args)
	}
}

// Names that Python finds as methods before it finds keys: x.items is the method even if
// there is a key of that name.
var (
	mappingMethods = []string{"clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"}
	listMethods    = []string{"append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"}
	textMethods    = []string{
		"capitalize", "casefold", "center", "count", "encode", "endswith", "expandtabs", "find", "format", "format_map", "index",
		"isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace",
		"istitle", "isupper", "join", "ljust", "lower", "lstrip", "maketrans", "partition", "removeprefix", "removesuffix", "replace",
		"rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title",
		"translate", "upper", "zfill",
	}
)

// isMethod reports whether a name is a method of mappings, lists or texts.
func isMethod(name string) bool {
	return slices.Contains(mappingMethods, name) || slices.Contains(listMethods, name) || slices.Contains(textMethods, name)
}

// hasMethod reports whether a name is a method of a value.
func hasMethod(of any, name string) bool {
	switch of.(type) {
	case *object, *dict:
		return slices.Contains(mappingMethods, name)
	case list, *array:
		return slices.Contains(listMethods, name)
	case string:
		return slices.Contains(textMethods, name)
	}
	return false
}

func byDefault(r *run, of any, args []any) any {
	if isMissing(of) || truth(given(args[1], false)) && !truth(of) {
		return given(args[0], "")
	}
	return of
}

func isDefined(r *run, of any, _ []any) any {
	if m, ok := of.(missing); ok {
		panic(failure{missingError(m)})
	}
	return of
}

func iif(r *run, of any, args []any) any {
	switch {
	case of == nil && args[2] != any(absent{}):
		return args[2]
	case truth(of):
		return given(args[0], true)
	}
	return given(args[1], false)
}

func capitalize(s string) string {
	runes := []rune(strings.ToLower(s))
	if len(runes) > 0 {
		runes[0] = unicode.ToTitle(runes[0])
	}
	return string(runes)
}

func strip(chars func(string, string) string, spaces func(string, func(rune) bool) string) func(*run, any, []any) any {
	return func(r *run, of any, args []any) any {
		s := r.text(of)
		cut, ok := given(args[0], nil).(string)
		if !ok {
			return spaces(s, isSpace)
		}
		r.step(len(s) * (1 + len(cut)/8))
		return chars(s, cut)
	}
}

// isSpace reports whether Python takes a character as white space.
func isSpace(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }

// whole returns a whole number that is an argument.
func (r *run) whole(v any) int {
	i, _, whole, _ := asNumber(v)
	if !whole || i > math.MaxInt32 || i < math.MinInt32 {
		r.fail("an argument is not a whole number")
	}
	return int(i)
}

// textArg returns a text that is an argument.
func (r *run) textArg(v any) string {
	s, ok := v.(string)
	if !ok {
		r.fail("an argument is not a text")
	}
	return s
}

func truncate(r *run, of any, args []any) any {
	if _, ok := of.(string); !ok {
		if m, ok := of.(missing); ok && m != "" {
			return ""
		}
		r.fail("truncate needs a text")
	}
	length, end := r.whole(given(args[0], int64(255))), r.textArg(given(args[2], "..."))
	leeway := r.whole(given(args[3], int64(5)))
	runes, tail := []rune(r.text(of)), []rune(end)
	if length < len(tail) || leeway < 0 {
		r.fail("truncate has a wrong length")
	}
	if len(runes) <= length+leeway {
		return of
	}
	r.made(4*length + len(end))
	s := string(runes[:length-len(tail)])
	if !truth(given(args[1], false)) {
		if at := strings.LastIndexByte(s, ' '); at >= 0 {
			s = s[:at]
		}
	}
	return s + end
}

func replace(r *run, of any, args []any) any {
	s, from, to := r.text(of), r.text(args[0]), r.text(args[1])
	n := -1
	if v := given(args[2], nil); v != nil {
		n = r.whole(v)
	}
	found := strings.Count(s, from)
	if n >= 0 {
		found = min(found, n)
	}
	r.made(len(s) + found*(len(to)-len(from)))
	return strings.Replace(s, from, to, n)
}

func join(r *run, of any, args []any) any {
	if s, ok := of.(string); ok {
		r.made(min(16*len(s), maxValue+1))
	}
	all, ok := elements(of)
	if !ok {
		r.fail("join needs a list")
	}
	r.work(of)
	by := r.text(given(args[0], ""))
	var b strings.Builder
	for i, e := range all {
		if i > 0 {
			r.made(len(by))
			b.WriteString(by)
		}
		s := r.text(e)
		r.made(len(s))
		b.WriteString(s)
		if b.Len() > maxValue {
			panic(failure{errTooLarge})
		}
	}
	return b.String()
}

func length(r *run, of any, _ []any) any {
	r.work(of)
	n, ok := size(of)
	if !ok {
		r.fail("length needs a text, a list or a mapping")
	}
	return int64(n)
}

// end returns the first or last element.
func (r *run) end(of any, at int64) any {
	switch of.(type) {
	case *object, *dict, view:
		r.work(of)
		keys, _ := elements(of)
		of = list(keys)
	}
	if _, ok := size(of); !ok {
		r.fail("first and last need a text or a list")
	}
	if v, ok := r.element(of, at); ok {
		return v
	}
	return missing("an element")
}

func keys(r *run, of any, _ []any) any {
	switch of := of.(type) {
	case missing:
		panic(failure{missingError(of)})
	case *object, *dict:
		return view{of}
	}
	r.fail("keys is called on a value that is not a mapping")
	return nil
}

func get(r *run, of any, args []any) any {
	switch of := of.(type) {
	case missing:
		panic(failure{missingError(of)})
	case *object, *dict:
		if v, ok := r.lookup(of, args[0]); ok {
			return v
		}
		return given(args[1], nil)
	}
	r.fail("get is called on a value that is not a mapping")
	return nil
}

func split(r *run, of any, args []any) any {
	s := r.text(of)
	limit := r.whole(given(args[1], int64(-1)))
	var parts []string
	if by := given(args[0], nil); by == nil {
		if limit >= 0 {
			r.fail("split needs a separator with its limit")
		}
		parts = strings.FieldsFunc(s, isSpace)
	} else {
		sep := r.textArg(by)
		if sep == "" {
			r.fail("split has an empty separator")
		}
		if limit++; limit <= 0 {
			limit = -1
		}
		r.made(min(32*strings.Count(s, sep), maxValue+1))
		parts = strings.SplitN(s, sep, limit)
	}
	r.made(min(16*len(parts), maxValue+1))
	made := make(list, len(parts))
	for i := range parts {
		made[i] = parts[i]
	}
	return made
}

func affix(has func(string, string) bool) func(*run, any, []any) any {
	return func(r *run, of any, args []any) any { return has(of.(string), r.textArg(args[0])) }
}

// number reads a number from a text as Python's float does.
func number(s string) (float64, bool) {
	s = trim(s)
	if strings.ContainsAny(s, "xXpP") {
		return 0, false // Python does not read hexadecimal fractions.
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil || math.IsInf(f, 0)
}

// orDefault returns the default of int, float and round for a value that is not a number.
func (r *run) orDefault(filter string, otherwise any) any {
	if otherwise == any(absent{}) {
		r.fail("%s needs a number", filter)
	}
	return otherwise
}

// floatOf returns a value as a fraction.
func (r *run) floatOf(v any) (float64, bool) {
	switch v := v.(type) {
	case missing:
		panic(failure{missingError(v)})
	case string:
		return number(r.text(v))
	case bigInt:
		return number(string(v))
	}
	_, f, _, ok := asNumber(v)
	return f, ok
}

func toFloat(r *run, of any, args []any) any {
	if f, ok := r.floatOf(of); ok {
		return f
	}
	return r.orDefault("float", args[0])
}

func toInt(r *run, of any, args []any) any {
	base := r.whole(given(args[1], int64(10)))
	if base != 10 && base != 16 && base != 2 && base != 8 {
		r.fail("int has an unknown base")
	}
	switch of := of.(type) {
	case bigInt:
		return of
	case string:
		s := strings.TrimPrefix(trim(r.text(of)), "+")
		if base == 16 {
			s = strings.TrimPrefix(strings.ToLower(s), "0x")
		}
		if i, err := strconv.ParseInt(s, base, 64); err == nil {
			return i
		}
	}
	if i, _, whole, _ := asNumber(of); whole {
		return i
	}
	f, ok := r.floatOf(of)
	if fraction, ok := of.(float64); ok && math.IsInf(fraction, 0) {
		r.fail("a number is infinite")
	}
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		return r.orDefault("int", args[0])
	}
	return fromFloat(math.Trunc(f))
}

// fromFloat returns a fraction without decimals as a whole number.
func fromFloat(f float64) any {
	if math.Abs(f) >= 1<<63 {
		return bigInt(strconv.FormatFloat(f, 'f', 0, 64))
	}
	return int64(f)
}

func round(r *run, of any, args []any) any {
	digits := r.whole(given(args[0], int64(0)))
	if digits < 0 || digits > 15 {
		r.fail("round has an unsupported precision")
	}
	f, ok := r.floatOf(of)
	if !ok {
		return r.orDefault("round", args[2])
	}
	how := given(args[1], "common")
	if math.IsInf(f, 0) && (digits == 0 || how != "common") {
		r.fail("a number is infinite")
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		if digits == 0 || how == "ceil" || how == "floor" || how == "half" {
			return r.orDefault("round", args[2])
		}
		return f
	}
	// Adding 0 removes the sign of -0: Python rounds to a whole number in between.
	factor := math.Pow10(digits)
	switch how {
	case "ceil":
		f = (math.Ceil(f*factor) + 0) / factor
	case "floor":
		f = (math.Floor(f*factor) + 0) / factor
	case "half":
		f = (math.RoundToEven(f*2) + 0) / 2
	default:
		// The decimal form is exact, so 2.675 becomes 2.67 as in Python.
		f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
	}
	if digits > 0 {
		return f
	}
	return fromFloat(math.Trunc(f))
}

func absolute(r *run, of any, _ []any) any {
	if m, ok := of.(missing); ok {
		panic(failure{missingError(m)})
	}
	i, f, whole, ok := asNumber(of)
	switch {
	case !ok || i == math.MinInt64:
		r.fail("abs needs a number")
	case whole:
		return max(i, -i)
	}
	return math.Abs(f)
}

// extreme returns the smallest or largest of a list or of the arguments.
func extreme(sign int) func(*run, any, []any) any {
	return func(r *run, _ any, args []any) any {
		args = slices.DeleteFunc(args, func(v any) bool { return v == any(absent{}) })
		if len(args) == 1 {
			r.work(args[0])
			args, _ = elements(args[0])
		}
		if len(args) == 0 {
			r.fail("min and max need values")
		}
		best := args[0]
		for _, v := range args[1:] {
			r.step(0)
			if r.order(v, best) == sign {
				best = v
			}
		}
		return best
	}
}

func toJSON(s style) func(*run, any, []any) any {
	return func(r *run, of any, _ []any) any {
		p := printer{style: s}
		p.print(of, 0)
		if p.err != nil {
			panic(failure{p.err})
		}
		r.made(p.b.Len())
		return p.b.String()
	}
}

func fromJSON(r *run, of any, args []any) any {
	s, ok := of.(string)
	if !ok {
		return r.orDefault("from_json", args[0])
	}
	r.step(len(s))
	v := decode(s)
	if isMissing(v) {
		return r.orDefault("from_json", args[0])
	}
	return v
}
