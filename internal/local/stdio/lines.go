package stdio

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// lines stands between a client and the server's session. It answers lines that are not
// JSON-RPC messages, which would end the session, and it holds back notifications until
// the client has initialized.
//
//	client -> Read  -> session     bad lines are answered here
//	client <- Write <- session     notifications that come too early are dropped
type lines struct {
	in   io.ReadCloser
	out  io.WriteCloser
	read *bufio.Reader
	rest []byte // of a line that the session has not read completely

	mu      sync.Mutex // serializes writes
	ready   bool       // the client has initialized, or sent a request without that
	batches bool       // the client asked for a protocol version with batches
}

func newLines(in io.ReadCloser, out io.WriteCloser) *lines {
	return &lines{in: in, out: out, read: bufio.NewReaderSize(in, 64<<10)}
}

// writer is the Write side of lines.
type writer struct{ *lines }

// Close closes the output.
func (w writer) Close() error { return w.out.Close() }

// Close closes the input.
func (l *lines) Close() error { return l.in.Close() }

// Read returns the next valid messages of the client.
func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		line, tooLong, err := l.next()
		switch line = bytes.TrimSpace(line); {
		case tooLong:
			l.answer(nil, parseError, "the line is too long")
		case len(line) > 0 && l.check(line):
			l.rest = append(line, '\n')
			continue // an error comes again with the next line
		}
		if err != nil {
			return 0, err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// next returns the next line. A line above the limit is read to its end and discarded.
func (l *lines) next() (line []byte, tooLong bool, err error) {
	for {
		part, err := l.read.ReadSlice('\n')
		if len(line)+len(part) > server.MaxLine {
			line, tooLong = nil, true
		}
		if !tooLong {
			line = append(line, part...)
		}
		if err != bufio.ErrBufferFull {
			return line, tooLong, err
		}
	}
}

// The errors of JSON-RPC.
const (
	parseError     = -32700
	invalidRequest = -32600
)

// check reports whether the session can read a line. If not, it answers the line.
func (l *lines) check(line []byte) bool {
	switch err := strictjson.Check(line); {
	case errors.Is(err, strictjson.ErrInvalid):
		l.answer(nil, parseError, "the line is not JSON; nothing was done")
		return false
	case err != nil:
		l.answer(nil, invalidRequest, "the message is not unambiguous: "+err.Error()+"; nothing was done")
		return false
	}
	if method, plain := server.PlainMessage(line); plain && method != "initialize" {
		l.note(method, "")
		return true
	}
	messages := []json.RawMessage{line}
	if line[0] == '[' {
		messages = nil
		json.Unmarshal(line, &messages) // it is valid JSON
		if l.mu.Lock(); !l.batches || len(messages) == 0 {
			messages = nil
		}
		l.mu.Unlock()
		if messages == nil {
			l.answer(nil, invalidRequest, "batches are not supported by this protocol version; send one message per line")
			return false
		}
	}
	ids := make(map[string]bool)
	for _, m := range messages {
		var head struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Version string `json:"protocolVersion"`
			} `json:"params"`
		}
		err := server.CheckMessage(m)
		json.Unmarshal(m, &head) // as far as it goes
		if id := string(head.ID); err != nil || id != "" && id != "null" && ids[id] {
			l.answer(head.ID, invalidRequest, "not a JSON-RPC message; nothing was done")
			return false
		}
		ids[string(head.ID)] = true
		l.note(head.Method, head.Params.Version)
	}
	return true
}

// note notes what a message of the client says about its session.
func (l *lines) note(method, version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch method {
	case "initialize":
		l.batches = version == "2024-11-05" || version == "2025-03-26"
	case "", "ping":
	default:
		l.ready = true
	}
}

// answer sends an error. The ID is null if it is not known.
func (l *lines) answer(id json.RawMessage, code int, text string) {
	if c := bytes.TrimSpace(id); len(c) == 0 || c[0] == '{' || c[0] == '[' || len(c) > ferrule.MaxWord {
		id = json.RawMessage("null")
	}
	data, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": text}})
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.Write(append(data, '\n')) // an error ends the session at its next write
}

// Write writes one message of the session.
func (w writer) Write(message []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ready && isNotification(message) {
		return len(message), nil // the client reads all lists after it has initialized
	}
	return w.out.Write(message)
}

func isNotification(message []byte) bool {
	var head struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	return json.Unmarshal(message, &head) == nil && head.Method != "" && head.ID == nil
}
