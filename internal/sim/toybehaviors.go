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

// ToyBehavior is a fault or a variant of voice toys.
type ToyBehavior struct {
	Name string
	Text string

	tools      func(f toyFirmware) // declares other tools than usual
	checkIn    string              // the body of its check-in request; empty for the usual one
	hello      func(ctx context.Context, c *toySession) error
	message    func(ctx context.Context, c *toySession, req toyRequest, message []byte) error
	answer     func(ctx context.Context, c *toySession, req toyRequest, answer []byte) error
	background func(ctx context.Context, c *toySession) // runs during the session
	overlaps   bool                                     // opens another connection and leaves the last one open
	impatient  bool                                     // does so after two minutes without a message
	leaves     bool                                     // does so after a call of leave
	hurries    bool                                     // reconnects at once
}

// ToyBehaviors returns all behaviors, sorted by name.
func ToyBehaviors() []ToyBehavior {
	all := slices.Concat(toyGreetings, toyLists, toyAnswers, toyLinks)
	slices.SortFunc(all, func(a, b ToyBehavior) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func findToyBehavior(name string) (ToyBehavior, error) {
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
	return ToyBehavior{}, fmt.Errorf("unknown misbehavior %q: must be one of %s", name, strings.Join(names, ", "))
}

func isEOF(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed)
}

// toyGreetings say hello differently, or send additional messages.
var toyGreetings = []ToyBehavior{
	{
		Name: "old-firmware", Text: "has firmware 1.6.2, without MCP",
		hello: func(ctx context.Context, c *toySession) error {
			return c.send(ctx, []byte(`{"type":"hello","version":1,"transport":"websocket","audio_params":{"format":"opus","sample_rate":16000,"channels":1,"frame_duration":60}}`),
				[]byte(`{"session_id":"","type":"iot","update":true,"descriptors":[{"name":"Speaker"}]}`))
		},
		message: func(context.Context, *toySession, toyRequest, []byte) error { return nil },
	},
	{
		Name: "hello-late", Text: "says hello after its answer to initialize",
		hello: func(context.Context, *toySession) error { return nil },
		answer: func(ctx context.Context, c *toySession, req toyRequest, answer []byte) error {
			if req.Method == "initialize" {
				return c.send(ctx, answer, c.toy.Hello("websocket"))
			}
			return c.send(ctx, answer)
		},
	},
	{
		Name: "strict-hello", Text: "drops a WebSocket if its hello is not answered within ten seconds, or without a transport",
		background: func(ctx context.Context, c *toySession) {
			if c.first && sleep(ctx, helloTimeout) == nil && !c.greeted.Load() {
				c.conn.Close()
			}
		},
		message: func(ctx context.Context, c *toySession, req toyRequest, message []byte) error {
			var m struct{ Type, Transport string }
			if json.Unmarshal(message, &m) == nil && m.Type == "hello" {
				if m.Transport == "" {
					return errHangUp // firmware crashes
				}
				c.greeted.Store(true)
			}
			return c.answer(ctx, req, message)
		},
	},
	{
		Name: "hello-again", Text: "says hello again before each answer to a call",
		answer: toyCalls(func(ctx context.Context, c *toySession, _ toyRequest, answer []byte) error {
			return c.send(ctx, c.toy.Hello("websocket"), answer)
		}),
	},
	{
		Name: "wants-to-talk", Text: "is connected by MQTT and asks for audio over UDP",
		hello: func(ctx context.Context, c *toySession) error { return c.send(ctx, c.toy.Hello("udp")) },
	},
	{
		Name: "stale-session", Text: "answers with the session_id of an earlier connection",
		answer: func(ctx context.Context, c *toySession, _ toyRequest, answer []byte) error {
			_, rest, _ := bytes.Cut(answer, []byte(`,`))
			return c.send(ctx, append([]byte(`{"session_id":"of-yesterday",`), rest...))
		},
	},
	{
		Name: "sound", Text: "streams audio all the time, in all three framings, and sends the messages of voice toys",
		background: streamAudio,
		answer: func(ctx context.Context, c *toySession, _ toyRequest, answer []byte) error {
			return c.send(ctx, []byte(`{"session_id":"","type":"listen","state":"detect","text":"say "hi""}`),
				[]byte(`{"session_id":"","type":"listen","state":"start","mode":"auto"}`), answer,
				[]byte(`{"session_id":"","type":"abort","reason":"wake_word_detected"}`), []byte(`{"type":"udp_timeout"}`))
		},
	},
	{
		Name: "ping", Text: "sends pings, as some forks do",
		answer: func(ctx context.Context, c *toySession, _ toyRequest, answer []byte) error {
			return c.send(ctx, []byte(`{"type":"ping"}`), answer)
		},
	},
	{
		Name: "notifies", Text: "sends notifications of its state, as custom firmware does",
		answer: func(ctx context.Context, c *toySession, _ toyRequest, answer []byte) error {
			return c.send(ctx, c.reply(`{"jsonrpc":"2.0","method":"notifications/state_changed","params":{"newState":"idle","oldState":"connecting"}}`), answer)
		},
	},
	{
		Name: "talkative", Text: "sends a hundred notifications of its state per second",
		hello: func(ctx context.Context, c *toySession) error {
			err := c.send(ctx, c.toy.Hello("websocket"))
			c.background.Go(func() { c.sendStates(ctx) })
			return err
		},
	},
}

// sendStates sends notifications until ctx ends.
func (c *toySession) sendStates(ctx context.Context) {
	for n := 0; ; n++ {
		if c.send(ctx, c.reply(`{"jsonrpc":"2.0","method":"notifications/state_changed","params":{"count":%d}}`, n)) != nil || sleep(ctx, 10*time.Millisecond) != nil {
			return
		}
	}
}

// frameTime is the length of an audio frame.
const frameTime = 60 * time.Millisecond

// streamAudio sends audio frames in real time.
func streamAudio(ctx context.Context, c *toySession) {
	opus := bytes.Repeat([]byte{0x48, 0xe3}, 40)
	v2 := append([]byte{0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0, byte(len(opus))}, opus...)
	v3 := append([]byte{0, 0, 0, byte(len(opus))}, opus...)
	for n := 0; sleep(ctx, frameTime) == nil; n++ {
		if c.sendAudio(ctx, [][]byte{opus, v2, v3, []byte(`{"type":"mcp"}`)}[n%4]) != nil {
			return
		}
	}
}

// toyLists have faulty lists of tools.
var toyLists = []ToyBehavior{
	{Name: "no-tools", Text: "has no tools", tools: func(toyFirmware) {}},
	{Name: "user-tools", Text: "has tools for people only", tools: toyFirmware.userTools},
	{Name: "long-list", Text: "has so many tools that its list has several pages", tools: func(f toyFirmware) { f.commonTools(); f.manyTools(100); f.userTools() }},
	{
		Name: "long-tool", Text: "has a tool in the middle of the list that is longer than a page",
		tools: func(f toyFirmware) {
			f.commonTools()
			f.tool("self.huge", strings.Repeat("long ", 1700), nil, (*Toy).status)
			f.userTools()
		},
	},
	{
		Name: "long-user-tool", Text: "has a tool for people that is longer than a page, before the other tools",
		tools: func(f toyFirmware) {
			f.tool("self.huge", strings.Repeat("long ", 1700), nil, (*Toy).status, thing.UserOnly())
			f.commonTools()
		},
	},
	{
		Name: "page-loop", Text: "returns the same page again and again",
		answer: func(ctx context.Context, c *toySession, req toyRequest, answer []byte) error {
			if req.Method == "tools/list" {
				answer = c.reply(`{"jsonrpc":"2.0","id":%d,"result":{"tools":[{"name":"self.a","description":"","inputSchema":{"type":"object","properties":{}}}],"nextCursor":"self.a"}}`, req.ID)
			}
			return c.send(ctx, answer)
		},
	},
	{
		Name: "lost-cursor", Text: "rejects the cursor of a page once",
		tools: func(f toyFirmware) { f.commonTools(); f.manyTools(100) },
		message: func(ctx context.Context, c *toySession, req toyRequest, message []byte) error {
			if c.toy.listRequests() == 2 && req.Params.Cursor != "" {
				return c.send(ctx, c.reply(`{"jsonrpc":"2.0","id":%d,"error":{"message":"Failed to add tool  because of payload size limit"}}`, req.ID))
			}
			return c.answer(ctx, req, message)
		},
	},
}

// listRequests returns the number of tools/list requests.
func (t *Toy) listRequests() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lists
}

