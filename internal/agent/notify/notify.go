// Package notify tells agents that something has changed. It keeps the subscriptions
// of all sessions and sends the notifications, for every protocol version. The SDK's
// own subscriptions are not used: it keeps one subscriptions/listen stream per session
// only, and one client that does not read holds up all others.
//
//	tool, resource or prompt list ─▶ Group.ListChanged ─────────┐
//	device online, offline ─▶ DevicesChanged ─┐                 ├▶ delivery ─▶ session
//	resource updated ───────▶ Changed(topic) ─┼▶ subscribers ───┘  one at a time per
//	signal sampled ─────────▶ Changed(topic) ─┘  with a minimum    message and client
//	      ▲                                      interval
//	   sources: subscribed at the device while a topic has subscribers
//
// A subscriber is a session (protocol versions up to 2025-11-25) or one
// subscriptions/listen stream (2026-07-28 and later), of a session of the SDK or, over HTTP,
// without one. A Group is the sessions and streams at one address, which is one server of the SDK.
package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Notifications that a list has changed.
const (
	ToolsChanged     = "notifications/tools/list_changed"
	ResourcesChanged = "notifications/resources/list_changed"
	PromptsChanged   = "notifications/prompts/list_changed"
)

// ResourceUpdated is the notification that a resource has changed.
const ResourceUpdated = "notifications/resources/updated"

// Limits of one session.
const (
	MaxSubscriptions = 100 // resources
	MaxStreams       = 128 // subscriptions/listen
)

// Minimum intervals between two notifications of one topic.
const (
	UpdateInterval = 250 * time.Millisecond
	SignalInterval = time.Second
)

// unsubscribeWait is how long the answer to an unsubscribe request is held back for a
// notification that is being sent.
const unsubscribeWait = time.Second

// Topic is what an agent can subscribe to: a resource of a device, by the device's
// own URI, or a signal of it. A topic with neither is the state of the device. A topic with
// Watch is a watch, and has nothing else.
type Topic struct {
	Device string
	URI    string
	Signal string
	Watch  string
}

func (t Topic) isState() bool { return t.URI == "" && t.Signal == "" && t.Watch == "" }

// interval is the minimum time between two notifications.
func (t Topic) interval() time.Duration {
	if t.Signal != "" {
		return SignalInterval
	}
	return UpdateInterval
}

// Config is what a Notifier needs.
type Config struct {
	// Handle sends a call to a device.
	Handle ferrule.Handler
	// Samples reports what devices measure; nil if signals cannot be subscribed to.
	Samples Sampler
	// Device returns a device, unless agents may not know it.
	Device func(id string) (*ferrule.Device, bool)
	Log    *slog.Logger
}

// Notifier keeps subscriptions and sends notifications.
type Notifier struct {
	config  Config
	sources *sources

	// The methods of sources must not be called with mu held.
	mu         sync.Mutex
	topics     map[Topic]*topicState // with at least one subscriber
	sessions   map[*mcp.ServerSession]*sessionState
	deliveries map[delivery]*deliveryState // under way
}

// topicState is a topic that has subscribers.
type topicState struct {
	topic       Topic
	subscribers map[*subscriber]string // the URI by which each knows the topic
	seen        deviceState            // of a topic that is the state of a device
	notified    time.Time              // last
	timer       *time.Timer            // runs until the next notification; nil if none is due
}

// deviceState is what makes a notification of a device's state due when it changes.
type deviceState struct {
	known bool
	state ferrule.State
	since int64 // nanoseconds
}

// sessionState is what a session is subscribed to.
type sessionState struct {
	own     *subscriber // by resources/subscribe; nil without
	streams map[*subscriber]bool
	topics  int // of all its subscribers
}

// subscriber receives notifications: a session, or one of its subscriptions/listen
// streams.
type subscriber struct {
	group   *Group
	session *mcp.ServerSession
	who     ferrule.Principal
	topics  map[string]Topic // by URI

	// The rest is for a stream.
	stream bool
	id     any                           // subscription ID, which the client gave
	lists  mcp.NotificationSubscriptions // the lists that were asked for
	ready  bool                          // acknowledged; until then nothing may be sent
	missed map[delivery]bool             // to send then
	send   func(message []byte) error    // nil if the SDK sends; set before ready
}

