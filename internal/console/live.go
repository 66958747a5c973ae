package console

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/maphash"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Limits of live updates.
const (
	// updateEvery is how often a page is told at most what has changed.
	updateEvery = 250 * time.Millisecond
	// pingEvery is how often a stream shows that it is alive, and checks its session.
	pingEvery = 15 * time.Second
	// writeTimeout limits how long a browser may take to read an update.
	writeTimeout = 10 * time.Second
	// maxStreams limits the open pages with live updates, and maxStreamsPerSession those of
	// one login. A page that is hidden closes its stream.
	maxStreams           = 1024
	maxStreamsPerSession = 32
)

// live is what a page shows that changes by itself.
type live interface {
	// watch calls changed with a key for what has changed, until stop is called. changed does
	// not block.
	watch(changed func(key string)) (stop func())
	// update adds what the page shows now for the keys. It is called with no key when the page
	// opens its stream: what has changed since the page was drawn.
	update(ctx context.Context, keys []string, out *updates) error
}

// updates is one message to a page.
type updates struct {
	sent  map[string]uint64   // hash of each element, as the page has it
	lists map[string][]string // items of each list, as the page has it
	drawn *drawings
	seed  maphash.Seed
	html  bytes.Buffer
	extra []event
}

func newUpdates() *updates {
	return &updates{sent: make(map[string]uint64), lists: make(map[string][]string), drawn: &drawings{}, seed: maphash.MakeSeed()}
}

type event struct {
	name string
	data []byte
}

// element adds an element, drawn by a template. It must have this id. The page replaces the
// element that it has; one that is as the page has it already is not sent.
func (u *updates) element(id, name string, data any) error {
	text, err := html(name, data)
	if err == nil && u.isNew(id, text) {
		u.html.WriteString(text)
	}
	return err
}

// isNew reports whether the page does not have a version of an element yet.
func (u *updates) isNew(id, version string) bool {
	sum := maphash.String(u.seed, version)
	if u.sent[id] == sum {
		return false
	}
	u.sent[id] = sum
	return true
}

// item is an element of a list. ID is its id.
type item struct {
	ID   string
	Data any
}

// list adds the items of a list, each drawn by a template. The page inserts those that it
// does not have, and replaces those whose data has changed. One that is gone stays in its
// place, disabled and with a note, if it has the attribute data-gone: the next one must not
// move under a finger that is about to press. Otherwise it is removed.
func (u *updates) list(id, name string, items []item) error {
	message := struct {
		ID    string   `json:"id"`
		Order []string `json:"order"`
		HTML  string   `json:"html"`
	}{ID: id, Order: []string{}}
	for _, one := range items {
		message.Order = append(message.Order, one.ID)
		version, err := json.Marshal(one.Data)
		if err != nil {
			return err
		}
		if !u.isNew(one.ID, string(version)) {
			continue
		}
		text, err := html(name, one.Data)
		if err != nil {
			return err
		}
		message.HTML += text
	}
	if before := u.lists[id]; before != nil && slices.Equal(before, message.Order) && message.HTML == "" {
		return nil
	}
	for _, gone := range u.lists[id] {
		if !slices.Contains(message.Order, gone) {
			delete(u.sent, gone) // if it comes back, it is sent again
		}
	}
	u.lists[id] = message.Order
	return u.event("list", message)
}

// event adds something for a script of the page: it gets a CustomEvent with this name
// after "live:", whose detail is the value.
func (u *updates) event(name string, value any) error {
	data, err := json.Marshal(value)
	if err == nil {
		u.extra = append(u.extra, event{name, data})
	}
	return err
}

// livePage adds a stream of live updates. The function returns what the stream shows. The
// frame of the page is part of each stream.
func (c *Console) livePage(pattern string, fn func(v *visit) (live, error)) {
	c.routes = append(c.routes, pattern)
	c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		who, csrf, ok := c.parts.People.Peek(r)
		if !ok {
			http.Error(w, "not logged in", http.StatusUnauthorized)
			return
		}
		v := &visit{w, r, who, csrf}
		shown, err := fn(v)
		if err != nil {
			http.Error(w, ferrule.AsError(err).Message, api.Status(err))
			return
		}
		if !c.streams.add(csrf) {
			http.Error(w, "too many open pages", http.StatusServiceUnavailable)
			return
		}
		defer c.streams.done(csrf)
		c.stream(v, []live{&frame{c, v}, shown})
	})
}

