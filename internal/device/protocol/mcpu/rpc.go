package mcpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The error codes of JSON-RPC that mean that a method was not tried.
const (
	codeParseError     = -32700
	codeInvalidRequest = -32600
	codeNoMethod       = -32601
	codeBadParams      = -32602
)

// maxID is the largest id that fits an int on every board.
const maxID = 32767

// ids hands out ids for one conversation. An id whose request was given up is
// not used again while its answer may still come.
type ids struct {
	next int
	late []int
}

// lateIDs is how many given-up ids are remembered.
const lateIDs = 64

func (n *ids) take() int {
	for {
		id := n.next
		n.next = id%maxID + 1
		if !slices.Contains(n.late, id) {
			return id
		}
	}
}

// giveUp keeps id out of use until it is answered.
func (n *ids) giveUp(id int) {
	if len(n.late) == lateIDs {
		n.late = slices.Delete(n.late, 0, 1)
	}
	n.late = append(n.late, id)
}

// answered tells whether id had been given up.
func (n *ids) answered(id int) bool {
	i := slices.Index(n.late, id)
	if i < 0 {
		return false
	}
	n.late = slices.Delete(n.late, i, i+1)
	return true
}

// request is one compact line. Parameters that say nothing are left out.
func request(id int, method string, params []byte) []byte {
	b := make([]byte, 0, 64+len(method)+len(params))
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendInt(b, int64(id), 10)
	b = append(b, `,"method":`...)
	b = ferrule.AppendString(b, method)
	if len(params) > len("{}") {
		b = append(b, `,"params":`...)
		b = append(b, params...)
	}
	return append(b, '}')
}

// answer is what a device said to one request.
type answer struct {
	id     int
	result json.RawMessage
	err    *rpcError
}

// mangled tells that the device could not make out a request, and with it not
// the id either.
func (a answer) mangled() bool {
	return a.id == 0 && a.err != nil && (a.err.Code == codeParseError || a.err.Code == codeInvalidRequest)
}

// rpcError is the error of an answer.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) String() string {
	return fmt.Sprintf("%s (%d)", ferrule.Clean(e.Message, 256), e.Code)
}

// tryCost is what a try to read an object costs, beside the bytes that it reads.
const tryCost = 512

// scan finds the answers in a line: usually the line is one. Otherwise noise
// stands before, between or after them, and each place where an object could
// begin is tried, until that has cost about as much as reading the line twice.
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

// objectStart finds the first brace that a quote follows, space aside.
func objectStart(line []byte) int {
	for i := 0; i < len(line); i++ {
		if line[i] == '{' && bytes.HasPrefix(bytes.TrimLeft(line[i+1:], " \t"), []byte{'"'}) {
			return i
		}
	}
	return -1
}

// usualAnswer reads a success as firmware writes it, without taking the whole of
// it apart. Whatever it does not know, parseAnswer does.
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
	if err != nil || !json.Valid(number) || !json.Valid(rest[:at]) { // Atoi takes +7 and 007
		return answer{}, false
	}
	return answer{id: id, result: rest[:at:at]}, true
}

// parseAnswer reads one JSON object as an answer. Whatever else it may be is
// not one.
func parseAnswer(data []byte) (answer, bool) {
	var a struct {
		ID     json.RawMessage `json:"id"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return answer{}, false
	}
	if string(a.Error) == "null" {
		a.Error = nil
	}
	id, err := strconv.Atoi(string(a.ID))
	if err != nil || a.Result == nil && a.Error == nil {
		return answer{}, false
	}
	if a.Error == nil {
		return answer{id: id, result: a.Result}, true
	}
	failure := &rpcError{}
	if err := json.Unmarshal(a.Error, failure); err != nil && failure.Message == "" {
		failure.Message = string(a.Error)
	}
	return answer{id: id, err: failure}, true
}

// reason says in plain words what is wrong with JSON of the wrong shape.
func reason(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	want := "an object"
	switch wrong.Type.Kind() {
	case reflect.String:
		want = "text"
	case reflect.Bool:
		want = "true or false"
	case reflect.Int, reflect.Float64:
		want = "a number"
	case reflect.Slice:
		want = "a list"
	}
	if wrong.Field == "" {
		return fmt.Sprintf("%s came where %s belongs", wrong.Value, want)
	}
	return fmt.Sprintf("%s came where %s belongs: %s", wrong.Value, want, wrong.Field)
}
