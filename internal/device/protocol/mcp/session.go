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

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// conn exchanges messages with a device. Its errors are *requestError.
type conn interface {
	// exchange sends a request, once, and waits for its answer. It passes other
	// messages to session.receive. It may be called concurrently.
	exchange(ctx context.Context, r request) (message, error)
	// send sends a notification or an answer.
	send(ctx context.Context, body []byte) error
	// run reads what the device sends by itself. It returns nil when ctx ends, or an
	// error when the device is gone.
	run(ctx context.Context) error
	// mustCancel reports whether an abandoned request needs a cancel notification.
	mustCancel() bool
	// connPerRequest reports whether each pending request takes a connection.
	connPerRequest() bool
	// end ends the session at the device, if there is one.
	end(ctx context.Context)
}

// session is the connection to one device: Invoke sends and waits, Run reads. At most
// one call is active.
type session struct {
	protocol   *Protocol
	link       transport.Link
	conn       conn
	mcpVersion atomic.Pointer[string]
	server     server // as of the greeting
	limit      int    // longest request in bytes; 0 for no limit
	greeted    bool
	notify     func(method string, params json.RawMessage)
	onChange   func(*ferrule.Manifest)   // gets a new manifest; may be nil
	current    func(*ferrule.Call) error // checks a call just before it is sent; may be nil

	background sync.WaitGroup // goroutines of the session
	invoking   sync.WaitGroup // calls without an outcome
	started    chan struct{}  // closed when Run starts
	replies    chan struct{}  // has an element for each request of the device that is being answered

	reporting sync.Mutex        // held while a handler is called; taken before mu
	rate      ratelimit.Limiter // of notifications

	mu            sync.Mutex
	ids           jsonrpc.IDs
	call          *activeCall        // nil if there is none
	last          *activeCall        // the last one that was not the gateway's own
	lastEnded     time.Time          // when that ended
	ended         error              // why the session has ended
	failed        error              // why the session is about to end
	stale         bool               // a list has changed
	rereading     bool               // the lists are being read
	settled       chan struct{}      // closed when the lists have been read; nil unless a call waits for it
	pace          pace               // of reading them
	reread        time.Time          // when they were last read because of a gap
	running       context.Context    // of Run; nil before
	stop          context.CancelFunc // ends Run; nil before
	open          func(l *subscription)
	subscriptions []*subscription
	tasks         map[string]string   // taskSupport by tool
	followed      map[string][]string // answered questions by the ID of the task
}

// activeCall is a call without an outcome.
type activeCall struct {
	call      *ferrule.Call
	over      chan struct{} // closed when it has ended
	token     string        // of its progress
	questions int           // of the device, so far
	ask       func(ferrule.Question) (ferrule.Answer, error)
}

func newSession(p *Protocol, link transport.Link) *session {
	s := &session{
		protocol: p, link: link, limit: link.Info().SafeWrite, ids: jsonrpc.IDs{Next: p.firstID(), Max: maxID},
		started: make(chan struct{}), replies: make(chan struct{}, maxReplies),
	}
	if h, ok := link.(transport.HTTP); ok {
		s.conn = newHTTPConn(s, h)
	} else {
		s.conn = newMessageConn(s)
	}
	return s
}

func (s *session) note(format string, args ...any) { transport.Note(s.link, format, args...) }

// newRequest returns a request. C is the call that it belongs to, or nil.
func (s *session) newRequest(c *activeCall, method, name string, params map[string]any) request {
	s.mu.Lock()
	id := strconv.Itoa(s.ids.Take())
	if c != nil {
		c.token = "f" + id
	}
	s.mu.Unlock()
	filled := make(map[string]any)
	maps.Copy(filled, params)
	if meta := s.meta(c); len(meta) > 0 {
		filled["_meta"] = meta
	}
	body := jsonrpc.Message{ID: json.RawMessage(id), Method: method, Params: jsonrpc.Marshal(filled)}.Append(nil)
	return request{id: id, method: method, name: name, body: body}
}

// meta returns the _meta of a request. A modern device gets version, client and
// capabilities with each request. The progress token is a string, because some boards
// accept nothing else.
func (s *session) meta(c *activeCall) map[string]any {
	meta := make(map[string]any)
	if s.isModern() {
		meta["io.modelcontextprotocol/protocolVersion"] = s.version()
		meta["io.modelcontextprotocol/clientInfo"] = s.clientInfo()
		capabilities := clientCapabilities(c.askable())
		if c != nil && s.taskStyle() == modernTasks {
			capabilities["extensions"] = map[string]any{tasksExtension: map[string]any{}}
		}
		meta["io.modelcontextprotocol/clientCapabilities"] = capabilities
	}
	if c != nil && c.call.Progress != nil {
		meta["progressToken"] = c.token
		if s.isModern() {
			meta["io.modelcontextprotocol/logLevel"] = logLevel
		}
	}
	return meta
}

