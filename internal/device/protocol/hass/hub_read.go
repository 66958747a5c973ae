package hass

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/tasmota"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
)

// components are those of Home Assistant, and one that Zigbee2MQTT has. Others are read
// after them, all at once.
var components = []string{
	"device", "alarm_control_panel", "binary_sensor", "button", "camera", "climate", "cover", "date", "datetime", "device_automation",
	"device_tracker", "event", "fan", "humidifier", "image", "infrared", "lawn_mower", "light", "lock", "notify", "number", "scene", "select",
	"sensor", "siren", "switch", "tag", "text", "time", "update", "vacuum", "valve", "water_heater",
}

const (
	// quietTime is the silence after which the broker has sent all that it has kept for a
	// filter. emptyTime is the same if nothing came at all. readTime is the longest wait.
	quietTime = 120 * time.Millisecond
	emptyTime = 40 * time.Millisecond
	readTime  = 20 * time.Second
	// safeBurst is how many messages any broker surely keeps for a slow reader. The
	// default of Mosquitto is 1,000; further ones are dropped silently.
	safeBurst = 900
	// maxQueue limits the messages that wait to be applied, in bytes.
	maxQueue = 64 << 20
	// droppedTime is the wait until the count of dropped messages is up to date. maxRounds
	// is how often everything is read again for it, and maxBatch the number of filters at a
	// time.
	droppedTime = 12 * time.Second
	maxRounds   = 2
	maxBatch    = 200
	parallel    = 16 // subscriptions at a time
	// chunk is how many availability topics are subscribed to together.
	chunk = 64
)

// queue has the messages that arrived and wait to be applied, so that reading them never
// holds up the connection.
type queue struct {
	ready chan struct{} // has an element if there is something

	mu       sync.Mutex
	messages []mqttclient.Message
	size     int
	lost     int // messages for which there was no space
	arrived  int
	last     time.Time // when the last one arrived
}

// push adds a message. It never blocks.
func (q *queue) push(m mqttclient.Message) {
	q.mu.Lock()
	q.last = time.Now()
	q.arrived++
	if size := len(m.Topic) + len(m.Payload) + 64; q.size+size > maxQueue {
		q.lost++
	} else {
		q.messages, q.size = append(q.messages, m), q.size+size
	}
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// drain returns all messages.
func (q *queue) drain() []mqttclient.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	messages := q.messages
	q.messages, q.size = nil, 0
	return messages
}

// state returns how many messages have arrived, how long ago the last one did, and how
// many wait.
func (q *queue) state() (arrived int, silence time.Duration, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.arrived, time.Since(q.last), len(q.messages)
}

// reader subscribes to everything that a hub reads over one connection.
type reader struct {
	hub   *Hub
	conn  *mqttclient.Conn
	queue queue
	woken chan struct{} // has an element if topics are wanted

	// large reports that a burst was so large that the broker may have dropped some of it.
	large    atomic.Bool
	finished bool // all has been read once

	mu      sync.Mutex
	counted bool // the broker says how many messages it dropped
	dropped int
	checked int // what dropped was when it was last looked at
}

func newReader(h *Hub, conn *mqttclient.Conn) *reader {
	return &reader{hub: h, conn: conn, queue: queue{ready: make(chan struct{}, 1)}, woken: make(chan struct{}, 1)}
}

// wake makes the reader look for wanted topics.
func (r *reader) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// run reads all configs, then subscribes to the availability topics that are wanted, until
// ctx ends or the connection is lost. What the broker may have dropped is read again later,
// so that the devices that are known need not wait for it.
func (r *reader) run(ctx context.Context) {
	if err := r.readAll(ctx); err != nil {
		if ctx.Err() == nil {
			r.hub.log.Warn("cannot read discovery messages", "broker", r.hub.cfg.Broker, "err", err)
			r.hub.setNote("discovery messages cannot be read: " + err.Error())
		}
		return
	}
	r.hub.finish()
	r.finished = true
	check := time.After(0)
	if r.large.Load() {
		check = time.After(droppedTime)
	}
	for rounds := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-r.conn.Done():
			return
		case <-r.woken:
			r.subscribeWanted(ctx)
		case <-check:
			switch missing, known := r.missing(); {
			case missing == 0 && (known || !r.large.Load() || rounds > 0), rounds == maxRounds:
				r.hub.sweep(missing)
			default:
				rounds++
				r.readAgain(ctx)
				check = time.After(droppedTime)
			}
		}
	}
}

