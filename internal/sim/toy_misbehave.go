package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// ToyBehaviour is a way in which voice toys are known to behave, beside the usual.
type ToyBehavior struct {
	Name string
	Text string

	tools     func(f toyFirmware) // declares other tools than the usual
	visit     string              // what it asks for its settings with; empty for the usual
	hello     func(ctx context.Context, c *talk) error
	message   func(ctx context.Context, c *talk, req toyRequest, message []byte) error
	answer    func(ctx context.Context, c *talk, req toyRequest, answer []byte) error
	beside    func(ctx context.Context, c *talk) // what it does all the time
	forgets   bool                               // opens another connection and leaves the last one open
	impatient bool                               // does so after two minutes without a message
	leaves    bool                               // does so when it is told to by leave
	storms    bool                               // connects again at once
}

// ToyBehaviours lists every behaviour by name.
func ToyBehaviors() []ToyBehavior {
	all := slices.Concat(toyGreetings, toyLists, toyAnswers, toyLinks)
	slices.SortFunc(all, func(a, b ToyBehavior) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func findToyBehaviour(name string) (ToyBehavior, error) {
	if name == "" {
		return ToyBehavior{}, nil
	}
	var names []string
	for _, b := range ToyBehaviors() {
		if b.Name == name {
			return b, nil
		}
		names = append(names, b.Name)
	}
	return ToyBehavior{}, fmt.Errorf("no toy misbehaves by %q; there are %s", name, strings.Join(names, ", "))
}

func isEOF(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed)
}

// toyGreetings say hello in another way, or other things beside.
var toyGreetings = []ToyBehavior{
	{
		Name: "old-firmware", Text: "is firmware 1.6.2, which has no MCP",
		hello: func(ctx context.Context, c *talk) error {
			return c.say(ctx, []byte(`{"type":"hello","version":1,"transport":"websocket","audio_params":{"format":"opus","sample_rate":16000,"channels":1,"frame_duration":60}}`),
				[]byte(`{"session_id":"","type":"iot","update":true,"descriptors":[{"name":"Speaker"}]}`))
		},
		message: func(context.Context, *talk, toyRequest, []byte) error { return nil },
	},
	{
		Name: "hello-late", Text: "says hello after it has answered initialize",
		hello: func(context.Context, *talk) error { return nil },
		answer: func(ctx context.Context, c *talk, req toyRequest, answer []byte) error {
			if req.Method == "initialize" {
				return c.say(ctx, answer, c.toy.Hello("websocket"))
			}
			return c.say(ctx, answer)
		},
	},
	{
		Name: "hello-again", Text: "says hello again before each answer to a call",
		answer: toyCalls(func(ctx context.Context, c *talk, _ toyRequest, answer []byte) error {
			return c.say(ctx, c.toy.Hello("websocket"), answer)
		}),
	},
	{
		Name: "wants-to-talk", Text: "is on MQTT, and wants to speak over UDP",
		hello: func(ctx context.Context, c *talk) error { return c.say(ctx, c.toy.Hello("udp")) },
	},
	{
		Name: "stale-session", Text: "answers with the session_id of a connection before",
		answer: func(ctx context.Context, c *talk, _ toyRequest, answer []byte) error {
			_, rest, _ := bytes.Cut(answer, []byte(`,`))
			return c.say(ctx, append([]byte(`{"session_id":"of-yesterday",`), rest...))
		},
	},
	{
		Name: "sound", Text: "sends sound all the time, 50 frames in three seconds, in all three framings, and says what voice toys say",
		beside: stream,
		answer: func(ctx context.Context, c *talk, _ toyRequest, answer []byte) error {
			return c.say(ctx, []byte(`{"session_id":"","type":"listen","state":"detect","text":"say "hi""}`),
				[]byte(`{"session_id":"","type":"listen","state":"start","mode":"auto"}`), answer,
				[]byte(`{"session_id":"","type":"abort","reason":"wake_word_detected"}`), []byte(`{"type":"udp_timeout"}`))
		},
	},
	{
		Name: "ping", Text: "sends pings, as some forks do",
		answer: func(ctx context.Context, c *talk, _ toyRequest, answer []byte) error {
			return c.say(ctx, []byte(`{"type":"ping"}`), answer)
		},
	},
	{
		Name: "notifies", Text: "tells of its state by itself, as custom firmware does",
		answer: func(ctx context.Context, c *talk, _ toyRequest, answer []byte) error {
			return c.say(ctx, c.reply(`{"jsonrpc":"2.0","method":"notifications/state_changed","params":{"newState":"idle","oldState":"connecting"}}`), answer)
		},
	},
	{
		Name: "talkative", Text: "tells of its state by itself, a hundred times a second",
		hello: func(ctx context.Context, c *talk) error {
			err := c.say(ctx, c.toy.Hello("websocket"))
			c.beside.Go(func() { c.tellAll(ctx) })
			return err
		},
	},
}

// tellAll tells of the toy's state again and again, beside answering, until ctx ends.
func (c *talk) tellAll(ctx context.Context) {
	for n := 0; ; n++ {
		if c.say(ctx, c.reply(`{"jsonrpc":"2.0","method":"notifications/state_changed","params":{"count":%d}}`, n)) != nil || sleep(ctx, 10*time.Millisecond) != nil {
			return
		}
	}
}

// frameTime is how much sound a frame has.
const frameTime = 60 * time.Millisecond

// stream sends sound as somebody speaks.
func stream(ctx context.Context, c *talk) {
	opus := bytes.Repeat([]byte{0x48, 0xe3}, 40)
	v2 := append([]byte{0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0, byte(len(opus))}, opus...)
	v3 := append([]byte{0, 0, 0, byte(len(opus))}, opus...)
	for n := 0; sleep(ctx, frameTime) == nil; n++ {
		if c.sound(ctx, [][]byte{opus, v2, v3, []byte(`{"type":"mcp"}`)}[n%4]) != nil {
			return
		}
	}
}

// toyLists list their tools badly.
var toyLists = []ToyBehavior{
	{Name: "no-tools", Text: "has no tools", tools: func(toyFirmware) {}},
	{Name: "user-tools", Text: "has tools for users only", tools: toyFirmware.userTools},
	{Name: "long-list", Text: "has so many tools that its list comes in pages", tools: func(f toyFirmware) { f.commonTools(); f.many(100); f.userTools() }},
	{
		Name: "long-tool", Text: "has a tool in mid list that is longer than a page",
		tools: func(f toyFirmware) {
			f.commonTools()
			f.tool("self.huge", strings.Repeat("long ", 1700), nil, (*Toy).status)
			f.userTools()
		},
	},
	{
		Name: "long-user-tool", Text: "has a tool for users that is longer than a page, before those for everybody",
		tools: func(f toyFirmware) {
			f.tool("self.huge", strings.Repeat("long ", 1700), nil, (*Toy).status, thing.UserOnly())
			f.commonTools()
		},
	},
	{
		Name: "page-loop", Text: "lists the same page again and again",
		answer: func(ctx context.Context, c *talk, req toyRequest, answer []byte) error {
			if req.Method == "tools/list" {
				answer = c.reply(`{"jsonrpc":"2.0","id":%d,"result":{"tools":[{"name":"self.a","description":"","inputSchema":{"type":"object","properties":{}}}],"nextCursor":"self.a"}}`, req.ID)
			}
			return c.say(ctx, answer)
		},
	},
	{
		Name: "lost-cursor", Text: "forgets the tool that a page begins with, once",
		tools: func(f toyFirmware) { f.commonTools(); f.many(100) },
		message: func(ctx context.Context, c *talk, req toyRequest, message []byte) error {
			if c.toy.listed() == 2 && req.Params.Cursor != "" {
				return c.say(ctx, c.reply(`{"jsonrpc":"2.0","id":%d,"error":{"message":"Failed to add tool  because of payload size limit"}}`, req.ID))
			}
			return c.answer(ctx, req, message)
		},
	},
}

// listed tells how many lists it was asked for.
func (t *Toy) listed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lists
}