// delivery is one message to one client. Only one is under way at a time; if the same
// message is due meanwhile, it is sent once more.
type delivery struct {
	group   *Group
	session *mcp.ServerSession
	stream  *subscriber // nil for the session itself
	method  string
	uri     string // of an updated resource
}

type deliveryState struct {
	again bool
	done  chan struct{} // closed when nothing is left to send
}

// New returns a notifier. Run must run for it to keep its subscriptions at devices.
func New(config Config) *Notifier {
	n := &Notifier{
		config: config, topics: make(map[Topic]*topicState),
		sessions: make(map[*mcp.ServerSession]*sessionState), deliveries: make(map[delivery]*deliveryState),
	}
	n.sources = newSources(n)
	return n
}

// Run renews the subscriptions at devices until ctx ends.
func (n *Notifier) Run(ctx context.Context) { n.sources.keep(ctx) }

// HasSignals reports whether signals can be subscribed to.
func (n *Notifier) HasSignals() bool { return n.config.Samples != nil }

// Changed notifies the subscribers of a topic: at once, or when its minimum interval
// has passed. It does not block.
func (n *Notifier) Changed(t Topic) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.topics[t]; s != nil {
		n.schedule(s)
	}
}

// AllChanged notifies the subscribers of all topics, when changes may have been missed.
func (n *Notifier) AllChanged() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.topics {
		n.schedule(s)
	}
}

// DevicesChanged compares the states of devices with those that subscribers know, and
// subscribes again at devices that have reconnected.
func (n *Notifier) DevicesChanged() {
	n.mu.Lock()
	for _, s := range n.topics {
		if !s.topic.isState() {
			continue
		}
		if now := n.look(s.topic.Device); now != s.seen {
			s.seen = now
			n.schedule(s)
		}
	}
	n.mu.Unlock()
	n.sources.renew()
}

// sampled notifies the subscribers of the signals in a reading.
func (n *Notifier) sampled(device string, r ferrule.Reading) {
	if _, known := n.config.Device(device); !known {
		return // agents may no longer know it
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range r.Batches {
		if s := n.topics[Topic{Device: device, Signal: r.Batches[i].Signal}]; s != nil {
			n.schedule(s)
		}
	}
}

func (n *Notifier) look(device string) deviceState {
	dev, ok := n.config.Device(device)
	if !ok {
		return deviceState{}
	}
	return deviceState{true, dev.State, dev.Since.UnixNano()}
}

// schedule makes a notification due. It is called with mu held.
func (n *Notifier) schedule(s *topicState) {
	if s.timer != nil {
		return
	}
	s.timer = time.AfterFunc(time.Until(s.notified.Add(s.topic.interval())), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		s.timer, s.notified = nil, time.Now()
		if n.topics[s.topic] != s {
			return
		}
		for sub, uri := range s.subscribers {
			n.send(sub, delivery{sub.group, sub.session, sub.key(), ResourceUpdated, uri})
		}
	})
}

// key is how deliveries refer to a subscriber: a session has only one of its own.
func (s *subscriber) key() *subscriber {
	if s.stream {
		return s
	}
	return nil
}

// send delivers a message, or keeps it until the stream is acknowledged. It is called
// with mu held.
func (n *Notifier) send(sub *subscriber, d delivery) {
	if sub.stream && !sub.ready {
		sub.missed[d] = true
		return
	}
	n.deliver(d)
}

// deliver sends a message in a goroutine of its own, so that a client that does not
// read delays only itself. It is called with mu held.
func (n *Notifier) deliver(d delivery) {
	if state := n.deliveries[d]; state != nil {
		state.again = true
		return
	}
	state := &deliveryState{done: make(chan struct{})}
	n.deliveries[d] = state
	go func() {
		for more := true; more; more = n.next(d, state) {
			n.write(d)
		}
	}()
}

