package mqttclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
type subscriptions struct {
	mu    sync.RWMutex
	exact map[string][]*subscription
	wild  map[string][]*subscription
	found []*subscription // of the message that is being dispatched
}

// subscription is one call of Subscribe.
type subscription struct {
	fn    func(Message)
	ended atomic.Bool
}

func (s *subscriptions) init() {
	s.exact = make(map[string][]*subscription)
	s.wild = make(map[string][]*subscription)
}

// index returns the map for a filter, and its key there. The messages of a shared
// subscription have topics without its prefix.
func (s *subscriptions) index(filter string) (map[string][]*subscription, string) {
	if rest, ok := strings.CutPrefix(filter, "$share/"); ok {
		_, filter, _ = strings.Cut(rest, "/")
	}
	if isWildcard(filter) {
		return s.wild, filter
	}
	return s.exact, filter
}

func (s *subscriptions) add(filter string, sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, key := s.index(filter)
	m[key] = append(m[key], sub)
}

// remove removes one filter of a subscription. It reports whether no other subscription
// has the filter.
func (s *subscriptions) remove(filter string, sub *subscription) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, key := s.index(filter)
	if i := slices.Index(m[key], sub); i >= 0 {
		m[key] = slices.Delete(m[key], i, i+1)
	}
	if len(m[key]) == 0 {
		delete(m, key)
		return true
	}
	return false
}

// dispatch passes a message to the functions that subscribed to its topic, to each once.
// It is called by one goroutine.
func (s *subscriptions) dispatch(m Message) {
	s.mu.RLock()
	s.found = append(s.found[:0], s.exact[m.Topic]...)
	for filter, subs := range s.wild {
		if match(filter, m.Topic) {
			s.found = append(s.found, subs...)
		}
	}
	s.mu.RUnlock()
	for i, sub := range s.found {
		if slices.Contains(s.found[:i], sub) || sub.ended.Load() {
			continue
		}
		copied := m
		if i > 0 {
			copied.Payload = slices.Clone(m.Payload)
		}
		sub.fn(copied)
	}
	clear(s.found)
}

// Subscribe subscribes to filters and passes each matching message to fn, in the order of
// arrival. One goroutine calls all functions of a connection; fn must not block. A message
// that matches several subscriptions is passed to each function once. It returns when the
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
	for _, f := range batch {
		c.subs.add(f.Topic, sub) // before the broker knows, so that no message is missed
	}
	r, o, err := c.send(suback, func(id uint16) []byte { return c.codec.subscribe(id, batch) })
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

// batches splits filters into those of one packet each.
func batches(filters []Filter) func(yield func([]Filter) bool) {
	return func(yield func([]Filter) bool) {
		for len(filters) > 0 {
			n, size := 0, 0
			for n < len(filters) && n < maxFilters && (n == 0 || size+len(filters[n].Topic) <= maxFilterBytes) {
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
