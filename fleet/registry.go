package fleet

import (
	"maps"
	"sync"
)

// MemoryRegistry is a Registry in the memory of one node.
type MemoryRegistry struct {
	mu      sync.RWMutex
	records map[string]Record
}

// NewMemoryRegistry makes an empty one.
func NewMemoryRegistry() *MemoryRegistry {
	return &MemoryRegistry{records: make(map[string]Record)}
}

// Get implements Registry.
func (m *MemoryRegistry) Get(id string) (Record, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r, ok := m.records[id]
	return r, ok
}

// Set implements Registry.
func (m *MemoryRegistry) Set(id string, r *Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r == nil {
		delete(m.records, id)
	} else {
		m.records[id] = *r
	}
}

// All implements Registry.
func (m *MemoryRegistry) All(yield func(Record) bool) {
	m.mu.RLock()
	records := maps.Clone(m.records)
	m.mu.RUnlock()
	for _, r := range records {
		if !yield(r) {
			return
		}
	}
}