// readAll reads all configs: one component after another, because a broker drops what is
// too much at once, and then everything, for unknown components and for changes.
func (r *reader) readAll(ctx context.Context) error {
	if end, err := r.conn.Subscribe(ctx, r.countDropped, mqttclient.Filter{Topic: mqttclient.Dropped}); err == nil {
		context.AfterFunc(ctx, end)
	}
	var ends []func()
	defer func() {
		for _, end := range ends {
			end()
		}
	}()
	prefix := r.hub.cfg.Prefix + "/"
	for _, component := range append(slices.Clone(components), "+") {
		end, err := r.burst(ctx, prefix+component+"/+/config", prefix+component+"/+/+/config")
		if err != nil {
			return err
		}
		if component != "+" { // those for everything stay
			ends = append(ends, end)
		}
	}
	_, err := r.burst(ctx, tasmota.Filter)
	return err
}

// burst subscribes to filters and waits until the broker has sent what it has kept.
func (r *reader) burst(ctx context.Context, topics ...string) (end func(), err error) {
	filters := make([]mqttclient.Filter, len(topics))
	for i, topic := range topics {
		filters[i].Topic = topic
	}
	before, _, _ := r.queue.state()
	if end, err = r.subscribe(ctx, filters); err != nil {
		return nil, err
	}
	start := time.Now()
	for {
		arrived, silence, waiting := r.queue.state()
		quiet := emptyTime
		if arrived > before {
			quiet = quietTime
		}
		if waiting == 0 && min(silence, time.Since(start)) >= quiet || time.Since(start) > readTime {
			if arrived-before > safeBurst {
				r.large.Store(true)
			}
			return end, nil
		}
		select {
		case <-ctx.Done():
			return end, ctx.Err()
		case <-r.conn.Done():
			return end, r.conn.Err()
		case <-time.After(quiet / 4):
		}
		if r.finished {
			r.subscribeWanted(ctx) // new devices do not wait for a second reading
		}
	}
}

