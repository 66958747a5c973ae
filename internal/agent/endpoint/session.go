package endpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/internal/agent/rpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// session translates between one connection and the Server. Several agents share the
// connection, and their request ids may be equal, so requests get new ids.
type session struct {
	socket   *socket
	requests io.Writer // to the Server
	name     string
	limit    int
	log      *slog.Logger

	initResult json.RawMessage // the Server's result of initialize
	initDone   chan struct{}   // closed when initResult is set
	ended      chan struct{}   // closed when the Server is done
	end        sync.Once
	lines      rpc.Lines // from the Server
	loggedDrop bool      // a dropped message was logged

	mu      sync.Mutex
	heard   bool              // an agent has sent something
	changed map[string][]byte // notifications of changed lists from before that, by method
	lastID  int64             // the last id we gave
	pending map[int64]request // requests by our id
}

// request is a pending request.
type request struct {
	id     json.RawMessage // as received
	method string
}

// maxPending is the maximum number of pending requests per connection.
const maxPending = 256

// Methods that are handled here, or need attention.
const (
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodCancelled   = "notifications/cancelled"
	methodPing        = "ping"
	methodCallTool    = "tools/call"
	listChanged       = "/list_changed" // how methods end
)

func newSession(at *socket, requests io.Writer, cfg Config, log *slog.Logger) *session {
	s := &session{
		socket: at, requests: requests, name: cfg.Name, limit: cfg.Limit, log: log,
		initDone: make(chan struct{}), ended: make(chan struct{}), changed: make(map[string][]byte), pending: make(map[int64]request),
	}
	s.lines.Pass = s.toAgent
	return s
}

// run initializes the Server and forwards messages until the connection breaks.
func (s *session) run() error {
	if err := s.initialize(); err != nil {
		return err
	}
	for {
		data, err := s.socket.recv()
		switch {
		case errors.Is(err, errDropped):
			s.logDropped(err.Error())
			continue
		case err != nil:
			return err
		}
		if err := s.receive(data); err != nil {
			return err
		}
	}
}

// versions are the MCP versions that begin with initialize, newest last. The messages used
// here are the same in all of them, so each agent may use its own.
var versions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

