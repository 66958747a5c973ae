package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// boardSession is one client of one board.
type boardSession struct {
	net.Conn
	board      *Board
	behavior   Behavior
	number     int // number of the client
	requests   int // of this client
	lists      int // of them, list_tools
	background sync.WaitGroup
}

// run serves the client until it is gone or ctx ends, and closes the connection.
func (c *boardSession) run(ctx context.Context) {
	defer c.background.Wait()
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if c.behavior.begin != nil && c.behavior.begin(ctx, c) != nil {
		return
	}
	if c.behavior.chunk > 0 {
		c.readChunks(ctx)
		return
	}
	in := bufio.NewReaderSize(c, c.board.model.line)
	for {
		line, err := c.readLine(in)
		if err != nil {
			return
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if c.handle(ctx, line) != nil {
			return
		}
	}
}

// readLine returns the next line. What does not fit the buffer is a request as well, and what
// is there after a second of silence with firmware 1.0.
func (c *boardSession) readLine(in *bufio.Reader) ([]byte, error) {
	if wait := c.board.model.silence; wait > 0 {
		if _, err := in.Peek(1); err != nil {
			return nil, err
		}
		c.SetReadDeadline(time.Now().Add(wait))
		defer c.SetReadDeadline(time.Time{})
	}
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) || errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return line, err
}

// readChunks reads as library 1.1 and later do: it takes what has arrived for a request, up to
// the end of a line, and keeps nothing. Text after the first JSON value is ignored.
func (c *boardSession) readChunks(ctx context.Context) {
	arrived := make([]byte, 4<<10)
	for {
		n, err := c.Read(arrived)
		if err != nil {
			return
		}
		for rest := range slices.Chunk(arrived[:n], min(n, c.behavior.chunk)) {
			for len(rest) > 0 {
				size := min(len(rest), c.board.model.line)
				if end := bytes.IndexByte(rest[:size], '\n'); end >= 0 {
					size = end + 1
				}
				if c.takeChunk(ctx, bytes.TrimRight(rest[:size], "\r\n")) != nil {
					return
				}
				rest = rest[size:]
			}
		}
	}
}

// takeChunk answers what has arrived.
func (c *boardSession) takeChunk(ctx context.Context, chunk []byte) error {
	if len(chunk) == 0 {
		return nil
	}
	var value json.RawMessage
	if json.NewDecoder(bytes.NewReader(chunk)).Decode(&value) != nil {
		value = chunk
	} else if value[0] != '{' {
		return c.write(fail(0, -32600, "Invalid request"))
	}
	return c.handle(ctx, value)
}

// handle answers a request.
func (c *boardSession) handle(ctx context.Context, line []byte) error {
	c.requests++
	switch req := parseRequest(line); {
	case req.isCall():
		c.board.calls++
	case req.Method == "list_tools":
		c.lists++
	}
	if c.behavior.request != nil {
		return c.behavior.request(ctx, c, line)
	}
	return c.answer(ctx, line)
}

// answer answers a request; the behavior may change the answer.
func (c *boardSession) answer(ctx context.Context, line []byte) error {
	req := parseRequest(line)
	if req.ID > c.board.model.maxID {
		return nil
	}
	answer := c.board.Answer(ctx, c.board.model.parse(line))
	if answer == nil {
		return nil
	}
	if change := c.behavior.results[req.Method]; change != nil {
		answer = changeResult(answer, func(result map[string]any) { change(c, result) })
	}
	if c.behavior.answer != nil {
		return c.behavior.answer(ctx, c, req, string(answer))
	}
	return c.write(string(answer))
}

// write writes text unchanged.
func (c *boardSession) write(text string) error {
	_, err := c.Write([]byte(text))
	return err
}

// trickle writes text in small parts with pauses.
func (c *boardSession) trickle(ctx context.Context, text string, size int, pause time.Duration) error {
	for piece := range slices.Chunk([]byte(text), size) {
		if _, err := c.Write(piece); err != nil {
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
	return nil
}

// sleep waits, or returns the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// request has the parts of a request that behaviors need.
type request struct {
	ID     int    `json:"id"`
	Method string `json:"method"`
}

func parseRequest(line []byte) (r request) {
	json.Unmarshal(line, &r) // an invalid request has no method
	return r
}

// isCall reports whether a request calls a tool.
func (r request) isCall() bool {
	return r.Method != "" && r.Method != "get_info" && r.Method != "list_tools"
}

// succeed returns an answer as firmware writes it.
func succeed(id int, result any) string {
	data, err := json.Marshal(result)
	if err != nil { // cannot happen: results are JSON values
		panic(err)
	}
	return fmt.Sprintf("{\"result\":%s,\"jsonrpc\":\"2.0\",\"id\":%d}\r\n", data, id)
}

// fail returns an error as firmware writes it.
func fail(id, code int, message string) string {
	return fmt.Sprintf("{\"jsonrpc\":\"2.0\",\"id\":%d,\"error\":{\"code\":%d,\"message\":%q}}\r\n", id, code, message)
}

// changeResult changes the result of an answer. An error stays unchanged.
func changeResult(answer []byte, change func(result map[string]any)) []byte {
	var message struct {
		ID     int            `json:"id"`
		Result map[string]any `json:"result"`
	}
	if json.Unmarshal(answer, &message) != nil || message.Result == nil {
		return answer
	}
	change(message.Result)
	return []byte(succeed(message.ID, message.Result))
}
