package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// linesKey is the context key of the lines of a client on a pair of streams.
type linesKey struct{}

// lines is a pair of streams with one message per line, as the SDK reads and writes it. It
// passes on what the SDK drops. It works on bytes, because a wrapped connection would keep
// from the SDK which version its own connection speaks.
type lines struct {
	in     io.ReadCloser
	reader *bufio.Reader
	rest   []byte // of the line that is being read
	err    error  // after the rest

	writing sync.Mutex // no message of the gateway comes before the acknowledgment
	out     io.WriteCloser

	// direct answers a message without the SDK. It returns false if the SDK is to answer it.
	direct  func(line []byte) bool
	calls   sync.WaitGroup // that direct has begun
	workers workers

	mu      sync.Mutex
	acks    map[string]func([]byte) []byte     // by the ID of the request
	running map[string]context.CancelCauseFunc // calls that direct has begun, by the ID of the request
}

func newLines(in io.ReadCloser, out io.WriteCloser) *lines {
	return &lines{in: in, reader: bufio.NewReader(in), out: out, workers: newWorkers()}
}

// lineReader and lineWriter are the two streams, which are closed on their own.
type (
	lineReader struct{ *lines }
	lineWriter struct{ *lines }
)

func (l lineReader) Close() error { return l.in.Close() }
func (l lineWriter) Close() error { return l.out.Close() }

// Read implements io.Reader.
func (l lineReader) Read(p []byte) (int, error) {
	if len(l.rest) == 0 && l.err == nil {
		if l.rest, l.err = l.next(); l.err != nil {
			l.endCalls(l.err) // as the SDK does with its own
			l.calls.Wait()
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	if n == 0 {
		return 0, l.err
	}
	return n, nil
}

// errBatch ends a session, as an invalid message does. The SDK itself refuses batches of the
// versions between.
var errBatch = errors.New("JSON-RPC batches are not supported from 2025-06-18 on")

// next returns the next line. One that is too long comes in parts, and the SDK refuses it.
func (l *lines) next() (line []byte, err error) {
	for {
		part, err := l.reader.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(line) <= MaxLine:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return line, nil
		case bytes.HasPrefix(bytes.TrimSpace(line), []byte("[")) && bytes.Contains(line, []byte(mcp.MetaKeyProtocolVersion)):
			return nil, errBatch
		case err == nil && l.direct != nil && l.direct(line):
			line = nil
			continue
		}
		return withDropped(line), err
	}
}

// Write implements io.Writer. The SDK writes whole lines.
func (l lineWriter) Write(p []byte) (int, error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	line := p
	if bytes.Contains(p, []byte(ackMethod)) {
		line = l.acknowledged(p)
	}
	if _, err := l.out.Write(line); err != nil {
		return 0, err
	}
	return len(p), nil
}

// acknowledged returns the line of an acknowledgment, as its request wants it.
func (l *lines) acknowledged(line []byte) []byte {
	var ack struct {
		Method string `json:"method"`
		Params struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		} `json:"params"`
	}
	if json.Unmarshal(line, &ack) != nil || ack.Method != ackMethod {
		return line
	}
	id := string(ack.Params.Meta[mcp.MetaKeySubscriptionID])
	l.mu.Lock()
	rewrite := l.acks[id]
	delete(l.acks, id)
	l.mu.Unlock()
	if rewrite == nil {
		return line
	}
	return append(bytes.TrimSpace(rewrite(line)), '\n')
}

// onAck changes the acknowledgment of a request; nil leaves it as it is.
func (l *lines) onAck(id json.RawMessage, rewrite func([]byte) []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acks == nil {
		l.acks = make(map[string]func([]byte) []byte)
	}
	if rewrite == nil {
		delete(l.acks, string(id))
		return
	}
	l.acks[string(id)] = rewrite
}

// send writes a message of the gateway.
func (l *lines) send(message []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	_, err := l.out.Write(append(message, '\n'))
	return err
}

// The keys in the _meta of a request under which is passed on what the SDK drops. What a
// client sets there is replaced.
const (
	listenMeta = "ferrule/listen"
	taskMeta   = "ferrule/task"
)

// withDropped returns a message with what the SDK drops in the _meta of its parameters: the
// tasks that a request lists, and what clients of 2025-11-25 say about tasks. Any other message
// stays as it is.
func withDropped(message []byte) []byte {
	if !bytes.Contains(message, []byte(`"task`)) && !bytes.Contains(message, []byte(taskMeta)) && !bytes.Contains(message, []byte(listenMeta)) {
		return message
	}
	var all map[string]json.RawMessage
	var method string
	if json.Unmarshal(message, &all) != nil || json.Unmarshal(all["method"], &method) != nil {
		return message
	}
	if method != listenMethod && method != callMethod && method != initializeMethod || !mcphttp.OneMeaning(message) {
		return message // the SDK says what is wrong
	}
	params, ok := withMeta(method, all["id"], all["params"])
	if !ok {
		return message
	}
	all["params"] = params
	changed, err := json.Marshal(all)
	if err != nil {
		return message
	}
	if len(changed) >= MaxLine {
		return message
	}
	return append(changed, '\n')
}

// withMeta returns parameters with what the SDK drops in their _meta. Ok is false if they stay
// as they are.
func withMeta(method string, id, params json.RawMessage) (changed json.RawMessage, ok bool) {
	var members, meta map[string]json.RawMessage
	if json.Unmarshal(params, &members) != nil || members == nil || members["_meta"] != nil && json.Unmarshal(members["_meta"], &meta) != nil {
		return nil, false
	}
	key, value := taskMeta, json.RawMessage(nil)
	switch method {
	case listenMethod:
		var asked listenJSON
		if json.Unmarshal(params, &asked.Params) == nil && asked.Params.Notifications.TaskIDs != nil {
			asked.ID = id
			key, value = listenMeta, quoted(asked)
		}
	case callMethod:
		value = members["task"]
	case initializeMethod:
		var can struct {
			Tasks json.RawMessage `json:"tasks"`
		}
		if json.Unmarshal(members["capabilities"], &can) == nil {
			value = can.Tasks
		}
	}
	if meta == nil {
		meta = make(map[string]json.RawMessage)
	}
	before := len(meta)
	delete(meta, taskMeta)
	delete(meta, listenMeta)
	if len(value) == 0 && len(meta) == before {
		return nil, false
	}
	if len(value) > 0 {
		meta[key] = value
	}
	var err error
	if members["_meta"], err = json.Marshal(meta); err != nil {
		return nil, false
	}
	changed, err = json.Marshal(members)
	return changed, err == nil
}

// quoted returns a value as JSON in a JSON string; nil if it cannot be encoded.
func quoted(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	data, err := json.Marshal(string(text))
	if err != nil { // not with a string
		return nil
	}
	return data
}
