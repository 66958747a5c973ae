package registry

import (
	"strconv"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// scan parses a record in the form that nodes mostly write: flat, printable ASCII, no
// spaces. It reports false for any other JSON, which encoding/json then parses. That
// takes several times as long, and a node reads every record of its tenant when it
// starts.
func (r *record) scan(data []byte) bool {
	s := scanner{data}
	if !s.take('{') {
		return false
	}
	for {
		key, ok := s.text()
		if !ok || !s.take(':') || !r.field(string(key), &s) {
			return false
		}
		if !s.take(',') {
			return s.take('}') && len(s.rest) == 0
		}
	}
}

// field parses the value of one field.
func (r *record) field(key string, s *scanner) bool {
	switch key {
	case "address":
		return scanText(s, &r.Address)
	case "local":
		return s.yes(&r.Local)
	case "transport":
		return scanText(s, &r.Transport)
	case "protocol":
		return scanText(s, &r.Protocol)
	case "node":
		return scanText(s, &r.Node)
	case "epoch":
		n, ok := s.number()
		r.Epoch = uint64(n)
		return ok
	case "kind":
		return scanText(s, &r.Kind)
	case "state":
		return s.state(&r.State)
	case "since":
		return s.moment(&r.Since)
	case "reason":
		return scanText(s, &r.Reason)
	case "pending":
		return s.yes(&r.Pending)
	case "sensor":
		return s.yes(&r.Sensor)
	case "model":
		return scanText(s, &r.Model)
	case "version":
		return scanText(s, &r.Version)
	case "title":
		return scanText(s, &r.Title)
	case "restarted":
		return s.moment(&r.Restarted)
	case "changed":
		return s.moment(&r.Changed)
	case "previous":
		return scanText(s, &r.Previous)
	case "accepted":
		return scanText(s, &r.Accepted)
	case "accepted_at":
		return s.moment(&r.AcceptedAt)
	case "offered":
		return scanText(s, &r.Offered)
	case "waiting":
		n, ok := s.number()
		r.Waiting = int(n)
		return ok
	case "voucher":
		return scanText(s, &r.Voucher)
	}
	return false
}

// scanner is the rest of the input.
type scanner struct{ rest []byte }

func (s *scanner) take(c byte) bool {
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// text parses a string of printable ASCII without escapes.
func (s *scanner) text() (text []byte, ok bool) {
	if !s.take('"') {
		return nil, false
	}
	for i, c := range s.rest {
		switch {
		case c == '"':
			text, s.rest = s.rest[:i], s.rest[i+1:]
			return text, true
		case c < ' ' || c > '~' || c == '\\':
			return nil, false
		}
	}
	return nil, false
}

func scanText[S ~string](s *scanner, into *S) bool {
	text, ok := s.text()
	if ok {
		*into = S(text)
	}
	return ok
}

// state parses a state. All records share its constant in memory.
func (s *scanner) state(into *ferrule.State) bool {
	text, _ := s.text()
	switch string(text) {
	case string(ferrule.StateOnline):
		*into = ferrule.StateOnline
	case string(ferrule.StateOffline):
		*into = ferrule.StateOffline
	case string(ferrule.StateReleased):
		*into = ferrule.StateReleased
	default:
		return false
	}
	return true
}

func (s *scanner) number() (n int64, ok bool) {
	length := 0
	for length < len(s.rest) && s.rest[length] >= '0' && s.rest[length] <= '9' {
		length++
	}
	if length > 1 && s.rest[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(s.rest[:length]), 10, 64)
	s.rest = s.rest[length:]
	return n, err == nil
}

func (s *scanner) moment(into *int64) (ok bool) {
	*into, ok = s.number()
	return ok
}

// yes parses true. No record contains false.
func (s *scanner) yes(into *bool) bool {
	const word = "true"
	if len(s.rest) < len(word) || string(s.rest[:len(word)]) != word {
		return false
	}
	s.rest, *into = s.rest[len(word):], true
	return true
}