// logLevel is the lowest level that devices are asked to log.
const logLevel = "info"

func (s *session) clientInfo() map[string]any {
	return map[string]any{"name": "ferrule", "version": s.protocol.parts.Version}
}

// allTargets is everyone who can be asked.
var allTargets = []ferrule.AskTarget{ferrule.User, ferrule.Page, ferrule.Model, ferrule.Roots}

// clientCapabilities returns the MCP capabilities for those who can be asked.
func clientCapabilities(askable []ferrule.AskTarget) map[string]any {
	capabilities, modes, none := map[string]any{}, map[string]any{}, map[string]any{}
	for _, target := range askable {
		switch target {
		case ferrule.User:
			modes["form"] = none
		case ferrule.Page:
			modes["url"] = none
		case ferrule.Model:
			capabilities["sampling"] = none
		case ferrule.Roots:
			capabilities["roots"] = none
		}
	}
	if len(modes) > 0 {
		capabilities["elicitation"] = modes
	}
	return capabilities
}

// askable returns whom a device may ask during a call.
func (c *activeCall) askable() []ferrule.AskTarget {
	if c == nil || c.call.Ask == nil {
		return nil
	}
	return c.call.Askable
}

// requiredTargets returns whom the device needs to ask, according to its error.
func requiredTargets(e *jsonrpc.Error) (targets []ferrule.AskTarget) {
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
		targets = append(targets, ferrule.Page)
	case r.Elicitation != nil:
		targets = append(targets, ferrule.User)
	}
	if data.Required.Sampling != nil {
		targets = append(targets, ferrule.Model)
	}
	if data.Required.Roots != nil {
		targets = append(targets, ferrule.Roots)
	}
	return targets
}

// Invoke implements protocol.Session.
func (s *session) Invoke(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	op, err := s.operationFor(call)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends questions that are still open
	c, err := s.begin(ctx, call)
	if err != nil {
		return nil, err
	}
	defer s.end()
	if op.subscribe != nil {
		return &ferrule.Result{}, op.subscribe(ctx, c)
	}
	return s.perform(ctx, c, op)
}

// begin sets the active call.
func (s *session) begin(ctx context.Context, call *ferrule.Call) (*activeCall, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := firstError(s.ended, s.failed); err != nil {
		return nil, jsonrpc.Gone(err)
	}
	if s.stale || s.rereading {
		return nil, ferrule.Errorf(ferrule.Offline, "%w", errChanged).WithHint("retry in a moment")
	}
	if s.current != nil {
		if err := s.current(call); err != nil {
			return nil, err
		}
	}
	if s.call != nil {
		return nil, jsonrpc.Busy(call)
	}
	s.call = &activeCall{call: call, over: make(chan struct{})}
	if call.Ask != nil {
		s.call.ask = func(q ferrule.Question) (ferrule.Answer, error) { return call.Ask(ctx, q) }
	}
	s.invoking.Add(1)
	return s.call, nil
}

// end clears the active call: its caller gets no more reports. A reconnect that waited
// for the end of the call happens now.
func (s *session) end() {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.call.call.Principal.Role != ferrule.Gateway {
		s.last, s.lastEnded = s.call, time.Now()
	}
	close(s.call.over)
	s.call = nil
	s.invoking.Done()
	if s.stale && s.onChange == nil && s.stop != nil {
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

// ask sends a request for a call. Its errors are those of the call.
func (s *session) ask(ctx context.Context, c *activeCall, method, name string, params map[string]any) (message, error) {
	r := s.newRequest(c, method, name, params)
	r.harmless = c.call.Operation != ferrule.CallTool
	if tool := c.call.Target.Tool; tool != nil {
		r.harmless = tool.Repeatable()
	}
	if n := len(r.body); s.limit > 0 && n > s.limit {
		return message{}, jsonrpc.TooLong(c.call, n, s.limit)
	}
	a, err := s.exchange(ctx, r)
	e := asRequestError(err)
	switch {
	case e != nil && e.sent && ctx.Err() != nil:
		s.cancel(ctx, r)
		return message{}, jsonrpc.WaitError(ctx, c.call)
	case e != nil:
		return message{}, e.callError(ctx, c.call)
	case err != nil:
		return message{}, ferrule.Errorf(ferrule.Internal, "%w", err).AfterSend()
	case a.Error != nil && c.call.Operation == ferrule.ReadResource && (a.Error.Code == codeNoResource || a.Error.Code == jsonrpc.CodeInvalidParams):
		return message{}, ferrule.Errorf(ferrule.NotFound, "%s has no resource %s: %w", c.call.Device, ferrule.Clean(c.call.Tool, ferrule.MaxWord), a.Error)
	case a.Error != nil:
		e := jsonrpc.AnswerError(c.call, a.Error, refused(a.Error))
		e.Needs = requiredTargets(a.Error)
		return message{}, e
	}
	return a, nil
}

// exchange sends the request of a call.
func (s *session) exchange(ctx context.Context, r request) (message, error) {
	if h, ok := s.conn.(*httpConn); ok && !r.harmless {
		if err := h.checkAlive(ctx); err != nil {
			return message{}, err
		}
	}
	return s.conn.exchange(ctx, r)
}

// replyTime limits how long a message besides calls may take.
const replyTime = 5 * time.Second

// cancel tells the device, in the background, that a request is abandoned.
func (s *session) cancel(ctx context.Context, r request) {
	if !s.conn.mustCancel() {
		return
	}
	s.inBackground(func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), replyTime)
		defer stop()
		body := notification("notifications/cancelled", map[string]any{"requestId": json.RawMessage(r.id), "reason": "nobody waits for it any more"})
		if err := s.conn.send(ctx, body); err != nil {
			s.note("not cancelled: %v", err)
		}
	})
}

