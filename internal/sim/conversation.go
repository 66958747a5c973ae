package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// conversation is one client with one board.
type conversation struct {
	net.Conn
	board     *Board
	behaviour Behavior
	number    int            // how many clients there have been
	requests  int            // how many requests this one has made
	lists     int            // and how many of them for the list
	beside    sync.WaitGroup // what the behaviour does beside answering
}

// run talks until the client is gone or ctx ends, and closes the connection.
func (c *conversation) run(ctx context.Context) {
	defer c.beside.Wait()
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if c.behaviour.begin != nil && c.behaviour.begin(ctx, c) != nil {
		return
	}
	in := bufio.NewReaderSize(c, c.board.model.line)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if c.hear(ctx, line) != nil {
			return
		}
	}
}

// hear has a request answered.
func (c *conversation) hear(ctx context.Context, line []byte) error {
	c.requests++
	switch req := parseRequest(line); {
	case req.isCall():
		c.board.calls++
	case req.Method == "list_tools":
		c.lists++
	}
	if c.behaviour.request != nil {
		return c.behaviour.request(ctx, c, line)
	}
	return c.answer(ctx, line)
}

// answer has the board answer a request, and the behaviour write the answer.
func (c *conversation) answer(ctx context.Context, line []byte) error {
	req := parseRequest(line)
	if req.ID > c.board.model.maxID {
		return nil
	}
	answer := c.board.Answer(ctx, c.board.model.take(line))
	if answer == nil {
		return nil
	}
	if change := c.behaviour.results[req.Method]; change != nil {
		answer = changed(answer, func(result map[string]any) { change(c, result) })
	}
	if c.behaviour.answer != nil {
		return c.behaviour.answer(ctx, c, req, string(answer))
	}
	return c.say(string(answer))
}

// say writes text as it is.
func (c *conversation) say(text string) error {
	_, err := c.Write([]byte(text))
	return err
}

// trickle writes text in pieces of a size, and pauses after each.
func (c *conversation) trickle(ctx context.Context, text string, size int, pause time.Duration) error {
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

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// request is what a behaviour wants to know of a request.
type request struct {
	ID     int    `json:"id"`
	Method string `json:"method"`
}

func parseRequest(line []byte) (r request) {
	json.Unmarshal(line, &r) // what cannot be read has no method
	return r
}

// isCall tells a tool from the greeting, and from what cannot be read.
func (r request) isCall() bool {
	return r.Method != "" && r.Method != "get_info" && r.Method != "list_tools"
}

// succeed is an answer as firmware writes it.
func succeed(id int, result any) string {
	data, err := json.Marshal(result)
	if err != nil { // it came from JSON, or is written here
		panic(err)
	}
	return fmt.Sprintf("{\"result\":%s,\"jsonrpc\":\"2.0\",\"id\":%d}\r\n", data, id)
}

// fail is an error as firmware writes it.
func fail(id, code int, message string) string {
	return fmt.Sprintf("{\"jsonrpc\":\"2.0\",\"id\":%d,\"error\":{\"code\":%d,\"message\":%q}}\r\n", id, code, message)
}

// changed is an answer with another result. An error stays as it is.
func changed(answer []byte, change func(result map[string]any)) []byte {
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
