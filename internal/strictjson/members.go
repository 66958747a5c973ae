package strictjson

import "iter"

// Members returns the members of a JSON object that Check has accepted: their names as they
// are in the text, without quotes, and their values. It is empty for any other value.
func Members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		i := space(object, 0)
		if i >= len(object) || object[i] != '{' {
			return
		}
		for {
			i = space(object, i+1)
			if i >= len(object) || object[i] != '"' {
				return
			}
			end := stringEnd(object, i)
			name := object[i+1 : end]
			i = space(object, end+1)    // the colon
			start := space(object, i+1) // the value
			i = valueEnd(object, start)
			if !yield(name, object[start:i]) {
				return
			}
			i = space(object, i) // a comma, or the end
			if i >= len(object) || object[i] != ',' {
				return
			}
		}
	}
}

// space returns the index of the first byte from i on that is not white space.
func space(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || data[i] == '\r') {
		i++
	}
	return i
}

// valueEnd returns the index after the value at start.
func valueEnd(data []byte, start int) int {
	depth := 0
	for i := start; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = stringEnd(data, i)
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(data)
}
