package mqttclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// The limits of one SUBSCRIBE or UNSUBSCRIBE packet.
const (
	maxFilters     = 100
	maxFilterBytes = 32 << 10
)

// subscriptions finds the functions for a topic. Most filters are plain topics, which are
// found by a map; those with wildcards are tried one after another.
//
// If several filters match, a broker sends one copy of the message or one for each filter.
// Identifiers tell the copies apart: one for all plain topics, since only one of them can
// match, and one for each other filter.
type subscriptions struct {
	mu     sync.RWMutex
	exact  map[string]*entry
	wild   map[string]*entry
	nextID int

	// The matches of the message that is being dispatched. Only dispatch uses them.
	matches []*entry
	calls   []call
}

// exactID is the identifier of the subscriptions to plain topics.
const exactID = 1

// entry is a filter with its subscriptions.
type entry struct {
	id      int
	pattern string
	// asked has what suits all subscriptions: a broker keeps only the last options.
	asked Filter
	subs  []*subscription
}

// subscription is one call of Subscribe.
type subscription struct {
	fn    func(Message)
	ended atomic.Bool
}

// call is a subscription whose function may be called for a message.
type call struct {
	sub *subscription
	now bool // this copy is the one for it
}

func (s *subscriptions) init() {
	s.exact, s.wild, s.nextID = make(map[string]*entry), make(map[string]*entry), exactID+1
}

// index returns the map for a filter.
func (s *subscriptions) index(filter string) map[string]*entry {
	if special(filter) {
		return s.wild
	}
	return s.exact
}

// add adds one filter of a subscription. It returns the identifier for the broker, and
// the filter with the options for all who have it.
func (s *subscriptions) add(f Filter, sub *subscription) (int, Filter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	index := s.index(f.Topic)
	e := index[f.Topic]
	if e == nil {
		e = &entry{id: exactID, pattern: f.Topic, asked: f}
		if special(f.Topic) {
			e.id, e.pattern = s.nextID, unshared(f.Topic)
			s.nextID++
		}
		index[f.Topic] = e
	}
	e.asked.QoS, e.asked.NoLocal = max(e.asked.QoS, f.QoS), e.asked.NoLocal && f.NoLocal
	e.subs = append(e.subs, sub)
	return e.id, e.asked
}

// remove removes one filter of a subscription. It reports whether no other subscription
// has the filter.
func (s *subscriptions) remove(filter string, sub *subscription) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	index := s.index(filter)
	e := index[filter]
	if e == nil {
		return false
	}
	if i := slices.Index(e.subs, sub); i >= 0 {
		e.subs = slices.Delete(e.subs, i, i+1)
	}
	if len(e.subs) == 0 {
		delete(index, filter)
		return true
	}
	return false
}

// dispatch passes one copy of a message to the functions for it. A function whose
// subscription has several matching filters gets the copy for the first of them. Without
// identifiers, every function gets every copy. It is called by one goroutine.
func (s *subscriptions) dispatch(m Message, ids []int) {
	s.mu.RLock()
	for _, e := range s.wild {
		if match(e.pattern, m.Topic) {
			s.matches = append(s.matches, e)
		}
	}
	slices.SortFunc(s.matches, func(a, b *entry) int { return a.id - b.id })
	if e := s.exact[m.Topic]; e != nil {
		s.matches = slices.Insert(s.matches, 0, e)
	}
	for _, e := range s.matches {
		now := len(ids) == 0 || slices.Contains(ids, e.id)
		for _, sub := range e.subs {
			if !slices.ContainsFunc(s.calls, func(c call) bool { return c.sub == sub }) {
				s.calls = append(s.calls, call{sub, now})
			}
		}
	}
	s.mu.RUnlock()
	shared := false
	for _, c := range s.calls {
		if !c.now || c.sub.ended.Load() {
			continue
		}
		copied := m
		if shared {
			copied.Payload = slices.Clone(m.Payload)
		}
		shared = true
		c.sub.fn(copied)
	}
	clear(s.matches)
	clear(s.calls)
	s.matches, s.calls = s.matches[:0], s.calls[:0]
}

