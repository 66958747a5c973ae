// Package xiaozhi serves a thing.Device with the protocol of xiaozhi-esp32 firmware: MCP in an
// envelope, over MQTT, a WebSocket, or any other message stream.
//
//	toy := xiaozhi.New(thing.New("desk-lamp", "1.0.0"))
//	thing.Tool(toy.Device, "self.lamp.on", "Turn the lamp on", …)
//	settings, err := toy.CheckIn(ctx, "http://192.168.1.10:3380/xiaozhi/ota/", identity)
//	conn, err := toy.DialMQTT(ctx, *settings.MQTT)
//	err = toy.Serve(ctx, conn, false)
//
//	CheckIn ─▶ Settings ─▶ DialMQTT or DialWebSocket ─▶ Conn ─▶ Serve
//
// The package also does what the firmware does beyond MCP: it silently drops requests that it
// cannot use, IDs are C ints, errors have no code, and a list has pages of 8000 bytes. Unlike
// the firmware, it escapes the text of errors correctly.
package xiaozhi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"

	"github.com/ferrulehq/ferrule/thing"
)

// Device is a device with the protocol of xiaozhi-esp32.
type Device struct {
	*thing.Device
	// Dial opens connections to servers; nil for the default.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu      sync.Mutex
	session string // the session ID of the server's hello
	vision  Vision
}

// Vision is the server's endpoint for images.
type Vision struct{ URL, Token string }

// New returns a device that serves d.
func New(d *thing.Device) *Device { return &Device{Device: d} }

// Message is a text, or audio if Binary is set.
type Message struct {
	Binary bool
	Data   []byte
}

// Conn carries messages. At most one goroutine receives, and one sends.
type Conn interface {
	// Recv returns the next message, or io.EOF when the peer has closed.
	Recv(ctx context.Context) (Message, error)
	Send(ctx context.Context, m Message) error
	// Close closes the connection. Pending calls return.
	Close() error
}

// Serve answers messages until conn or ctx ends; it then returns nil. It closes conn. If first
// is set, the device says hello first, as on a WebSocket.
func (d *Device) Serve(ctx context.Context, conn Conn, first bool) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	if first {
		if err := conn.Send(ctx, Message{Data: d.Hello("websocket")}); err != nil {
			return fmt.Errorf("sending hello: %w", err)
		}
	}
	for {
		m, err := conn.Recv(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading messages: %w", err)
		}
		if m.Binary {
			continue
		}
		if answer := d.Answer(ctx, m.Data); answer != nil {
			if err := conn.Send(ctx, Message{Data: answer}); err != nil {
				return fmt.Errorf("writing an answer: %w", err)
			}
		}
	}
}

// Hello returns the device's hello. Transport is the one of its audio: websocket, or udp
// together with MQTT.
func (d *Device) Hello(transport string) []byte {
	version := 1
	if transport == "udp" {
		version = 3
	}
	return fmt.Appendf(nil, `{"type":"hello","version":%d,"features":{"mcp":true,"glyph_push":false},"transport":%q,"audio_params":{"format":"opus","sample_rate":16000,"channels":1,"frame_duration":60}}`, version, transport)
}

// Vision returns the endpoint for images; it is zero if the server has not sent one.
func (d *Device) Vision() Vision {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.vision
}

// Session returns the session ID of the server's last hello. It is kept when the connection
// ends.
func (d *Device) Session() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session
}

// Answer answers one message. It returns nil if none is needed.
func (d *Device) Answer(ctx context.Context, message []byte) []byte {
	var m struct {
		Type      any             `json:"type"`
		Transport any             `json:"transport"`
		Session   any             `json:"session_id"`
		Payload   json.RawMessage `json:"payload"`
	}
	if json.Unmarshal(message, &m) != nil {
		return nil
	}
	switch m.Type {
	case "hello":
		if id, ok := m.Session.(string); ok && (m.Transport == "websocket" || m.Transport == "udp") {
			d.mu.Lock()
			d.session = id
			d.mu.Unlock()
		}
	case "mcp":
		if payload := d.AnswerRPC(ctx, m.Payload); payload != nil {
			return Envelope(d.Session(), payload)
		}
	}
	return nil
}

// Envelope wraps an MCP message.
func Envelope(session string, payload []byte) []byte {
	return fmt.Appendf(nil, `{"session_id":%s,"type":"mcp","payload":%s}`, quote(session), payload)
}

// AnswerRPC answers one MCP request. It returns nil where firmware does not answer.
func (d *Device) AnswerRPC(ctx context.Context, payload []byte) []byte {
	var req struct {
		Version any             `json:"jsonrpc"`
		ID      any             `json:"id"`
		Method  any             `json:"method"`
		Params  json.RawMessage `json:"params"`
	}
	if json.Unmarshal(payload, &req) != nil || req.Version != "2.0" {
		return nil
	}
	method, isText := req.Method.(string)
	number, isNumber := req.ID.(float64)
	if !isText || strings.HasPrefix(method, "notifications") || !isNumber {
		return nil
	}
	var params map[string]json.RawMessage
	if req.Params != nil && (json.Unmarshal(req.Params, &params) != nil || params == nil) {
		return nil
	}
	id := int32(min(max(number, math.MinInt32), math.MaxInt32)) // as firmware reads a C int
	switch method {
	case "initialize":
		return success(id, d.initialize(params))
	case "tools/list":
		return d.list(id, params)
	case "tools/call":
		return d.call(ctx, id, params)
	}
	return Failure(id, "Method not implemented: "+method)
}

