package endpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"

	"github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// talk is what is said on one connection. Agents on the other side give their requests
// ids as they like, alike ones too; toward the Server each has one of ours.
type talk struct {
	socket   *socket
	requests io.Writer // to the Server
	name     string
	limit    int
	log      *slog.Logger

	greeting json.RawMessage // what the Server says to initialize
	greeted  chan struct{}   // closed when it has been said
	ended    chan struct{}   // closed when the Server says no more
	end      sync.Once
	line     []byte // the beginning of one that the Server is writing
	noted    bool   // that something was dropped has been logged

	mu      sync.Mutex
	last    int64             // our last id
	waiting map[int64]request // those under way, by our id
}

// request is one that waits for its answer.
type request struct {
	id     json.RawMessage // as it came
	method string
}

// maxUnderWay is how many requests of a connection may be under way.
const maxUnderWay = 256

// maxID is the length of the longest id.
const maxID = 256

// message is one of JSON-RPC, of either side.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// The methods that are not left to the Server, or looked at.
const (
	initialize  = "initialize"
	initialized = "notifications/initialized"
	cancelled   = "notifications/cancelled"
	ping        = "ping"
	callTool    = "tools/call"
)

// The codes of errors that are made here.
const (
	codeInternal = -32603
	codeBusy     = -32000
)

func newTalk(s *socket, requests io.Writer, cfg Config, log *slog.Logger) *talk {
	return &talk{
		socket: s, requests: requests, name: cfg.Name, limit: cfg.Limit, log: log,
		greeted: make(chan struct{}), ended: make(chan struct{}), waiting: make(map[int64]request),
	}
}

// run greets the Server, and passes on what comes until the connection breaks.
func (t *talk) run() error {
	if err := t.greet(); err != nil {
		return err
	}
	for {
		data, err := t.socket.recv()
		switch {
		case errors.Is(err, errDropped):
			t.note(err.Error())
			continue
		case err != nil:
			return err
		}
		if err := t.take(data); err != nil {
			return err
		}
	}
}

// versions are those of MCP that begin with a greeting, the newest last. What is said
// here is the same in all of them, so each agent may have its own.
var versions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