// Subscribe subscribes to filters and passes each matching message to fn, in the order of
// arrival. One goroutine calls all functions of a connection; fn must not block. A message
// that matches several subscriptions is passed to each function once; with MQTT 3.1.1, some
// brokers send a message once for each filter that matches. It returns when the
// broker has agreed to all filters. The returned function ends the subscription at the
// broker unless another one has the same filter; it does not wait.
//
// If another subscription has the same filter already, the broker sends the retained
// messages to both.
func (c *Conn) Subscribe(ctx context.Context, fn func(Message), filters ...Filter) (end func(), err error) {
	filters = slices.Clone(filters)
	for i := range filters {
		f := &filters[i]
		if err := checkFilter(f.Topic); err != nil {
			return nil, fmt.Errorf("subscribing to %s: %w", clean(f.Topic), err)
		}
		f.QoS = min(f.QoS, 1)
	}
	sub := &subscription{fn: fn}
	asked := filters[:0:0]
	end = sync.OnceFunc(func() { c.unsubscribe(sub, asked) })
	for batch := range batches(filters) {
		asked = append(asked, batch...)
		if err := c.subscribe(ctx, sub, batch); err != nil {
			end()
			return nil, err
		}
	}
	return end, nil
}

// subscribe sends one SUBSCRIBE and waits for the answer.
func (c *Conn) subscribe(ctx context.Context, sub *subscription, batch []Filter) error {
	c.mu.Lock()
	var subID int // the same for all filters of a batch
	batch = slices.Clone(batch)
	for i, f := range batch {
		subID, batch[i] = c.subs.add(f, sub) // before the broker knows, so that no message is missed
	}
	if c.limits.noSubIDs {
		subID = 0
	}
	r, o, err := c.send(suback, func(id uint16) []byte { return c.codec.subscribe(id, subID, batch) })
	c.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case answer := <-r.answer:
		return subscribeError(batch, answer)
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
		c.withdraw(o)
		return fmt.Errorf("the broker has not confirmed the subscription to %s: %w", name(batch), ctx.Err())
	}
}

// unsubscribe ends a subscription. What nobody else subscribes to ends at the broker. The
// lock orders it before a SUBSCRIBE of somebody else for the same filter.
func (c *Conn) unsubscribe(sub *subscription, filters []Filter) {
	sub.ended.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	var last []Filter
	for _, f := range filters {
		if c.subs.remove(f.Topic, sub) {
			last = append(last, f)
		}
	}
	for batch := range batches(last) {
		var topics []string
		for _, f := range batch {
			topics = append(topics, f.Topic)
		}
		if _, _, err := c.send(unsuback, func(id uint16) []byte { return c.codec.unsubscribe(id, topics) }); err != nil {
			return // the connection is lost, and so are its subscriptions
		}
	}
}

// batches splits filters into those of one packet each. Plain topics share a packet.
func batches(filters []Filter) func(yield func([]Filter) bool) {
	return func(yield func([]Filter) bool) {
		for len(filters) > 0 {
			n, size := 0, 0
			for n < len(filters) && n < maxFilters && (n == 0 || !special(filters[n-1].Topic) && !special(filters[n].Topic) && size+len(filters[n].Topic) <= maxFilterBytes) {
				size += len(filters[n].Topic)
				n++
			}
			if !yield(filters[:n]) {
				return
			}
			filters = filters[n:]
		}
	}
}

// subscribeError returns what a SUBACK says.
func subscribeError(batch []Filter, answer packet) error {
	if len(answer.codes) != len(batch) {
		return errors.New("the broker sent something that is not MQTT: a SUBACK for other filters")
	}
	for i, code := range answer.codes {
		if code >= 0x80 {
			return fmt.Errorf("the broker refused the subscription to %s: %s", clean(batch[i].Topic), reasonText(code, answer.reason))
		}
	}
	return nil
}

// name names a batch of filters.
func name(batch []Filter) string {
	first := clean(batch[0].Topic)
	if len(batch) > 1 {
		return fmt.Sprintf("%s and %d more", first, len(batch)-1)
	}
	return first
}
