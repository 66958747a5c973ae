package schema

import (
	"crypto/sha256"
	"runtime"
	"sync"
	"weak"
)

// cache holds the schemas in use by the hash of their text. A compiled schema takes
// a hundred times as much memory as its text, and many firmware versions have the
// same tools.
type cache struct {
	mu      sync.Mutex
	schemas map[[sha256.Size]byte]weak.Pointer[Schema]
}

// Schemas of arguments and of answers are compiled differently.
var inputs, outputs cache

// get returns the schema of a text. It compiles it unless one is in use.
func (c *cache) get(raw []byte, compile func() (*Schema, error)) (*Schema, error) {
	key := sha256.Sum256(raw)
	if compiled := c.lookup(key); compiled != nil {
		return compiled, nil
	}
	compiled, err := compile()
	if err != nil {
		return compiled, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.schemas[key].Value(); other != nil {
		return other, nil // another goroutine was faster
	}
	if c.schemas == nil {
		c.schemas = make(map[[sha256.Size]byte]weak.Pointer[Schema])
	}
	c.schemas[key] = weak.Make(compiled)
	runtime.AddCleanup(compiled, c.drop, key)
	return compiled, nil
}

func (c *cache) lookup(key [sha256.Size]byte) *Schema {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.schemas[key].Value()
}

// drop removes the entry of a schema that is garbage, unless there is a new one.
func (c *cache) drop(key [sha256.Size]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.schemas[key].Value() == nil {
		delete(c.schemas, key)
	}
}