// greet begins the session of this connection.
func (t *talk) greet() error {
	params := fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"endpoint","version":"1"}}`, versions[len(versions)-1])
	if err := t.pass(request{method: initialize}, json.RawMessage(params)); err != nil {
		return err
	}
	select {
	case <-t.greeted:
	case <-t.ended:
		return io.ErrClosedPipe
	}
	if t.greeting == nil {
		return errors.New("the gateway does not greet")
	}
	return t.ask(message{Method: initialized})
}

// take takes a message of the other side, or several in one.
func (t *talk) take(data []byte) error {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || data[0] != '[' {
		return t.takeOne(data)
	}
	var all []json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		t.note("a message was dropped: it is not JSON")
		return nil
	}
	for _, one := range all {
		if err := t.takeOne(one); err != nil {
			return err
		}
	}
	return nil
}

// takeOne takes one message. Answers are for nobody: nothing is asked of the other side.
func (t *talk) takeOne(data []byte) error {
	var m message
	switch err := json.Unmarshal(data, &m); {
	case err != nil:
		t.note("a message was dropped: it is not one of JSON-RPC")
	case m.Method == "":
	case m.ID == nil:
		if m.Method == cancelled {
			return t.cancel(m.Params)
		}
	case !isID(m.ID):
		t.note("a request was dropped: its id is neither a text nor a number, or too long")
	case m.Method == initialize:
		return t.answer(request{m.ID, m.Method}, message{Result: t.welcome(m.Params)})
	case m.Method == ping:
		return t.answer(request{m.ID, m.Method}, message{Result: json.RawMessage(`{}`)})
	default:
		return t.pass(request{m.ID, m.Method}, m.Params)
	}
	return nil
}

// isID tells whether a value can be the id of a request.
func isID(id json.RawMessage) bool {
	return len(id) <= maxID && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}

// note logs that something was dropped: loudly once for each connection.
func (t *talk) note(what string) {
	tell := t.log.Debug
	if !t.noted {
		tell = t.log.Warn
	}
	t.noted = true
	tell(fmt.Sprintf("endpoint %s: %s", t.name, what))
}

// welcome is the answer to an agent that greets: what the Server said to us, in the
// version that the agent asks for if it is one.
func (t *talk) welcome(params json.RawMessage) json.RawMessage {
	var asked struct {
		ProtocolVersion string
		ClientInfo      struct{ Name, Version string }
	}
	json.Unmarshal(params, &asked) // what is not there is empty
	t.log.Debug(fmt.Sprintf("endpoint %s: %s %s asks for MCP %s", t.name, ferrule.Clean(asked.ClientInfo.Name, ferrule.MaxWord),
		ferrule.Clean(asked.ClientInfo.Version, ferrule.MaxWord), ferrule.Clean(asked.ProtocolVersion, ferrule.MaxWord)))
	if !slices.Contains(versions, asked.ProtocolVersion) {
		return t.greeting
	}
	var greeting map[string]json.RawMessage
	if json.Unmarshal(t.greeting, &greeting) != nil || greeting == nil {
		return t.greeting
	}
	greeting["protocolVersion"] = encode(asked.ProtocolVersion)
	return encode(greeting)
}

// pass passes a request on to the Server, under an id of ours. A call of a tool that has
// the id of one under way is taken for the same one sent twice: the answer to that is
// the answer to both, and it is not run again.
func (t *talk) pass(r request, params json.RawMessage) error {
	t.mu.Lock()
	_, twice := t.find(r.id, callTool)
	twice = twice && r.method == callTool
	full := len(t.waiting) >= maxUnderWay
	if !twice && !full {
		t.last++
		t.waiting[t.last] = r
	}
	id := t.last
	t.mu.Unlock()
	switch {
	case twice:
		t.note("a call was dropped: one with its id is under way. It was not run again")
		return nil
	case full:
		return t.answer(r, failure(codeBusy, fmt.Sprintf("%d requests are under way here. This one was not begun: try again in a while.", maxUnderWay)))
	}
	return t.ask(message{ID: encode(id), Method: r.method, Params: params})
}

// find finds the newest request under way with an id of the other side, of a method if
// one is named. It is called with mu held.
func (t *talk) find(id json.RawMessage, method string) (ours int64, found bool) {
	for n, r := range t.waiting {
		if bytes.Equal(r.id, id) && (method == "" || r.method == method) && n > ours {
			ours, found = n, true
		}
	}
	return ours, found
}

// cancel has the Server cancel a request.
func (t *talk) cancel(params json.RawMessage) error {
	var named struct{ RequestID json.RawMessage }
	if json.Unmarshal(params, &named) != nil || named.RequestID == nil {
		return nil
	}
	t.mu.Lock()
	id, found := t.find(named.RequestID, "")
	t.mu.Unlock()
	if !found {
		return nil // it has been answered
	}
	return t.ask(message{Method: cancelled, Params: encode(map[string]int64{"requestId": id})})
}

// ask says a message to the Server.
func (t *talk) ask(m message) error {
	m.Version = "2.0"
	_, err := t.requests.Write(append(encode(m), '\n'))
	return err
}

// Write takes what the Server says, a message in each line.
func (t *talk) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		t.line, rest = append(t.line, line...), after
		if !whole {
			break
		}
		err := t.tell(t.line)
		t.line = nil
		if err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Close notes that the Server says no more.
func (t *talk) Close() error {
	t.end.Do(func() { close(t.ended) })
	return nil
}

// tell tells the other side what the Server says: an answer under the id that was asked
// with, and news if they fit.
func (t *talk) tell(line []byte) error {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return err
	}
	switch {
	case m.Method != "" && m.ID == nil && len(line) <= t.limit:
		return t.socket.send(ws.OpText, line)
	case m.Method != "" || m.ID == nil:
		return nil
	}
	var id int64
	if err := json.Unmarshal(m.ID, &id); err != nil {
		return err
	}
	t.mu.Lock()
	r, found := t.waiting[id]
	delete(t.waiting, id)
	t.mu.Unlock()
	switch {
	case !found:
		return nil
	case r.id == nil: // we have asked
		t.greeting = m.Result
		close(t.greeted)
		return nil
	}
	return t.answer(r, m)
}

// answer answers a request, in as many bytes as the other side takes.
func (t *talk) answer(r request, m message) error {
	return t.socket.send(ws.OpText, fit(r, m, t.limit))
}

// failure is an answer that says why there is none.
func failure(code int, text string) message {
	return message{Error: encode(map[string]any{"code": code, "message": text})}
}

// encode is a value as JSON, with nothing escaped that need not be.
func encode(v any) json.RawMessage {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err) // everything here can be encoded
	}
	return bytes.TrimSuffix(out.Bytes(), []byte{'\n'})
}
