package setup

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// jsonc is JSON with comments and trailing commas, which some programs allow.
type jsonc struct{}

const blanks = " \t\r\n"

func (jsonc) decode(doc []byte) (map[string]any, error) {
	if _, err := parseJSON(doc); err != nil {
		return nil, err
	}
	plain, err := hujson.Standardize(slices.Clone(doc))
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(plain))
	dec.UseNumber()
	var all map[string]any
	err = dec.Decode(&all)
	return all, err
}

func (j jsonc) set(doc []byte, path []string, value object) ([]byte, error) {
	return setJSON(doc, path, value.json())
}

func (j jsonc) update(doc []byte, path []string, m member) ([]byte, error) {
	return setJSON(doc, append(slices.Clone(path), m.key), encode(m.value))
}

// remove removes a member. It also removes the enclosing object if that is empty now and
// looks like set created it.
func (j jsonc) remove(doc []byte, path []string) ([]byte, error) {
	before := doc
	var value []byte
	for {
		root, err := parseJSON(doc)
		if err != nil {
			return nil, err
		}
		parent, rest := descend(&root, path)
		if len(rest) != 1 || find(parent, rest[0]) < 0 {
			break
		}
		i := find(parent, rest[0])
		if value, err = compact(parent.Value.(*hujson.Object).Members[i].Value, doc); err != nil {
			return nil, err
		}
		doc = cut(doc, parent, i)
	}
	root, err := parseJSON(doc)
	if err != nil {
		return nil, err
	}
	if i := find(&root, path[0]); i >= 0 && len(root.Value.(*hujson.Object).Members) > 1 {
		bare := cut(doc, &root, i)
		if again, err := setJSON(bare, path, value); err == nil && bytes.Equal(again, before) {
			return bare, nil
		}
	}
	return doc, nil
}

// parseJSON parses a document, which must be an object.
func parseJSON(doc []byte) (hujson.Value, error) {
	root, err := hujson.Parse(doc)
	if err != nil {
		return root, errors.New(strings.TrimPrefix(err.Error(), "hujson: "))
	}
	if _, ok := root.Value.(*hujson.Object); !ok {
		return root, errors.New("must be a JSON object, { ... }")
	}
	return root, nil
}

// compact returns a value in one line, without comments.
func compact(v hujson.Value, doc []byte) ([]byte, error) {
	plain, err := hujson.Standardize(slices.Clone(doc[v.StartOffset:v.EndOffset]))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = json.Compact(&b, plain)
	return b.Bytes(), err
}

// find returns the last member with that name: programs use the last one.
func find(object *hujson.Value, name string) int {
	members := object.Value.(*hujson.Object).Members
	for i := len(members) - 1; i >= 0; i-- {
		if members[i].Name.Value.(hujson.Literal).String() == name {
			return i
		}
	}
	return -1
}

// descend follows a path, except for its last key, as far as objects exist.
func descend(v *hujson.Value, path []string) (parent *hujson.Value, rest []string) {
	for len(path) > 1 {
		i := find(v, path[0])
		if i < 0 {
			break
		}
		child := &v.Value.(*hujson.Object).Members[i].Value
		if _, ok := child.Value.(*hujson.Object); !ok {
			break
		}
		v, path = child, path[1:]
	}
	return v, path
}

// setJSON sets the value at path. The value is JSON in one line.
func setJSON(doc []byte, path []string, value []byte) ([]byte, error) {
	if isBlank(doc) {
		doc = []byte("{}\n")
	}
	root, err := parseJSON(doc)
	if err != nil {
		return nil, err
	}
	parent, rest := descend(&root, path)
	for _, key := range slices.Backward(rest[1:]) {
		value = slices.Concat([]byte("{"), encode(key), []byte(":"), value, []byte("}"))
	}
	if i := find(parent, rest[0]); i >= 0 {
		m := parent.Value.(*hujson.Object).Members[i]
		text := value
		if bytes.ContainsRune(doc[parent.StartOffset:m.Name.StartOffset], '\n') {
			text = indent(doc, &root, value, lineIndent(doc, m.Name.StartOffset))
		}
		return slices.Concat(doc[:m.Value.StartOffset], text, doc[m.Value.EndOffset:]), nil
	}
	return insert(doc, &root, parent, rest[0], value), nil
}

// insert adds a member to the end of an object, formatted like the members before it.
func insert(doc []byte, root, parent *hujson.Value, key string, value []byte) []byte {
	object := parent.Value.(*hujson.Object)
	if len(object.Members) == 0 {
		return insertFirst(doc, root, parent, key, value)
	}
	last := object.Members[len(object.Members)-1]
	lead := lead(last.Name.BeforeExtra)
	comma := last.Value.AfterExtra != nil // set if there is a trailing comma
	at := last.Value.EndOffset
	if comma {
		at += len(last.Value.AfterExtra) + 1
	}
	var text []byte
	if strings.Contains(lead, "\n") {
		at += onLine(object.AfterExtra)
		text = indent(doc, root, value, strings.TrimLeft(lead, "\r\n"))
		text = slices.Concat([]byte(lead), encode(key), []byte(": "), text)
	} else {
		text = slices.Concat([]byte(lead), encode(key), []byte(colon(root)), value)
	}
	if comma {
		return slices.Concat(doc[:at], text, []byte(","), doc[at:])
	}
	return slices.Concat(doc[:last.Value.EndOffset], []byte(","), doc[last.Value.EndOffset:at], text, doc[at:])
}