// subscribe subscribes to filters, several at a time: each answer takes a while.
func (r *reader) subscribe(ctx context.Context, filters []mqttclient.Filter) (end func(), err error) {
	var mu sync.Mutex
	var ends []func()
	var group sync.WaitGroup
	for part := range slices.Chunk(filters, (len(filters)+parallel-1)/parallel) {
		group.Go(func() {
			end, failed := r.subscribePart(ctx, part)
			mu.Lock()
			defer mu.Unlock()
			if failed != nil {
				err = failed
				return
			}
			ends = append(ends, end)
		})
	}
	group.Wait()
	end = func() {
		for _, end := range ends {
			end()
		}
	}
	if err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// subscribePart subscribes to filters. A broker that drops messages also drops the answer
// to a subscription, so it is tried again.
func (r *reader) subscribePart(ctx context.Context, filters []mqttclient.Filter) (end func(), err error) {
	for range 3 {
		limited, cancel := context.WithTimeout(ctx, readTime)
		end, err = r.conn.Subscribe(limited, r.queue.push, filters...)
		late := limited.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !late {
			break
		}
		r.large.Store(true)
	}
	return end, err
}

// readAgain reads all configs by filters that match few messages each. Nothing lists the
// topics that exist, but devices have much in common: the object IDs that are known find
// devices that are not, and the node IDs of these find the rest.
func (r *reader) readAgain(ctx context.Context) {
	prefix := r.hub.cfg.Prefix + "/"
	for _, filter := range []func(discovery.Topic) string{
		func(t discovery.Topic) string { return prefix + t.Component + "/+/" + t.ObjectID + "/config" },
		func(t discovery.Topic) string { return prefix + "+/" + t.NodeID + "/+/config" },
	} {
		filters, counts := r.hub.filters(filter)
		first, expected := 0, 0
		for i := range filters {
			expected += counts[i]
			if i+1 < len(filters) && expected+counts[i+1] <= safeBurst/2 && i-first < maxBatch {
				continue
			}
			end, err := r.burst(ctx, filters[first:i+1]...)
			if err != nil {
				return // the connection is lost
			}
			end()
			first, expected = i+1, 0
		}
	}
}

// countDropped takes the number of messages that the broker has dropped since it started.
// Mosquitto publishes it every 10 s.
func (r *reader) countDropped(m mqttclient.Message) {
	n, err := strconv.Atoi(string(m.Payload))
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.counted {
		r.counted, r.checked = true, n
	}
	r.dropped = n
}

// missing returns how many messages the broker has dropped since the last call. It reports
// false if the broker does not say.
func (r *reader) missing() (n int, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = r.dropped - r.checked
	r.checked = r.dropped
	return n, r.counted
}

// subscribeWanted subscribes to availability topics. One that the broker refuses does not
// keep the others away.
func (r *reader) subscribeWanted(ctx context.Context) {
	for topics := range slices.Chunk(r.hub.takeWanted(), chunk) {
		filters := make([]mqttclient.Filter, len(topics))
		for i, topic := range topics {
			filters[i].Topic = topic
		}
		if _, err := r.conn.Subscribe(ctx, r.queue.push, filters...); err == nil {
			continue
		}
		for _, f := range filters {
			if _, err := r.conn.Subscribe(ctx, r.queue.push, f); err != nil && ctx.Err() == nil {
				r.hub.log.Warn("cannot hear whether devices are available", "broker", r.hub.cfg.Broker, "err", err)
			}
		}
	}
}

// takeWanted returns the availability topics to subscribe to.
func (h *Hub) takeWanted() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	topics := h.wanted
	h.wanted = nil
	return topics
}

// setNote sets the note of the status.
func (h *Hub) setNote(note string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.Note = note
}

// filters returns the different filters that a function makes of the topics of all configs
// with a node ID, sorted, each with the number of its configs.
func (h *Hub) filters(of func(discovery.Topic) string) (filters []string, counts []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	count := make(map[string]int)
	for _, d := range h.devices {
		configs, _ := h.current(d)
		for _, c := range configs {
			if c.Node != "" {
				count[of(c.topic())]++
			}
		}
	}
	for filter := range count {
		filters = append(filters, filter)
	}
	slices.Sort(filters)
	for _, filter := range filters {
		counts = append(counts, count[filter])
	}
	return filters, counts
}

// finish ends the first read of all configs: from now on devices are reported.
func (h *Hub) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.complete = true
	wanted := make(map[string]bool)
	for _, topic := range h.wanted {
		wanted[topic] = true
	}
	for _, d := range h.devices {
		h.waiting[d] = struct{}{}
		for _, r := range d.rules { // of devices that were known before the connection
			for _, s := range r.sources {
				if s.problem == "" && !wanted[s.topic] {
					wanted[s.topic] = true
					h.wanted = append(h.wanted, s.topic)
				}
			}
		}
	}
}

// sweep removes the configs that were not found in this connection, unless some may be
// missing.
func (h *Hub) sweep(missing int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.Missing, h.status.Note = missing, ""
	if missing > 0 {
		return
	}
	for _, d := range h.devices {
		for _, k := range slices.Clone(d.known) {
			if k.read != h.read {
				h.removeConfig(d, k.key)
			}
		}
	}
}
