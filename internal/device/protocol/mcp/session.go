package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// courier brings requests to a device, and what it says back. An error of its is a
// trouble.
type courier interface {
	// ask sends a request, once, and waits for its answer. What else the device
	// says meanwhile is given to the session's hear. It may be called by several
	// goroutines at once.
	ask(ctx context.Context, r request) (message, error)
	// tell sends a notification, or an answer.
	tell(ctx context.Context, body []byte) error
	// run listens to what the device says by itself until ctx ends, and then
	// returns nil, or until the device is gone.
	run(ctx context.Context) error
	// cancels tells whether a request that is waited for no longer has to be
	// cancelled in words.
	cancels() bool
	// frugal tells whether each request that lasts costs a connection.
	frugal() bool
	// farewell tells the device that nothing more will come, if it wants to know.
	farewell(ctx context.Context)
}

// session is the conversation with one device: Invoke asks and waits, Run listens. At
// most one call is under way.
type session struct {
	dialect  *Protocol
	link     transport.Link
	courier  courier
	protocol atomic.Pointer[string]
	able     capabilities
	limit    int // bytes of the longest request; zero for any
	greeted  bool
	notify   func(method string, params json.RawMessage)
	about    server                  // what it said when it was greeted
	renew    func(*ferrule.Manifest) // told what it says of itself now; nil if nobody is

	work     sync.WaitGroup // what goes on beside
	invoking sync.WaitGroup // calls that have no outcome yet
	started  chan struct{}  // closed when Run runs
	replying chan struct{}  // holds one for each request of the device that is being answered

	talk    sync.Mutex        // held while somebody is told something; taken before mu
	allowed ratelimit.Limiter // of what the device says unasked

	mu        sync.Mutex
	count     int
	call      *underway          // nil if none is
	ended     error              // why the conversation is over, once it is
	failed    error              // why it is about to be
	stale     bool               // what the device offers has changed
	relisting bool               // it is being read anew
	pace      pace               // of that
	reread    time.Time          // when it was because something may have been missed
	running   context.Context    // of Run; nil before it runs
	stop      func()             // ends Run; nil before it runs
	open      func(l *listening) // begins to listen
	listening []*listening
}

// underway is a call that has no outcome yet.
type underway struct {
	call  *ferrule.Call
	token string // of its progress
	asked int    // questions so far
	ask   func(ferrule.Question) (ferrule.Answer, error)
}

func newSession(d *Protocol, link transport.Link) *session {
	s := &session{dialect: d, link: link, count: d.firstID() - 1, limit: link.Info().SafeWrite, started: make(chan struct{}), replying: make(chan struct{}, maxReplies)}
	if h, ok := link.(transport.HTTP); ok {
		s.courier = newPosts(s, h)
	} else {
		s.courier = newLines(s)
	}
	return s
}

func (s *session) note(format string, args ...any) { transport.Note(s.link, format, args...) }

// request makes a request. In the newer era each says who asks, and what can be asked
// of them; c is the call that it is for, or nil.
func (s *session) request(c *underway, method, name string, params map[string]any) request {
	s.mu.Lock()
	s.count++
	id := strconv.Itoa(s.count)
	if c != nil {
		c.token = "f" + id
	}
	s.mu.Unlock()
	filled := make(map[string]any)
	maps.Copy(filled, params)
	if meta := s.meta(c); len(meta) > 0 {
		filled["_meta"] = meta
	}
	return request{id: id, method: method, name: name, body: encode(rpc{ID: json.RawMessage(id), Method: method, Params: filled})}
}

// meta is what a request says beside what it asks for. A token of progress is a text:
// some boards know no other.
func (s *session) meta(c *underway) map[string]any {
	meta := make(map[string]any)
	if s.isModern() {
		meta["io.modelcontextprotocol/protocolVersion"] = s.version()
		meta["io.modelcontextprotocol/clientInfo"] = s.clientInfo()
		meta["io.modelcontextprotocol/clientCapabilities"] = abilities(c.askable())
	}
	if c != nil && c.call.Progress != nil {
		meta["progressToken"] = c.token
		if s.isModern() {
			meta["io.modelcontextprotocol/logLevel"] = logLevel
		}
	}
	return meta
}

// logLevel is from which on devices are asked to tell what they log.
const logLevel = "info"

func (s *session) clientInfo() map[string]any {
	return map[string]any{"name": "ferrule", "version": s.dialect.parts.Version}
}

// anybody is everybody who can be asked.
var anybody = []ferrule.AskTarget{ferrule.User, ferrule.Page, ferrule.Model, ferrule.Roots}

