package tasks

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Memory is a Store in memory. It loses all tasks when the process ends.
type Memory struct {
	mu       sync.Mutex
	revision uint64
	records  map[string]memoryRecord
	watchers map[*memoryWatcher]bool
}

type memoryRecord struct {
	data     []byte
	revision uint64
}

// memoryWatcher has the records that its Watch has not passed on yet.
type memoryWatcher struct {
	queue []memoryRecord
	wake  chan struct{} // holds a value if the queue may have something
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{records: make(map[string]memoryRecord), watchers: make(map[*memoryWatcher]bool)}
}

// Put implements Store.
func (m *Memory) Put(ctx context.Context, t *ferrule.Task, revision uint64) (uint64, error) {
	data, err := json.Marshal(t)
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if m.records[t.ID].revision != revision {
		return 0, ErrConflict
	}
	m.revision++
	record := memoryRecord{data, m.revision}
	m.records[t.ID] = record
	for w := range m.watchers {
		w.add(record)
	}
	return m.revision, nil
}

// Get implements Store.
func (m *Memory) Get(ctx context.Context, id string) (*ferrule.Task, uint64, error) {
	m.mu.Lock()
	record, ok := m.records[id]
	m.mu.Unlock()
	if !ok {
		return nil, 0, ErrUnknown
	}
	t, err := record.task()
	return t, record.revision, err
}

// Delete implements Store.
func (m *Memory) Delete(ctx context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, id)
	return nil
}

// Watch implements Store.
func (m *Memory) Watch(ctx context.Context, fn func(t *ferrule.Task, revision uint64)) error {
	w := &memoryWatcher{wake: make(chan struct{}, 1)}
	m.mu.Lock()
	for _, record := range m.records {
		w.add(record)
	}
	slices.SortFunc(w.queue, func(a, b memoryRecord) int { return int(a.revision) - int(b.revision) })
	m.watchers[w] = true
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, w)
	}()
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return nil
		}
		m.mu.Lock()
		queue := w.queue
		w.queue = nil
		m.mu.Unlock()
		for _, record := range queue {
			t, err := record.task()
			if err != nil {
				return err
			}
			fn(t, record.revision)
		}
	}
}

// add queues a record. It is called with the lock of the store held.
func (w *memoryWatcher) add(record memoryRecord) {
	w.queue = append(w.queue, record)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (r memoryRecord) task() (*ferrule.Task, error) {
	t := new(ferrule.Task)
	return t, json.Unmarshal(r.data, t)
}