// many declares more tools.
func (f toyFirmware) many(count int) {
	for n := range count {
		f.tool(fmt.Sprintf("self.scene.play_%d", n), "One of many, with a text as long as makers write them when nobody stops them", nil, (*Toy).status)
	}
}

// toyCalls answers calls in its own way, and all else as it should be.
func toyCalls(write func(ctx context.Context, c *talk, req toyRequest, answer []byte) error) func(context.Context, *talk, toyRequest, []byte) error {
	return func(ctx context.Context, c *talk, req toyRequest, answer []byte) error {
		if req.isCall() {
			return write(ctx, c, req, answer)
		}
		return c.say(ctx, answer)
	}
}

// toyAnswers answer calls badly.
var toyAnswers = []ToyBehavior{
	{
		Name: "unescaped", Text: "fails every call, with quotes in the text that are not escaped",
		answer: toyCalls(func(ctx context.Context, c *talk, req toyRequest, _ []byte) error {
			return c.say(ctx, c.reply(`{"jsonrpc":"2.0","id":%d,"error":{"message":"Failed to open "/dev/motor\0""}}`, req.ID))
		}),
	},
	{
		Name: "failing", Text: "tries every call and fails",
		answer: toyCalls(func(ctx context.Context, c *talk, req toyRequest, _ []byte) error {
			return c.say(ctx, c.reply(`{"jsonrpc":"2.0","id":%d,"error":{"message":"Motor blocked"}}`, req.ID))
		}),
	},
	{
		Name: "says-false", Text: "answers every call with the text false",
		answer: toyCalls(func(ctx context.Context, c *talk, req toyRequest, _ []byte) error {
			return c.say(ctx, c.text(req.ID, "false"))
		}),
	},
	{
		Name: "late", Text: "answers calls three seconds late",
		answer: toyCalls(func(ctx context.Context, c *talk, _ toyRequest, answer []byte) error {
			if err := sleep(ctx, 3*time.Second); err != nil {
				return err
			}
			return c.say(ctx, answer)
		}),
	},
	{
		Name: "queued", Text: "answers a call when the next one has run, or after two seconds",
		answer: toyCalls(func(ctx context.Context, c *talk, _ toyRequest, answer []byte) error {
			if before := c.take(); before != nil {
				return c.say(ctx, before, answer)
			}
			c.hold(answer)
			c.beside.Go(func() {
				if sleep(ctx, 2*time.Second) == nil {
					if held := c.take(); held != nil {
						c.say(ctx, held)
					}
				}
			})
			return nil
		}),
	},
	{
		Name: "silent", Text: "does what it is told, and its answer is too long to be sent; then it connects again, and leaves the last connection open",
		leaves: true,
		answer: toyCalls(func(ctx context.Context, c *talk, req toyRequest, _ []byte) error {
			err := c.say(ctx, c.text(req.ID, strings.Repeat("long ", 14_000)))
			if errors.Is(err, xiaozhi.ErrTooLong) {
				c.leave() // firmware takes that for an error of the server
				return nil
			}
			return err
		}),
	},
	{
		Name: "other-ids", Text: "answers for others around each answer, with ids of every sort",
		answer: func(ctx context.Context, c *talk, req toyRequest, answer []byte) error {
			return c.say(ctx, c.text(2147483647, "other"), c.text(req.ID+1, "other"),
				c.reply(`{"jsonrpc":"2.0","id":"%d","result":"other"}`, req.ID), answer, c.text(req.ID, "again"))
		},
	},
	{
		Name: "bare", Text: "answers without an envelope, and tells every client what it tells the others",
		answer: func(ctx context.Context, c *talk, req toyRequest, answer []byte) error {
			var m struct{ Payload json.RawMessage }
			if err := json.Unmarshal(answer, &m); err != nil {
				return err
			}
			return c.say(ctx, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{}}`, req.ID+100), m.Payload)
		},
	},
}

// hold keeps an answer, and take gives it away.
func (c *talk) hold(answer []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = answer
}

func (c *talk) take() (held []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held, c.held = c.held, nil
	return held
}

// toyLinks lose their connection, or keep it too long.
var toyLinks = []ToyBehavior{
	{
		Name: "half-open", Text: "vanishes after six requests: the connection stays, and nobody is there",
		message: func(ctx context.Context, c *talk, req toyRequest, message []byte) error {
			if c.requests > 6 {
				c.toy.unplug()
				return nil
			}
			return c.answer(ctx, req, message)
		},
	},
	{
		Name: "hang-up", Text: "ends the connection without a farewell instead of every third answer to a call",
		answer: toyCalls(func(ctx context.Context, c *talk, _ toyRequest, answer []byte) error {
			if c.calls%3 == 0 {
				return errHangUp
			}
			return c.say(ctx, answer)
		}),
	},
	{Name: "second-socket", Text: "connects again every few seconds, and leaves its last connection open", forgets: true},
	{Name: "impatient", Text: "connects again after two minutes without a message, and leaves its last connection open", impatient: true},
	{Name: "storm", Text: "connects again at once, as a thousand do when a gateway is started anew", storms: true},
	{
		Name: "odd-visit", Text: "asks for its settings with members of other types than usual, and without some",
		visit: `{"version":"2","flash_size":"16777216","minimum_free_heap_size":8318916,"mac_address":null,"uuid":7,"application":["xiaozhi"],"board":"ml307","chip_info":null,"partition_table":{}}`,
	},
}