// next reports whether a message is to be sent once more.
func (n *Notifier) next(d delivery, state *deliveryState) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if state.again {
		state.again = false
		return true
	}
	close(state.done)
	delete(n.deliveries, d)
	return false
}

// write sends a message, unless its subscription has ended.
func (n *Notifier) write(d delivery) {
	defer func() {
		if r := recover(); r != nil {
			n.config.Log.Error("notification panicked\n"+string(debug.Stack()), "err", r)
		}
	}()
	if d.uri != "" && !n.subscribed(d) {
		return
	}
	var meta mcp.Meta
	if d.stream != nil {
		meta = mcp.Meta{mcp.MetaKeySubscriptionID: d.stream.id}
	}
	if d.stream != nil && d.stream.send != nil {
		d.stream.send(notification(d.method, meta, d.uri)) // if it fails, the client is gone
		return
	}
	var req mcp.Request
	if d.uri != "" {
		req = &mcp.ServerRequest[*mcp.ResourceUpdatedNotificationParams]{Session: d.session, Params: &mcp.ResourceUpdatedNotificationParams{Meta: meta, URI: d.uri}}
	} else { // the params of all three lists are alike
		req = &mcp.ServerRequest[*mcp.ToolListChangedParams]{Session: d.session, Params: &mcp.ToolListChangedParams{Meta: meta}}
	}
	d.group.write(context.Background(), d.method, req) // if it fails, the client is gone
}

// notification returns a message as the SDK would send it.
func notification(method string, meta mcp.Meta, uri string) []byte {
	params := map[string]any{"_meta": meta}
	if uri != "" {
		params["uri"] = uri
	}
	message, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
	if err != nil {
		panic(err) // the ID was decoded from JSON, and the rest are texts
	}
	return message
}

// subscribed reports whether the client still wants an updated resource.
func (n *Notifier) subscribed(d delivery) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	sub := d.stream
	if sub == nil && n.sessions[d.session] != nil {
		sub = n.sessions[d.session].own
	}
	if sub == nil {
		return false
	}
	_, ok := sub.topics[d.uri]
	return ok
}

// subscribe adds a topic to a subscriber, and subscribes to it at its source. The
// subscriber must be in sessions.
func (n *Notifier) subscribe(ctx context.Context, who ferrule.Principal, sub *subscriber, uri string, t Topic) error {
	n.mu.Lock()
	has, err := n.check(sub, uri)
	n.mu.Unlock()
	if has || err != nil {
		return err
	}
	if err := n.sources.acquire(ctx, who, t); err != nil {
		return err
	}
	n.mu.Lock()
	has, err = n.check(sub, uri) // another request may have been faster
	if !has && err == nil {
		n.add(sub, uri, t)
	}
	n.mu.Unlock()
	if has || err != nil {
		n.sources.release(t)
	}
	return err
}

// check reports whether a subscriber has a resource, or why it cannot have it. It is
// called with mu held.
func (n *Notifier) check(sub *subscriber, uri string) (has bool, err error) {
	if _, has := sub.topics[uri]; has {
		return true, nil
	}
	state := n.sessions[sub.session]
	if state == nil || state.own != sub && !state.streams[sub] {
		return false, invalidParams("the session has ended")
	}
	if state.topics >= MaxSubscriptions {
		return false, invalidParams(fmt.Sprintf("too many subscriptions: limit is %d per session", MaxSubscriptions))
	}
	return false, nil
}

// add adds a topic to a subscriber. It is called with mu held.
func (n *Notifier) add(sub *subscriber, uri string, t Topic) {
	s := n.topics[t]
	if s == nil {
		s = &topicState{topic: t, subscribers: make(map[*subscriber]string), seen: n.look(t.Device)}
		n.topics[t] = s
	}
	s.subscribers[sub] = uri
	sub.topics[uri] = t
	n.sessions[sub.session].topics++
}

// unsubscribe removes topics from a subscriber. When it returns, the client gets no
// more notifications of them.
func (n *Notifier) unsubscribe(sub *subscriber, uris ...string) {
	n.mu.Lock()
	removed, pending := n.removeAll(sub, uris)
	n.mu.Unlock()
	n.settle(removed, pending)
}

