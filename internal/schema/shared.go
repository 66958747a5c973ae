package schema

import (
	"crypto/sha256"
	"runtime"
	"sync"
	"weak"
)

// shared is the schemas that are in use, by the text that they were compiled of. A
// compiled one takes a hundred times as much memory as its text, and firmware of many
// versions has the same tools.
type shared struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]weak.Pointer[Schema]
}

// Those of arguments and of answers are compiled differently.
var sharedArguments, sharedAnswers shared

// of returns the schema of a text, compiled now unless one is in use.
func (s *shared) of(raw []byte, compile func() (*Schema, error)) (*Schema, error) {
	key := sha256.Sum256(raw)
	if compiled := s.get(key); compiled != nil {
		return compiled, nil
	}
	compiled, err := compile()
	if err != nil {
		return compiled, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.known[key].Value(); other != nil {
		return other, nil // of whoever was quicker
	}
	if s.known == nil {
		s.known = make(map[[sha256.Size]byte]weak.Pointer[Schema])
	}
	s.known[key] = weak.Make(compiled)
	runtime.AddCleanup(compiled, s.forget, key)
	return compiled, nil
}

func (s *shared) get(key [sha256.Size]byte) *Schema {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[key].Value()
}

// forget drops a schema that nobody uses any more.
func (s *shared) forget(key [sha256.Size]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[key].Value() == nil { // it may have been compiled anew
		delete(s.known, key)
	}
}