// initialize starts the session of this connection.
func (s *session) initialize() error {
	params := fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"endpoint","version":"1"}}`, versions[len(versions)-1])
	if err := s.forward(request{method: methodInitialize}, json.RawMessage(params)); err != nil {
		return err
	}
	select {
	case <-s.initDone:
	case <-s.ended:
		return io.ErrClosedPipe
	}
	if s.initResult == nil {
		return errors.New("the gateway did not answer initialize")
	}
	return s.toServer(rpc.Message{Method: methodInitialized})
}

// receive handles a message or a batch from agents.
func (s *session) receive(data []byte) error {
	data = bytes.TrimSpace(data)
	if err := strictjson.Check(data); err != nil {
		s.logDropped("dropped a message: " + err.Error())
		return nil
	}
	if data[0] != '[' {
		return s.receiveOne(data)
	}
	var all []json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		s.logDropped("dropped a message: not JSON")
		return nil
	}
	for _, one := range all {
		if err := s.receiveOne(one); err != nil {
			return err
		}
	}
	return nil
}

// receiveOne handles one message. Responses are ignored: we send no requests to agents.
func (s *session) receiveOne(data []byte) error {
	var m rpc.Message
	if err := json.Unmarshal(data, &m); err != nil {
		s.logDropped("dropped a message: not JSON-RPC")
		return nil
	}
	if err := s.hear(m.Method); err != nil {
		return err
	}
	switch {
	case m.Method == "":
	case m.ID == nil:
		if m.Method == methodCancelled {
			return s.cancel(m.Params)
		}
	case !isID(m.ID):
		s.logDropped("dropped a request: its id is not a string or number, or too long")
	case m.Method == methodInitialize:
		return s.answer(request{m.ID, m.Method}, rpc.Message{Result: s.initResultFor(m.Params)})
	case m.Method == methodPing:
		return s.answer(request{m.ID, m.Method}, rpc.Message{Result: json.RawMessage(`{}`)})
	default:
		return s.forward(request{m.ID, m.Method}, m.Params)
	}
	return nil
}

// isID reports whether a value can be a request id.
func isID(id json.RawMessage) bool {
	return len(id) <= rpc.MaxID && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}

// logDropped logs a dropped message: the first one per connection as a warning.
func (s *session) logDropped(what string) {
	log := s.log.Debug
	if !s.loggedDrop {
		log = s.log.Warn
	}
	s.loggedDrop = true
	log(fmt.Sprintf("endpoint %s: %s", s.name, what))
}

// initResultFor returns the result of initialize for an agent: the Server's own, in the
// version that the agent requested if it is known.
func (s *session) initResultFor(params json.RawMessage) json.RawMessage {
	var requested struct {
		ProtocolVersion string
		ClientInfo      struct{ Name, Version string }
	}
	json.Unmarshal(params, &requested) // missing members stay empty
	s.log.Debug(fmt.Sprintf("endpoint %s: %s %s requests MCP %s", s.name, ferrule.Clean(requested.ClientInfo.Name, ferrule.MaxWord),
		ferrule.Clean(requested.ClientInfo.Version, ferrule.MaxWord), ferrule.Clean(requested.ProtocolVersion, ferrule.MaxWord)))
	if !slices.Contains(versions, requested.ProtocolVersion) {
		return s.initResult
	}
	var result map[string]json.RawMessage
	if json.Unmarshal(s.initResult, &result) != nil || result == nil {
		return s.initResult
	}
	result["protocolVersion"] = rpc.Encode(requested.ProtocolVersion)
	return rpc.Encode(result)
}

// forward sends a request to the Server, with a new id. A tools/call with the id of a
// pending one is a duplicate: it gets no response of its own and does not run again.
func (s *session) forward(r request, params json.RawMessage) error {
	s.mu.Lock()
	_, duplicate := s.find(r.id, methodCallTool)
	duplicate = duplicate && r.method == methodCallTool
	full := len(s.pending) >= maxPending
	if !duplicate && !full {
		s.lastID++
		s.pending[s.lastID] = r
	}
	id := s.lastID
	s.mu.Unlock()
	switch {
	case duplicate:
		s.logDropped("dropped a call: one with the same id is in progress; it did not run again")
		return nil
	case full:
		return s.answer(r, failure(rpc.CodeBusy, fmt.Sprintf("%d requests are in progress. This one was not started; try again later.", maxPending)))
	}
	return s.toServer(rpc.Message{ID: rpc.Encode(id), Method: r.method, Params: params})
}

// find returns the newest pending request with an agent's id, and with a method unless it
// is empty. It is called with mu held.
func (s *session) find(id json.RawMessage, method string) (ours int64, found bool) {
	for n, r := range s.pending {
		if bytes.Equal(r.id, id) && (method == "" || r.method == method) && n > ours {
			ours, found = n, true
		}
	}
	return ours, found
}

// cancel forwards a cancellation.
func (s *session) cancel(params json.RawMessage) error {
	var named struct{ RequestID json.RawMessage }
	if json.Unmarshal(params, &named) != nil || named.RequestID == nil {
		return nil
	}
	s.mu.Lock()
	id, found := s.find(named.RequestID, "")
	s.mu.Unlock()
	if !found {
		return nil // already answered
	}
	return s.toServer(rpc.Message{Method: methodCancelled, Params: rpc.Encode(map[string]int64{"requestId": id})})
}

// toServer sends a message to the Server.
func (s *session) toServer(m rpc.Message) error {
	m.Version = "2.0"
	_, err := s.requests.Write(append(rpc.Encode(m), '\n'))
	return err
}

// Write receives messages from the Server, one per line.
func (s *session) Write(p []byte) (int, error) { return s.lines.Write(p) }

// Close records that the Server is done.
func (s *session) Close() error {
	s.end.Do(func() { close(s.ended) })
	return nil
}

// toAgent sends a message of the Server: a response with the agent's own id, or a
// notification if it is small enough.
func (s *session) toAgent(line []byte) error {
	var m rpc.Message
	if err := json.Unmarshal(line, &m); err != nil {
		return err
	}
	switch {
	case m.Method != "" && m.ID == nil:
		return s.notify(m.Method, line)
	case m.Method != "" || m.ID == nil:
		return nil
	}
	var id int64
	if err := json.Unmarshal(m.ID, &id); err != nil {
		return err
	}
	s.mu.Lock()
	r, found := s.pending[id]
	delete(s.pending, id)
	s.mu.Unlock()
	switch {
	case !found:
		return nil
	case r.id == nil: // our own initialize
		s.initResult = m.Result
		close(s.initDone)
		return nil
	}
	return s.answer(r, m)
}

// notify sends a notification, if it is small enough. While no agent has sent anything,
// there may be none, and some brokers close a connection that speaks first: changes of
// lists are kept for then.
func (s *session) notify(method string, line []byte) error {
	if len(line) > s.limit {
		return nil
	}
	s.mu.Lock()
	heard := s.heard
	if !heard && strings.HasSuffix(method, listChanged) {
		s.changed[method] = bytes.Clone(line)
	}
	s.mu.Unlock()
	if !heard {
		return nil
	}
	return s.socket.send(ws.OpText, line)
}

// hear records that there is an agent. One that does not begin with initialize was there
// before the connection, and may know an older list.
func (s *session) hear(method string) error {
	s.mu.Lock()
	changed := s.changed
	if s.heard || method == methodInitialize {
		changed = nil
	}
	s.heard, s.changed = true, nil
	s.mu.Unlock()
	for _, method := range slices.Sorted(maps.Keys(changed)) {
		if err := s.socket.send(ws.OpText, changed[method]); err != nil {
			return err
		}
	}
	return nil
}

// answer sends a response within the size limit.
func (s *session) answer(r request, m rpc.Message) error {
	return s.socket.send(ws.OpText, fit(r, m, s.limit))
}

// failure returns an error response.
func failure(code int, text string) rpc.Message {
	return rpc.Message{Error: rpc.Encode(map[string]any{"code": code, "message": text})}
}