// removeAll removes topics from a subscriber, and returns those that it had and the
// deliveries under way. It is called with mu held.
func (n *Notifier) removeAll(sub *subscriber, uris []string) (removed []Topic, pending []chan struct{}) {
	for _, uri := range uris {
		t, ok := sub.topics[uri]
		if !ok {
			continue
		}
		n.remove(sub, uri, t)
		removed = append(removed, t)
		if state := n.deliveries[delivery{sub.group, sub.session, sub.key(), ResourceUpdated, uri}]; state != nil {
			pending = append(pending, state.done)
		}
	}
	return removed, pending
}

// settle releases topics at their sources, and waits for deliveries to end.
func (n *Notifier) settle(removed []Topic, pending []chan struct{}) {
	for _, t := range removed {
		n.sources.release(t)
	}
	if pending == nil {
		return
	}
	timeout := time.NewTimer(unsubscribeWait)
	defer timeout.Stop()
	for _, done := range pending {
		select {
		case <-done:
		case <-timeout.C:
			return
		}
	}
}

// remove removes a topic from a subscriber. It is called with mu held.
func (n *Notifier) remove(sub *subscriber, uri string, t Topic) {
	delete(sub.topics, uri)
	n.sessions[sub.session].topics--
	s := n.topics[t]
	delete(s.subscribers, sub)
	if len(s.subscribers) > 0 {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	delete(n.topics, t)
}

// session returns the state of a session. It is called with mu held.
func (n *Notifier) session(session *mcp.ServerSession) *sessionState {
	state := n.sessions[session]
	if state == nil {
		state = &sessionState{streams: make(map[*subscriber]bool)}
		n.sessions[session] = state
	}
	return state
}

// end removes a subscriber with all that it is subscribed to.
func (n *Notifier) end(sub *subscriber) {
	n.mu.Lock()
	removed, pending := n.removeAll(sub, slices.Collect(maps.Keys(sub.topics)))
	state := n.sessions[sub.session]
	if sub.stream {
		delete(state.streams, sub)
		delete(sub.group.streams, sub)
	} else {
		state.own = nil
	}
	if state.own == nil && len(state.streams) == 0 {
		delete(n.sessions, sub.session)
	}
	n.mu.Unlock()
	n.settle(removed, pending)
}

// Recheck ends the subscriptions that a caller may no longer have, after the policy has
// changed. Its next subscription to a resource is asked for again.
func (n *Notifier) Recheck(may func(who ferrule.Principal, t Topic) bool) {
	n.sources.recheck()
	n.mu.Lock()
	subscribed := make(map[*subscriber]map[string]Topic)
	for _, state := range n.sessions {
		if state.own != nil {
			subscribed[state.own] = maps.Clone(state.own.topics)
		}
		for stream := range state.streams {
			subscribed[stream] = maps.Clone(stream.topics)
		}
	}
	n.mu.Unlock()
	for sub, topics := range subscribed {
		var ended []string
		for uri, t := range topics {
			if !may(sub.who, t) {
				ended = append(ended, uri)
			}
		}
		n.mu.Lock()
		removed, _ := n.removeAll(sub, ended)
		n.mu.Unlock()
		n.settle(removed, nil)
	}
}

// Subscriptions returns the number of subscriptions to resources that are in effect.
func (n *Notifier) Subscriptions() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, s := range n.topics {
		for sub := range s.subscribers {
			if !sub.stream || sub.ready {
				count++
			}
		}
	}
	return count
}

// wants reports whether a stream asked for changes of a list.
func (s *subscriber) wants(method string) bool {
	return method == ToolsChanged && s.lists.ToolsListChanged ||
		method == ResourcesChanged && s.lists.ResourcesListChanged ||
		method == PromptsChanged && s.lists.PromptsListChanged
}

func invalidParams(message string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: message}
}

// uriList returns the first URIs of a request, up to the limit and without duplicates.
func uriList(uris []string) (list []string) {
	for _, uri := range uris[:min(len(uris), MaxSubscriptions)] {
		if !slices.Contains(list, uri) {
			list = append(list, uri)
		}
	}
	return list
}