// success encodes an answer as firmware does.
func success(id int32, result any) []byte {
	data, err := json.Marshal(result)
	if err != nil {
		return Failure(id, "encoding the result: "+err.Error())
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":%s}`, id, data)
}

// Failure encodes an error as firmware does, but with its text escaped.
func Failure(id int32, text string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"error":{"message":%s}}`, id, quote(text))
}

func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil { // cannot happen for a string
		panic(err)
	}
	return string(quoted)
}

// initialize stores the endpoint for images.
func (d *Device) initialize(params map[string]json.RawMessage) any {
	var capabilities struct {
		Vision struct {
			URL   string `json:"url"`
			Token string `json:"token"`
		} `json:"vision"`
	}
	if json.Unmarshal(params["capabilities"], &capabilities) == nil && capabilities.Vision.URL != "" {
		d.mu.Lock()
		d.vision = Vision(capabilities.Vision)
		d.mu.Unlock()
	}
	return map[string]any{
		"protocolVersion": "2024-11-05",
		"capabilities":    map[string]any{"tools": map[string]any{}},
		"serverInfo":      map[string]any{"name": d.Name(), "version": d.Version()},
	}
}

// The size of a page, and the reserve that firmware keeps in it.
const (
	maxPage     = 8000
	pageReserve = 30
)

// listedTool is a tool in a list.
type listedTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Annotations *annotations    `json:"annotations,omitempty"`
}

type annotations struct {
	Audience []string `json:"audience"`
}

// list answers tools/list with as many tools as fit on a page, starting at the cursor.
func (d *Device) list(id int32, params map[string]json.RawMessage) []byte {
	var cursor string
	var withUserTools bool
	json.Unmarshal(params["cursor"], &cursor) // another type counts as missing
	json.Unmarshal(params["withUserTools"], &withUserTools)
	tools := d.Tools()
	page, found := `{"tools":[`, cursor == ""
	next := ""
	for _, t := range tools {
		found = found || t.Name == cursor
		if !found || t.UserOnly && !withUserTools {
			continue
		}
		entry := describe(t) + ","
		if len(page)+len(entry)+pageReserve > maxPage {
			next = t.Name
			break
		}
		page += entry
	}
	if strings.HasSuffix(page, "[") && len(tools) > 0 {
		return Failure(id, "Failed to add tool "+next+" because of payload size limit")
	}
	page = strings.TrimSuffix(page, ",") + "]"
	if next != "" {
		page += `,"nextCursor":` + quote(next)
	}
	return success(id, json.RawMessage(page+"}"))
}

func describe(t thing.Description) string {
	entry := listedTool{Name: t.Name, Description: t.Text, InputSchema: t.Schema}
	if t.UserOnly {
		entry.Annotations = &annotations{[]string{"user"}}
	}
	data, err := json.Marshal(entry)
	if err != nil { // cannot happen: the schema is valid JSON
		panic(err)
	}
	return string(data)
}

// call answers tools/call.
func (d *Device) call(ctx context.Context, id int32, params map[string]json.RawMessage) []byte {
	if params == nil {
		return Failure(id, "Missing params")
	}
	var name string
	if json.Unmarshal(params["name"], &name) != nil {
		return Failure(id, "Missing name")
	}
	args := params["arguments"]
	if args != nil && !strings.HasPrefix(string(args), "{") {
		return Failure(id, "Invalid arguments")
	}
	result, err := d.Call(ctx, name, args)
	var refused *thing.RefusedError
	switch {
	case err == nil:
		return success(id, map[string]any{"content": []any{content(result)}, "isError": false})
	case errors.As(err, &refused) && !strings.HasPrefix(refused.Reason, "Unknown tool: "):
		return Failure(id, "Invalid arguments: "+refused.Reason)
	}
	return Failure(id, err.Error())
}

// content encodes a result as firmware does: everything is text, and an image is JSON in a
// text.
func content(result any) any {
	switch r := result.(type) {
	case string:
		return map[string]any{"type": "text", "text": r}
	case thing.Image:
		image, err := json.Marshal(map[string]any{"type": "image", "mimeType": r.MIME, "data": r.Data})
		if err != nil { // cannot happen: it has only text and bytes
			panic(err)
		}
		return map[string]any{"type": "image", "image": string(image)}
	}
	data, err := json.Marshal(result)
	if err != nil {
		return map[string]any{"type": "text", "text": "encoding the result: " + err.Error()}
	}
	return map[string]any{"type": "text", "text": string(data)}
}
