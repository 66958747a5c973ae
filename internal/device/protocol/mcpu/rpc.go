package mcpu

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// maxID is the largest id that fits an int on every board.
const maxID = 32767

// request returns one compact line. Empty params are left out.
func request(id int, method string, params []byte) []byte {
	if len(params) <= len("{}") {
		params = nil
	}
	return jsonrpc.AppendRequest(make([]byte, 0, 64+len(method)+len(params)), id, method, params)
}

// answer is a board's answer to one request. It is empty if the board sent neither a
// result nor an error, for example because a tool's handler wrote nothing.
type answer struct {
	id     int
	result json.RawMessage
	err    *jsonrpc.Error
}

func (a answer) empty() bool { return a.result == nil && a.err == nil }

// mangled reports whether the board could not parse a request, and so does not know
// its id.
func (a answer) mangled() bool {
	return a.id == 0 && a.err != nil && (a.err.Code == jsonrpc.CodeParseError || a.err.Code == jsonrpc.CodeInvalidRequest)
}

// tryCost is the fixed cost of trying to parse an object, in bytes read.
const tryCost = 512

// scan returns the answers in a line. Usually the line is one answer. Otherwise there
// is noise around the answers, and scan tries each place where an object could begin.
// It stops when that has cost about as much as reading the line twice.
func scan(line []byte) []answer {
	if !bytes.Contains(line, []byte(`"id"`)) {
		return nil // most noise
	}
	if a, ok := parseAnswer(line); ok {
		return []answer{a}
	}
	var found []answer
	for budget := 2*len(line) + 16*tryCost; budget > 0; budget -= tryCost {
		start := objectStart(line)
		if start < 0 {
			break
		}
		line = line[start:]
		dec := json.NewDecoder(bytes.NewReader(line))
		var object json.RawMessage
		if err := dec.Decode(&object); err != nil {
			read := len(line)
			if syntax, ok := err.(*json.SyntaxError); ok {
				read = int(syntax.Offset)
			}
			budget -= read
			line = line[1:]
			continue
		}
		if a, ok := parseAnswer(object); ok {
			found = append(found, a)
		}
		budget -= len(object)
		line = line[len(object):]
	}
	return found
}

// objectStart returns the index of the first brace that is followed by a quote,
// ignoring spaces; -1 if there is none.
func objectStart(line []byte) int {
	for i := 0; i < len(line); i++ {
		if line[i] == '{' && bytes.HasPrefix(bytes.TrimLeft(line[i+1:], " \t"), []byte{'"'}) {
			return i
		}
	}
	return -1
}

// usualAnswer parses a success as firmware writes it, without decoding all of it. For
// any other line it returns false, and parseAnswer decides.
func usualAnswer(line []byte) (answer, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"result":`))
	if !ok {
		return answer{}, false
	}
	const tail = `,"jsonrpc":"2.0","id":`
	at := bytes.LastIndex(rest, []byte(tail))
	if at < 0 || rest[len(rest)-1] != '}' {
		return answer{}, false
	}
	number := rest[at+len(tail) : len(rest)-1]
	id, err := strconv.Atoi(string(number))
	if err != nil || !json.Valid(number) || strictjson.Check(rest[:at]) != nil { // Atoi accepts +7 and 007
		return answer{}, false
	}
	return answer{id: id, result: rest[:at:at]}, true
}

// parseAnswer parses one JSON object. A method in it is ignored, if there is a result
// or an error.
func parseAnswer(data []byte) (answer, bool) {
	m, ok := jsonrpc.Decode(data)
	if !ok || m.Result == nil && m.Error == nil && (m.Method != "" || !hasVersion(data)) {
		return answer{}, false // noise, or the echo of a request
	}
	id, ok := m.IntID(strconv.IntSize)
	return answer{id: id, result: m.Result, err: m.Error}, ok
}

// hasVersion reports whether a JSON object says that it is JSON-RPC.
func hasVersion(data []byte) bool {
	var m struct {
		Version string `json:"jsonrpc"`
	}
	return json.Unmarshal(data, &m) == nil && m.Version == "2.0"
}
