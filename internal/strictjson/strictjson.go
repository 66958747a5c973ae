// Package strictjson checks JSON from peers that are not trusted. Decoders differ in
// which of two members with the same name they use: what one program checks, the next
// one may not see. So a text with such members is refused as a whole.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrInvalid is the error of Check for a text that is not JSON.
var ErrInvalid = errors.New("not valid JSON")

// DuplicateError is the error of Check for an object that has two members with the same
// name.
type DuplicateError struct {
	Name string
	// Depth is that of the object; the outermost one has 1.
	Depth int
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("duplicate member %.*q", maxShown, e.Name)
}

// maxShown is how many bytes of a name an error shows.
const maxShown = 64

// fewNames is how many names of an object are compared one by one. An object with more
// gets a map, so that the time stays in proportion to the size of the text.
const fewNames = 16

// Check returns an error unless data is one JSON value in which every member of every
// object has a name of its own. Names are compared as they are decoded.
func Check(data []byte) error {
	if !json.Valid(data) {
		return ErrInvalid
	}
	var open []container
	var names [][]byte // of all open objects
	for i := 0; i < len(data); i++ {
		switch c := data[i]; c {
		case '{', '[':
			open = append(open, container{object: c == '{', named: c == '{', first: len(names)})
		case '}', ']':
			names = names[:open[len(open)-1].first]
			open = open[:len(open)-1]
		case ',':
			top := &open[len(open)-1]
			top.named = top.object
		case '"':
			end := stringEnd(data, i)
			if len(open) > 0 && open[len(open)-1].named {
				top := &open[len(open)-1]
				top.named = false
				name := decoded(data[i : end+1])
				if top.has(names, name) {
					return &DuplicateError{string(name), len(open)}
				}
				names = append(names, name)
				top.add(names)
			}
			i = end
		}
	}
	return nil
}

// container is an open object or array.
type container struct {
	object bool
	named  bool                // the next string is the name of a member
	first  int                 // index of its first name
	many   map[string]struct{} // its names; nil while there are few
}

// has reports whether an object has a member.
func (c *container) has(names [][]byte, name []byte) bool {
	if c.many != nil {
		_, found := c.many[string(name)]
		return found
	}
	for _, other := range names[c.first:] {
		if bytes.Equal(other, name) {
			return true
		}
	}
	return false
}

// add adds the last name to an object.
func (c *container) add(names [][]byte) {
	switch own := names[c.first:]; {
	case c.many != nil:
		c.many[string(own[len(own)-1])] = struct{}{}
	case len(own) > fewNames:
		c.many = make(map[string]struct{}, 2*len(own))
		for _, name := range own {
			c.many[string(name)] = struct{}{}
		}
	}
}

// stringEnd returns the index of the quote that ends the string at start.
func stringEnd(data []byte, start int) int {
	for i := start + 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(data) - 1 // not in valid JSON
}

// decoded returns the text of a quoted string.
func decoded(quoted []byte) []byte {
	plain := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(plain, '\\') < 0 && utf8.Valid(plain) {
		return plain
	}
	var text string
	if json.Unmarshal(quoted, &text) != nil {
		return plain // not in valid JSON
	}
	return []byte(text)
}