// abilities is whom a device may ask, in the words of MCP.
func abilities(askable []ferrule.AskTarget) map[string]any {
	able, modes, none := map[string]any{}, map[string]any{}, map[string]any{}
	for _, who := range askable {
		switch who {
		case ferrule.User:
			modes["form"] = none
		case ferrule.Page:
			modes["url"] = none
		case ferrule.Model:
			able["sampling"] = none
		case ferrule.Roots:
			able["roots"] = none
		}
	}
	if len(modes) > 0 {
		able["elicitation"] = modes
	}
	return able
}

// askable is whom a device may ask about a call.
func (c *underway) askable() []ferrule.AskTarget {
	if c == nil || c.call.Ask == nil {
		return nil
	}
	return c.call.Askable
}

// needed is whom the device would have to ask, as its error says.
func needed(e *rpcError) (who []ferrule.AskTarget) {
	var data struct {
		Required struct {
			Elicitation *struct{ URL *struct{} } `json:"elicitation"`
			Sampling    *struct{}                `json:"sampling"`
			Roots       *struct{}                `json:"roots"`
		} `json:"requiredCapabilities"`
	}
	if e.Code != codeCapability || json.Unmarshal(e.Data, &data) != nil {
		return nil
	}
	switch r := data.Required; {
	case r.Elicitation != nil && r.Elicitation.URL != nil:
		who = append(who, ferrule.Page)
	case r.Elicitation != nil:
		who = append(who, ferrule.User)
	}
	if data.Required.Sampling != nil {
		who = append(who, ferrule.Model)
	}
	if data.Required.Roots != nil {
		who = append(who, ferrule.Roots)
	}
	return who
}

// Invoke implements dialect.Session.
func (s *session) Invoke(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	act, err := s.actOf(call)
	if err != nil {
		return nil, err
	}
	ctx, over := context.WithCancel(ctx)
	defer over() // nobody is asked any longer than the call lasts
	c, err := s.begin(ctx, call)
	if err != nil {
		return nil, err
	}
	defer s.end()
	if act.follow != nil {
		return &ferrule.Result{}, act.follow(ctx, c)
	}
	return s.once(ctx, c, act)
}

// begin puts a call under way.
func (s *session) begin(ctx context.Context, call *ferrule.Call) (*underway, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if why := firstError(s.ended, s.failed); why != nil {
		return nil, ferrule.Errorf(ferrule.Offline, "the link is gone: %w", why)
	}
	if s.stale && s.renew == nil {
		return nil, ferrule.Errorf(ferrule.Offline, "%w", errChanged).WithHint("call again in a moment")
	}
	if s.call != nil {
		return nil, ferrule.Errorf(ferrule.Busy, "the device is at another call")
	}
	s.call = &underway{call: call}
	if call.Ask != nil {
		s.call.ask = func(q ferrule.Question) (ferrule.Answer, error) { return call.Ask(ctx, q) }
	}
	s.invoking.Add(1)
	return s.call, nil
}

// end is the end of the call: its caller is told nothing more, and what was put off for
// it is done.
func (s *session) end() {
	s.talk.Lock()
	defer s.talk.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.call = nil
	s.invoking.Done()
	if s.stale && s.renew == nil && s.stop != nil {
		s.stop()
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// ask asks something for a call, and makes of trouble what it means for it.
func (s *session) ask(ctx context.Context, c *underway, method, name string, params map[string]any) (message, error) {
	r := s.request(c, method, name, params)
	if tool := c.call.Target.Tool; tool != nil {
		r.harmless = tool.Repeatable()
	}
	if n := len(r.body); s.limit > 0 && n > s.limit {
		return message{}, ferrule.Errorf(ferrule.Invalid, "the request would be %d bytes long; %s is sent %d at most", n, c.call.Device, s.limit).
			WithHint("use shorter arguments")
	}
	a, err := s.courier.ask(ctx, r)
	t := (*trouble)(nil)
	switch {
	case errors.As(err, &t) && ctx.Err() != nil:
		return message{}, s.tooLate(ctx, c.call, r, t.sent)
	case errors.As(err, &t):
		return message{}, t.failure(c.call)
	case err != nil:
		return message{}, ferrule.Errorf(ferrule.Internal, "%w", err).AfterSend()
	case a.err != nil && c.call.Operation == ferrule.ReadResource && (a.err.Code == codeNoResource || a.err.Code == codeBadParams):
		return message{}, ferrule.Errorf(ferrule.NotFound, "%s has no resource %s: %w", c.call.Device, ferrule.Clean(c.call.Tool, ferrule.MaxWord), a.err)
	case a.err != nil && a.err.refused():
		e := ferrule.Errorf(ferrule.Refused, "%s refused %s: %w", c.call.Device, c.call.Tool, a.err)
		e.Needs = needed(a.err)
		return message{}, e
	case a.err != nil:
		return message{}, ferrule.Errorf(ferrule.Failed, "%s failed at %s: %w", c.call.Device, c.call.Tool, a.err)
	}
	return a, nil
}

// tooLate says why a request is waited for no longer. If it was sent, the device is
// told so, beside.
func (s *session) tooLate(ctx context.Context, call *ferrule.Call, r request, sent bool) error {
	cancelled := errors.Is(ctx.Err(), context.Canceled)
	switch {
	case !sent && cancelled:
		return ferrule.Errorf(ferrule.Cancelled, "cancelled before %s was sent", call.Tool)
	case !sent:
		return ferrule.Errorf(ferrule.Busy, "the deadline passed before %s could be sent", call.Tool)
	}
	s.cancel(ctx, r)
	if cancelled {
		return ferrule.Errorf(ferrule.Cancelled, "cancelled while %s was at %s", call.Device, call.Tool).AfterSend()
	}
	return ferrule.Errorf(ferrule.Unanswered, "%s did not answer %s within %v", call.Device, call.Tool, call.Timeout)
}

// replyTime bounds what is said beside calls.
const replyTime = 5 * time.Second

// cancel tells the device that a request is waited for no longer.
func (s *session) cancel(ctx context.Context, r request) {
	if !s.courier.cancels() {
		return
	}
	s.beside(func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), replyTime)
		defer stop()
		body := notification("notifications/cancelled", map[string]any{"requestId": json.RawMessage(r.id), "reason": "nobody waits for it any more"})
		if err := s.courier.tell(ctx, body); err != nil {
			s.note("not cancelled: %v", err)
		}
	})
}