// inBackground calls do in a goroutine that the session waits for. A panic ends the
// session only.
func (s *session) inBackground(do func()) {
	s.background.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				s.fail(fmt.Errorf("internal error in the gateway: %v", r))
			}
		}()
		do()
	})
}

// fail ends the session because of a problem with the device.
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

// errChanged ends a session whose manifest is outdated.
var errChanged = errors.New("its lists have changed, reconnecting")

// Changed implements protocol.Changer.
func (s *session) Changed(fn func(*ferrule.Manifest), current func(*ferrule.Call) error) {
	s.onChange, s.current = fn, current
}

// Settled implements protocol.Changer.
func (s *session) Settled(ctx context.Context) error {
	for {
		s.mu.Lock()
		if !s.stale && !s.rereading || s.onChange == nil || firstError(s.ended, s.failed) != nil {
			s.mu.Unlock()
			return nil
		}
		if s.settled == nil {
			s.settled = make(chan struct{})
		}
		settled := s.settled
		s.mu.Unlock()
		select {
		case <-settled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// letThrough lets waiting calls continue. It is called with mu held.
func (s *session) letThrough() {
	if s.settled != nil {
		close(s.settled)
		s.settled = nil
	}
}

// listChanged reads all lists again, in the background. Without a handler, it ends the
// session as soon as no call is active.
func (s *session) listChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.stale
	s.stale = true
	if s.onChange != nil {
		if !before && !s.rereading && s.running != nil {
			s.inBackground(s.rereadLists)
		}
		return
	}
	if s.call == nil && s.stop != nil {
		s.stop()
	}
}

// rereadLists reads the lists until they do not change while they are read.
func (s *session) rereadLists() {
	for s.running.Err() == nil {
		s.mu.Lock()
		s.rereading = true
		pause := s.pace.next(time.Now())
		s.mu.Unlock()
		sleep(s.running, pause)
		s.mu.Lock()
		s.stale = false
		s.mu.Unlock()
		m, err := s.readLists(s.running)
		if s.crowdedOut(err) {
			continue
		}
		if err != nil {
			s.fail(fmt.Errorf("reading its changed lists: %w", err))
			return
		}
		s.onChange(m)
		s.mu.Lock()
		again := s.stale
		if s.rereading = again; !again {
			s.letThrough()
		}
		s.mu.Unlock()
		if !again {
			return
		}
	}
}

// crowdedOut reports whether a request of the gateway's own was not sent because of a
// call that is still active. This is not a failure of the device, and must not end the
// call.
func (s *session) crowdedOut(err error) bool {
	e := asRequestError(err)
	if e == nil || e.sent || !e.silent {
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

// Run implements protocol.Session.
func (s *session) Run(ctx context.Context) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	s.mu.Lock()
	s.stop, s.running = stop, running
	s.open = func(l *subscription) { s.listen(running, l) }
	switch {
	case s.failed != nil || s.stale && s.onChange == nil:
		stop()
	case s.stale:
		s.inBackground(s.rereadLists)
	}
	s.mu.Unlock()
	close(s.started)
	s.subscribeToLists()
	err := s.conn.run(running)
	stop()
	s.finish(ctx, err)
	if ctx.Err() != nil {
		return nil
	}
	return s.ended
}

// finish ends the session. An active call gets its outcome.
func (s *session) finish(ctx context.Context, err error) {
	s.mu.Lock()
	if s.stale && s.onChange == nil && s.failed == nil && err == nil {
		err = errChanged
	}
	s.ended = firstError(err, s.failed, ctx.Err())
	s.letThrough()
	idle, orderly := s.call == nil, errors.Is(s.ended, errChanged) || ctx.Err() != nil && s.failed == nil
	s.mu.Unlock()
	if idle && orderly {
		s.conn.end(ctx)
	}
	s.link.Close()
	s.invoking.Wait()
	s.background.Wait()
}