// manyTools declares additional tools.
func (f toyFirmware) manyTools(count int) {
	for n := range count {
		f.tool(fmt.Sprintf("self.scene.play_%d", n), "One of many, with a text as long as makers write them when nobody stops them", nil, (*Toy).status)
	}
}

// toyCalls applies to the answers of calls only.
func toyCalls(write func(ctx context.Context, c *toySession, req toyRequest, answer []byte) error) func(context.Context, *toySession, toyRequest, []byte) error {
	return func(ctx context.Context, c *toySession, req toyRequest, answer []byte) error {
		if req.isCall() {
			return write(ctx, c, req, answer)
		}
		return c.send(ctx, answer)
	}
}

// toyAnswers are faulty answers to calls.
var toyAnswers = []ToyBehavior{
	{
		Name: "unescaped", Text: "fails every call, with unescaped quotes in the message",
		answer: toyCalls(func(ctx context.Context, c *toySession, req toyRequest, _ []byte) error {
			return c.send(ctx, c.reply(`{"jsonrpc":"2.0","id":%d,"error":{"message":"Failed to open "/dev/motor\0""}}`, req.ID))
		}),
	},
	{
		Name: "failing", Text: "tries every call and fails",
		answer: toyCalls(func(ctx context.Context, c *toySession, req toyRequest, _ []byte) error {
			return c.send(ctx, c.reply(`{"jsonrpc":"2.0","id":%d,"error":{"message":"Motor blocked"}}`, req.ID))
		}),
	},
	{
		Name: "says-false", Text: "answers every call with the text false",
		answer: toyCalls(func(ctx context.Context, c *toySession, req toyRequest, _ []byte) error {
			return c.send(ctx, c.text(req.ID, "false"))
		}),
	},
	{
		Name: "late", Text: "answers calls three seconds late",
		answer: toyCalls(func(ctx context.Context, c *toySession, _ toyRequest, answer []byte) error {
			if err := sleep(ctx, 3*time.Second); err != nil {
				return err
			}
			return c.send(ctx, answer)
		}),
	},
	{
		Name: "queued", Text: "answers a call when the next one has run, or after two seconds",
		answer: toyCalls(func(ctx context.Context, c *toySession, _ toyRequest, answer []byte) error {
			if before := c.takeDelayed(); before != nil {
				return c.send(ctx, before, answer)
			}
			c.delay(answer)
			c.background.Go(func() {
				if sleep(ctx, 2*time.Second) == nil {
					if held := c.takeDelayed(); held != nil {
						c.send(ctx, held)
					}
				}
			})
			return nil
		}),
	},
	{
		Name: "silent", Text: "runs calls, but the answer is too long to be sent; then reconnects and leaves the last connection open",
		leaves: true,
		answer: toyCalls(func(ctx context.Context, c *toySession, req toyRequest, _ []byte) error {
			err := c.send(ctx, c.text(req.ID, strings.Repeat("long ", 14_000)))
			if errors.Is(err, xiaozhi.ErrTooLong) {
				c.leave() // firmware treats that as an error of the server
				return nil
			}
			return err
		}),
	},
	{
		Name: "other-ids", Text: "sends answers with other IDs around each answer",
		answer: func(ctx context.Context, c *toySession, req toyRequest, answer []byte) error {
			return c.send(ctx, c.text(2147483647, "other"), c.text(req.ID+1, "other"),
				c.reply(`{"jsonrpc":"2.0","id":"%d","result":"other"}`, req.ID), answer, c.text(req.ID, "again"))
		},
	},
	{
		Name: "bare", Text: "answers without an envelope, and sends every client the answers of all",
		answer: func(ctx context.Context, c *toySession, req toyRequest, answer []byte) error {
			var m struct{ Payload json.RawMessage }
			if err := json.Unmarshal(answer, &m); err != nil {
				return err
			}
			return c.send(ctx, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{}}`, req.ID+100), m.Payload)
		},
	},
}

// delay keeps an answer, and takeDelayed removes it.
func (c *toySession) delay(answer []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delayed = answer
}

func (c *toySession) takeDelayed() (held []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held, c.delayed = c.delayed, nil
	return held
}

// toyLinks lose their connection, or keep it too long.
var toyLinks = []ToyBehavior{
	{
		Name: "half-open", Text: "vanishes after six requests, without closing the connection",
		message: func(ctx context.Context, c *toySession, req toyRequest, message []byte) error {
			if c.requests > 6 {
				c.toy.unplug()
				return nil
			}
			return c.answer(ctx, req, message)
		},
	},
	{
		Name: "hang-up", Text: "drops the connection instead of every third answer to a call",
		answer: toyCalls(func(ctx context.Context, c *toySession, _ toyRequest, answer []byte) error {
			if c.calls%3 == 0 {
				return errHangUp
			}
			return c.send(ctx, answer)
		}),
	},
	{
		Name: "reboot", Text: "restarts a second after its answer to self.reboot or self.upgrade_firmware",
		answer: toyCalls(func(ctx context.Context, c *toySession, req toyRequest, answer []byte) error {
			if name := req.Params.Name; name == "self.reboot" || name == "self.upgrade_firmware" {
				c.background.Go(func() {
					if sleep(ctx, time.Second) == nil {
						c.conn.Close()
					}
				})
			}
			return c.send(ctx, answer)
		}),
	},
	{Name: "second-socket", Text: "reconnects every few seconds and leaves the last connection open", overlaps: true},
	{Name: "impatient", Text: "reconnects after two minutes without a message and leaves the last connection open", impatient: true},
	{Name: "storm", Text: "reconnects at once, as a thousand toys do when a gateway restarts", hurries: true},
	{
		Name: "odd-visit", Text: "checks in with unusual types and missing members",
		checkIn: `{"version":"2","flash_size":"16777216","minimum_free_heap_size":8318916,"mac_address":null,"uuid":7,"application":["xiaozhi"],"board":"ml307","chip_info":null,"partition_table":{}}`,
	},
}