// beside does something in a goroutine that the session waits for. A panic in it costs
// nobody else.
func (s *session) beside(do func()) {
	s.work.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				s.fail(fmt.Errorf("the gateway failed at it: %v", r))
			}
		}()
		do()
	})
}

// fail ends the conversation, because of what was found out about the device.
func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
	if s.stop != nil {
		s.stop()
	}
}

// errChanged ends a conversation whose manifest is out of date.
var errChanged = errors.New("what it offers has changed: it is greeted again")

// Changed implements dialect.Changer.
func (s *session) Changed(fn func(*ferrule.Manifest)) { s.renew = fn }

// changed reads everything that the device lists anew, beside, as often as it changes.
// If nobody wants to know, the conversation ends when no call is under way.
func (s *session) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.stale
	s.stale = true
	if s.renew != nil {
		if !before && !s.relisting && s.running != nil {
			s.beside(s.relist)
		}
		return
	}
	if s.call == nil && s.stop != nil {
		s.stop()
	}
}

// relist reads the lists anew until they are what they were when it began.
func (s *session) relist() {
	for s.running.Err() == nil {
		s.mu.Lock()
		s.relisting = true
		pause := s.pace.next(time.Now())
		s.mu.Unlock()
		sleep(s.running, pause)
		s.mu.Lock()
		s.stale = false
		s.mu.Unlock()
		m, err := s.describe(s.running, s.about)
		if s.crowdedOut(err) {
			continue
		}
		if err != nil {
			s.fail(fmt.Errorf("what it offers has changed, and cannot be read: %w", err))
			return
		}
		s.renew(m)
		s.mu.Lock()
		again := s.stale
		s.relisting = again
		s.mu.Unlock()
		if !again {
			return
		}
	}
}

// crowdedOut tells that a request of the gateway's own was not sent because the device was at
// a call all the time. That says nothing about the device, and least of all is the call to
// be ended for it.
func (s *session) crowdedOut(err error) bool {
	t := (*trouble)(nil)
	if !errors.As(err, &t) || t.sent || !t.silent {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.call != nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Run implements dialect.Session.
func (s *session) Run(ctx context.Context) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	s.mu.Lock()
	s.stop, s.running = stop, running
	s.open = func(l *listening) { s.listen(running, l) }
	switch {
	case s.failed != nil || s.stale && s.renew == nil:
		stop()
	case s.stale:
		s.beside(s.relist)
	}
	s.mu.Unlock()
	close(s.started)
	s.listenToLists()
	err := s.courier.run(running)
	stop()
	s.finish(ctx, err)
	if ctx.Err() != nil {
		return nil
	}
	return s.ended
}

// finish ends the conversation: the call under way, if there is one, gets its outcome.
func (s *session) finish(ctx context.Context, err error) {
	s.mu.Lock()
	if s.stale && s.renew == nil && s.failed == nil && err == nil {
		err = errChanged
	}
	s.ended = firstError(err, s.failed, ctx.Err())
	idle, orderly := s.call == nil, errors.Is(s.ended, errChanged) || ctx.Err() != nil && s.failed == nil
	s.mu.Unlock()
	if idle && orderly {
		s.courier.farewell(ctx)
	}
	s.link.Close()
	s.invoking.Wait()
	s.work.Wait()
}
