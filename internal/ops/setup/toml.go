package setup

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// tables is TOML with one table per entry, [servers.name].
type tables struct{}

func (tables) decode(doc []byte) (map[string]any, error) {
	var all map[string]any
	err := toml.Unmarshal(doc, &all)
	var where *toml.DecodeError
	if errors.As(err, &where) {
		line, column := where.Position()
		return nil, fmt.Errorf("line %d, column %d: %s", line, column, strings.TrimPrefix(where.Error(), "toml: "))
	}
	if all == nil {
		all = map[string]any{}
	}
	return all, err
}

// set appends the table, which is valid at the end of any document. A document without a
// final newline stays without one.
func (t tables) set(doc []byte, path []string, value object) ([]byte, error) {
	doc, err := t.remove(doc, path)
	if err != nil {
		return nil, err
	}
	nl := newline(doc)
	text := "[" + strings.Join(path, ".") + "]"
	for _, m := range value {
		text += nl + m.toml()
	}
	switch {
	case len(doc) == 0:
		return []byte(text + nl), nil
	case bytes.HasSuffix(doc, []byte("\n")):
		return slices.Concat(doc, []byte(nl+text+nl)), nil
	}
	return slices.Concat(doc, []byte(nl+nl+text)), nil
}

func (t tables) update(doc []byte, path []string, m member) ([]byte, error) {
	lines, err := statements(doc)
	if err != nil {
		return nil, err
	}
	for i, header := range lines {
		if !header.table || !slices.Equal(header.key, path) {
			continue
		}
		for _, l := range lines[i+1:] {
			if l.table {
				break
			}
			if slices.Equal(l.key, []string{m.key}) {
				return slices.Concat(doc[:l.start], []byte(m.toml()), doc[l.end:]), nil
			}
		}
		nl := newline(doc)
		return slices.Concat(doc[:header.lineEnd], []byte(nl+m.toml()), doc[header.lineEnd:]), nil
	}
	return nil, notATable(path)
}

// remove removes the tables at path and below it, with the empty line before them.
func (t tables) remove(doc []byte, path []string) ([]byte, error) {
	lines, err := statements(doc)
	if err != nil {
		return nil, err
	}
	kept, at := []byte{}, 0
	for i := 0; i < len(lines); {
		if !lines[i].table || !hasPrefix(lines[i].key, path) {
			i++
			continue
		}
		first := i
		for ours := true; ours; ours = i < len(lines) && (!lines[i].table || hasPrefix(lines[i].key, path)) {
			i++
		}
		start := lines[first].start
		kept, at = append(kept, doc[at:start]...), lines[i-1].lineEnd
		kept = trimEnd(kept)
		switch rest := doc[at:]; {
		case start == 0:
			at = len(doc) - len(trimLine(trimLine(rest)))
		case len(rest) > 0 && len(trimLine(rest)) == 0:
			at = len(doc) // it was the last line
		default:
			kept = trimEnd(kept)
		}
	}
	if at == 0 {
		return doc, nil
	}
	kept = append(kept, doc[at:]...)
	all, err := t.decode(kept)
	if err != nil {
		return nil, err
	}
	if servers, ok := all[path[0]].(map[string]any); ok && servers[path[1]] != nil {
		return nil, notATable(path)
	}
	return kept, nil
}

func notATable(path []string) error {
	name := strings.Join(path, ".")
	return fmt.Errorf("%s is not written as a table [%s]; rewrite it as one, or remove it", name, name)
}

// statement is the header of a table, or a key with its value. It may span lines.
type statement struct {
	table      bool
	key        []string
	start, end int // byte offsets
	lineEnd    int // end of its last line, including a comment
}

func statements(doc []byte) ([]statement, error) {
	p := unstable.Parser{KeepComments: true}
	p.Reset(doc)
	var all []statement
	last := -1 // the statement whose end is not known yet
	ends := func(next int) {
		if last < 0 {
			return
		}
		l := &all[last]
		l.lineEnd = max(l.lineEnd, l.start+len(bytes.TrimRight(doc[l.start:next], blanks)))
		if l.end == 0 {
			l.end = l.lineEnd
		}
		last = -1
	}
	for p.NextExpression() {
		node := p.Expression()
		if node.Kind == unstable.Comment {
			ends(int(node.Raw.Offset))
			continue
		}
		s := statement{table: node.Kind != unstable.KeyValue, start: -1}
		for keys := node.Key(); keys.Next(); {
			key := keys.Node()
			if s.start < 0 {
				s.start = int(key.Raw.Offset)
			}
			s.key = append(s.key, string(key.Data))
		}
		if s.table {
			s.start = bytes.LastIndexByte(doc[:s.start], '\n') + 1
		}
		ends(s.start)
		if comment := node.Next(); comment.Valid() {
			s.lineEnd = int(comment.Raw.Offset + comment.Raw.Length)
			s.end = s.start + len(bytes.TrimRight(doc[s.start:comment.Raw.Offset], blanks))
		}
		all = append(all, s)
		last = len(all) - 1
	}
	ends(len(doc))
	return all, p.Error()
}

func hasPrefix(key, prefix []string) bool {
	return len(key) >= len(prefix) && slices.Equal(key[:len(prefix)], prefix)
}

// trimEnd removes the last line ending; trimLine removes an empty first line.
func trimEnd(b []byte) []byte {
	if line, ok := bytes.CutSuffix(b, []byte("\n")); ok {
		return bytes.TrimSuffix(line, []byte("\r"))
	}
	return b
}

func trimLine(b []byte) []byte {
	if line, ok := bytes.CutPrefix(b, []byte("\r\n")); ok {
		return line
	}
	return bytes.TrimPrefix(b, []byte("\n"))
}

// toml encodes a key with its value: strings and lists are written as in JSON, and maps as
// inline tables.
func (m member) toml() string {
	if values, ok := m.value.(map[string]string); ok {
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(values)) {
			parts = append(parts, string(encode(key))+" = "+string(encode(values[key])))
		}
		return m.key + " = { " + strings.Join(parts, ", ") + " }"
	}
	list, ok := m.value.([]string)
	if !ok {
		return m.key + " = " + string(encode(m.value))
	}
	var parts []string
	for _, text := range list {
		parts = append(parts, string(encode(text)))
	}
	return m.key + " = [" + strings.Join(parts, ", ") + "]"
}