// streamCount counts open streams by session.
type streamCount struct {
	mu  sync.Mutex
	n   int
	own map[string]int
}

func (s *streamCount) add(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= maxStreams || s.own[session] >= maxStreamsPerSession {
		return false
	}
	if s.own == nil {
		s.own = make(map[string]int)
	}
	s.n++
	s.own[session]++
	return true
}

func (s *streamCount) done(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n--
	if s.own[session]--; s.own[session] == 0 {
		delete(s.own, session)
	}
}

// change is a key of one of the parts of a stream.
type change struct {
	part int
	key  string
}

// pending collects changes until the stream takes them.
type pending struct {
	mu   sync.Mutex
	keys map[change]bool
	wake chan struct{}
}

func (p *pending) add(c change) {
	p.mu.Lock()
	p.keys[c] = true
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pending) take(parts int) [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([][]string, parts)
	for c := range p.keys {
		all[c.part] = append(all[c.part], c.key)
	}
	clear(p.keys)
	return all
}

// stream writes server-sent events until the browser leaves or the session ends. An open
// page does not keep its session alive, and gets nothing after its end.
func (c *Console) stream(v *visit, parts []live) {
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.Header().Set("X-Accel-Buffering", "no") // of proxies
	out := newUpdates()
	out.drawn = &c.drawn
	waits := &pending{keys: make(map[change]bool), wake: make(chan struct{}, 1)}
	for i, part := range parts {
		defer part.watch(func(key string) { waits.add(change{i, key}) })()
	}
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	begin := "retry: 1000\nevent: hello\ndata: \n\n"
	keys := make([][]string, len(parts))
	for first := true; ; first = false {
		if _, _, ok := c.parts.People.Peek(v.r); !ok {
			send(v.w, []byte("event: logout\ndata: \n\n"))
			return
		}
		for i, part := range parts {
			if first || len(keys[i]) > 0 {
				if err := part.update(v.ctx(), keys[i], out); err != nil {
					c.parts.Log.Debug("a live update failed", "err", err)
				}
			}
		}
		if send(v.w, append([]byte(begin), out.take()...)) != nil {
			return
		}
		begin = ""
		select {
		case <-v.ctx().Done():
			return
		case <-time.After(updateEvery):
		}
		clear(keys)
		select {
		case <-waits.wake:
			keys = waits.take(len(parts))
		case <-ping.C:
			begin = ": ping\n\n"
			keys[0] = []string{"ping"} // agents come and go without an event
		case <-v.ctx().Done():
			return
		}
	}
}

// send writes a part of a stream. It gives up if the browser does not read.
func send(w http.ResponseWriter, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	control := http.NewResponseController(w)
	control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := w.Write(data); err != nil {
		return err
	}
	return control.Flush()
}

// take returns what was collected, and empties it.
func (u *updates) take() []byte {
	var msg bytes.Buffer
	if u.html.Len() > 0 {
		data, _ := json.Marshal(u.html.String()) // one line
		u.extra = append([]event{{"elements", data}}, u.extra...)
	}
	for _, e := range u.extra {
		msg.WriteString("event: " + e.name + "\ndata: ")
		msg.Write(e.data)
		msg.WriteString("\n\n")
	}
	u.html.Reset()
	u.extra = nil
	return msg.Bytes()
}

// frame is the frame of a page: what waits, and what is stopped.
type frame struct {
	*Console
	v *visit
}

func (f *frame) watch(changed func(string)) func() {
	return f.hub.subscribe(changed, topicApprovals, topicStop, topicDevices)
}

func (f *frame) update(ctx context.Context, _ []string, out *updates) error {
	p := page{Header: f.parts.Header(ctx, f.v.who), Who: f.v.who, CSRF: f.v.csrf}
	for _, name := range []string{"nav-devices", "nav-approvals", "nav-agents", "stopslot", "stopbutton"} {
		if err := out.element(name, name, p); err != nil {
			return err
		}
	}
	return nil
}

// nothing is the live part of a page that has none.
type nothing struct{}

func (nothing) watch(func(string)) func()                        { return func() {} }
func (nothing) update(context.Context, []string, *updates) error { return nil }