// insertFirst adds a member to an empty object.
func insertFirst(doc []byte, root, parent *hujson.Value, key string, value []byte) []byte {
	inside := parent.Value.(*hujson.Object).AfterExtra
	comments := bytes.TrimRight(inside, blanks)
	at, end := parent.StartOffset+1+len(comments), parent.EndOffset-1
	members := root.Value.(*hujson.Object).Members
	if len(members) > 0 && len(comments) == 0 && !strings.Contains(lead(members[0].Name.BeforeExtra), "\n") {
		return slices.Concat(doc[:at], encode(key), []byte(colon(root)), value, doc[end:])
	}
	nl, outer := newline(doc), lineIndent(doc, parent.StartOffset)
	inner := outer + unit(root)
	text := slices.Concat([]byte(nl+inner), encode(key), []byte(": "), indent(doc, root, value, inner))
	if after := doc[at:end]; bytes.ContainsRune(after, '\n') {
		return slices.Concat(doc[:at], text, after, doc[end:])
	}
	return slices.Concat(doc[:at], text, []byte(nl+outer), doc[end:])
}

// cut removes a member with the space before it and its comma. Comments stay.
func cut(doc []byte, parent *hujson.Value, i int) []byte {
	object := parent.Value.(*hujson.Object)
	m := object.Members[i]
	comments := bytes.TrimRight(m.Name.BeforeExtra, blanks)
	start := m.Name.StartOffset - (len(m.Name.BeforeExtra) - len(comments))
	end, remark := m.Value.EndOffset, []byte(nil)
	comma := i < len(object.Members)-1 || m.Value.AfterExtra != nil
	if comma {
		end += len(m.Value.AfterExtra) + 1
		if !isBlank(m.Value.AfterExtra) {
			remark = m.Value.AfterExtra
		}
	}
	if len(object.Members) == 1 && len(comments) == 0 && remark == nil && isBlank(object.AfterExtra) {
		return slices.Concat(doc[:parent.StartOffset+1], doc[parent.EndOffset-1:])
	}
	if after := bytes.TrimLeft(doc[end:], " \t"); openLine(comments) && (remark != nil || after[0] != '\r' && after[0] != '\n') {
		start += bytes.IndexByte(doc[start:], '\n') + 1 // a comment before it needs its line end
	}
	if comma || i == 0 {
		return slices.Concat(doc[:start], remark, doc[end:])
	}
	before := object.Members[i-1].Value
	at := before.EndOffset + len(before.AfterExtra)
	return slices.Concat(doc[:at], doc[at+1:start], doc[end:])
}

// lead returns the whitespace before a name, starting at its line.
func lead(before hujson.Extra) string {
	space := string(before[len(bytes.TrimRight(before, blanks)):])
	if i := strings.LastIndexByte(space, '\n'); i > 0 && space[i-1] == '\r' {
		return space[i-1:]
	} else if i >= 0 {
		return space[i:]
	}
	return space
}

// onLine returns the length of the comments after a member on the same line.
func onLine(after hujson.Extra) int {
	end := 0
	for {
		rest := bytes.TrimLeft(after[end:], " \t")
		start := len(after) - len(rest)
		switch {
		case bytes.HasPrefix(rest, []byte("//")):
			line, _, _ := bytes.Cut(rest, []byte("\n"))
			return start + len(bytes.TrimRight(line, "\r"))
		case bytes.HasPrefix(rest, []byte("/*")):
			size := bytes.Index(rest, []byte("*/")) + 2
			if bytes.ContainsRune(rest[:size], '\n') {
				return end
			}
			end = start + size
		default:
			return end
		}
	}
}

// openLine reports whether the last comment is a // comment without a line end.
func openLine(comments []byte) bool {
	for {
		i := bytes.IndexByte(comments, '/')
		if i < 0 {
			return false
		}
		comments = comments[i:]
		end := "*/"
		if bytes.HasPrefix(comments, []byte("//")) {
			end = "\n"
		}
		_, rest, found := bytes.Cut(comments[2:], []byte(end))
		if !found {
			return true
		}
		comments = rest
	}
}

// indent formats JSON over several lines; outer is the indent of all but the first.
func indent(doc []byte, root *hujson.Value, value []byte, outer string) []byte {
	var b bytes.Buffer
	if err := json.Indent(&b, value, outer, unit(root)); err != nil {
		panic(err) // the input is our own
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("\n"), []byte(newline(doc)))
}

// unit returns the indentation unit of the document.
func unit(root *hujson.Value) string {
	members := root.Value.(*hujson.Object).Members
	if len(members) > 0 {
		if text := strings.TrimLeft(lead(members[0].Name.BeforeExtra), "\r\n"); text != "" {
			return text
		}
	}
	return "  "
}

// colon returns the separator after names in a one-line document.
func colon(root *hujson.Value) string {
	if string(root.Value.(*hujson.Object).Members[0].Value.BeforeExtra) == "" {
		return ":"
	}
	return ": "
}

// lineIndent returns the indentation of the line at an offset.
func lineIndent(doc []byte, at int) string {
	line := doc[bytes.LastIndexByte(doc[:at], '\n')+1 : at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}
