package template

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A payload may be larger than a value that a template makes: some publishers put their
// whole configuration in one message, and templates read one key of it. Commas bound the
// number of members.
const (
	maxPayload = 1 << 20
	maxCommas  = 1 << 14
)

// document is a payload that is decoded when a template asks for it.
type document struct {
	text    string
	decoded bool
	value   any
}

// get returns the value of the document, or a missing value if it is not JSON.
func (d *document) get() any {
	if !d.decoded {
		d.decoded = true
		d.value = decode(d.text)
	}
	return d.value
}

// decode returns the value of a JSON text, or a missing value. Objects and lists are
// decoded one level at a time, when they are used, so a large payload costs little.
func decode(text string) any {
	if len(text) > maxPayload || strings.Count(text, ",") > maxCommas || !utf8.ValidString(text) || !json.Valid([]byte(text)) {
		return missing("value_json")
	}
	return resolve(text[space(text, 0):])
}

// object is a JSON object in the order of its text. Names are unique: as in Python, the last
// value of a name counts, in the place of the first.
type object struct {
	members []member
	index   map[string]int
}

// array is a JSON list.
type array struct{ members []member }

// member is a member of an object or an element of a list. The value is decoded from raw
// when it is read first.
type member struct {
	name, raw string
	value     any
}

func (m *member) get() any {
	if m.raw != "" {
		m.value, m.raw = resolve(m.raw), ""
	}
	return m.value
}

// indexed is the number of members from which on an object is searched by hash.
const indexed = 24

func (o *object) find(name string) (any, bool) {
	if o.index != nil {
		i, ok := o.index[name]
		if !ok {
			return nil, false
		}
		return o.members[i].get(), true
	}
	for i := range o.members {
		if o.members[i].name == name {
			return o.members[i].get(), true
		}
	}
	return nil, false
}

func (o *object) add(m member) {
	if o.index == nil && len(o.members) >= indexed {
		o.index = make(map[string]int, 2*indexed)
		for i := range o.members {
			o.index[o.members[i].name] = i
		}
	}
	at, known := -1, false
	if o.index != nil {
		at, known = o.index[m.name]
	} else {
		for i := range o.members {
			if o.members[i].name == m.name {
				at, known = i, true
			}
		}
	}
	if known {
		o.members[at] = m
		return
	}
	if o.index != nil {
		o.index[m.name] = len(o.members)
	}
	o.members = append(o.members, m)
}

// resolve decodes one value at the start of valid JSON.
func resolve(raw string) any {
	switch raw[0] {
	case '{':
		o := &object{members: make([]member, 0, min(4+len(raw)/32, indexed))}
		for at := space(raw, 1); raw[at] != '}'; {
			end := valueEnd(raw, at)
			name := unquote(raw[at:end])
			at = space(raw, space(raw, end)+1)
			end = valueEnd(raw, at)
			o.add(member{name: name, raw: raw[at:end]})
			at = next(raw, end)
		}
		return o
	case '[':
		a := &array{}
		for at := space(raw, 1); raw[at] != ']'; {
			end := valueEnd(raw, at)
			a.members = append(a.members, member{raw: raw[at:end]})
			at = next(raw, end)
		}
		return a
	case '"':
		return unquote(raw[:valueEnd(raw, 0)])
	case 't':
		return true
	case 'f':
		return false
	case 'n':
		return nil
	default:
		return parseNumber(raw[:valueEnd(raw, 0)])
	}
}

// parseNumber returns the value of a number. A whole number that no int64 holds keeps its
// digits: it can be printed, but not calculated with.
func parseNumber(text string) any {
	if strings.ContainsAny(text, ".eE") {
		f, _ := strconv.ParseFloat(text, 64) // An overflow is infinite, as in Python.
		return f
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i
	}
	return bigInt(text)
}

// space returns the place of the first byte from at on that is not white space.
func space(s string, at int) int {
	for at < len(s) && (s[at] == ' ' || s[at] == '\n' || s[at] == '\t' || s[at] == '\r') {
		at++
	}
	return at
}

// next returns the place after the comma that follows a member, or that of the closing
// bracket.
func next(s string, at int) int {
	if at = space(s, at); s[at] == ',' {
		return space(s, at+1)
	}
	return at
}

// valueEnd returns the end of the value that starts at a place of valid JSON.
func valueEnd(s string, at int) int {
	depth := 0
	for at < len(s) {
		switch s[at] {
		case '"':
			for at++; s[at] != '"'; at++ {
				if s[at] == '\\' {
					at++
				}
			}
			at++
		case '{', '[':
			depth++
			at++
		case '}', ']':
			depth--
			at++
		case ',', ':', ' ', '\n', '\t', '\r':
			at++
			continue
		default:
			for at < len(s) && !strings.ContainsRune(",:]} \n\t\r", rune(s[at])) {
				at++
			}
		}
		if depth == 0 {
			return at
		}
	}
	return at
}

// unquote returns the text of a JSON string. The string shares the memory of the payload
// unless it has escapes.
func unquote(quoted string) string {
	if !strings.Contains(quoted, `\`) {
		return quoted[1 : len(quoted)-1]
	}
	var s string
	if json.Unmarshal([]byte(quoted), &s) != nil {
		return ""
	}
	return s
}
