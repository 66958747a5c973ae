package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// kind is the kind of a message.
type kind string

const (
	kindAnswer       kind = "answer"
	kindNotification kind = "notification"
	kindRequest      kind = "request"
	kindHello        kind = "hello"
	kindOther        kind = "other" // another message of a voice toy
	kindSound        kind = "sound"
	kindNoise        kind = "noise" // not valid JSON, or no message
	kindTooLong      kind = "too long"
)

// incoming is one message of a device.
type incoming struct {
	at      time.Time
	kind    kind
	raw     string
	answer  answer
	name    string  // the type of another message, the method of a notification or request
	bare    bool    // JSON-RPC without an envelope
	session *string // the session_id of an envelope; nil if it has none
	hasMCP  bool    // of a hello
	wants   string  // the transport of a hello
	rawID   json.RawMessage
}

// decodeMessage reads a message, with or without the envelope of voice toys.
func decodeMessage(m transport.Message) incoming {
	in := incoming{kind: kindNoise, raw: string(m.Data)}
	if m.Channel == "binary" {
		in.kind = kindSound
		return in
	}
	var e struct {
		Type      any             `json:"type"`
		Payload   json.RawMessage `json:"payload"`
		Version   any             `json:"jsonrpc"`
		Transport any             `json:"transport"`
		Features  any             `json:"features"`
		Session   any             `json:"session_id"`
	}
	if err := json.Unmarshal(m.Data, &e); err != nil {
		in.recoverID()
		return in
	}
	if session, ok := e.Session.(string); ok {
		in.session = &session
	}
	switch name, _ := e.Type.(string); {
	case name == "mcp":
		in.rpc(e.Payload)
	case name == "hello":
		features, _ := e.Features.(map[string]any)
		in.kind, in.hasMCP = kindHello, features["mcp"] == true
		in.wants, _ = e.Transport.(string)
	case name != "":
		in.kind, in.name = kindOther, name
	case e.Version != nil:
		in.bare = true
		in.rpc(m.Data)
	}
	return in
}

// rpc reads a JSON-RPC message.
func (in *incoming) rpc(data []byte) {
	if a, ok := parseAnswer(data); ok {
		in.kind, in.answer = kindAnswer, a
		return
	}
	m, ok := jsonrpc.Decode(data)
	switch {
	case !ok || m.Method == "":
	case m.ID == nil:
		in.kind, in.name = kindNotification, m.Method
	default:
		in.kind, in.name, in.rawID = kindRequest, m.Method, m.ID
	}
}

// brokenID finds the ID in an answer that is not valid JSON.
var brokenID = regexp.MustCompile(`"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*([0-9]{1,10})\s*,`)

// recoverID finds the ID of an answer that is not valid JSON. The request then does not wait.
func (in *incoming) recoverID() {
	at := brokenID.FindStringSubmatch(in.raw)
	if at == nil {
		return
	}
	if id, err := strconv.Atoi(at[1]); err == nil {
		in.answer = answer{id: id, isInt: true, raw: in.raw}
	}
}

// inbox reads the messages of a link.
type inbox struct {
	link transport.Link
	in   chan incoming // closed when the link has ended
	stop context.CancelFunc
	ends sync.WaitGroup
	err  error // why the link has ended; valid when in is closed

	mu            sync.Mutex
	notifications int
	sounds        int
}

func newInbox(ctx context.Context, link transport.Link) *inbox {
	b := &inbox{link: link, in: make(chan incoming, 64)}
	ctx, b.stop = context.WithCancel(ctx)
	b.ends.Go(func() { b.read(ctx) })
	return b
}

// read passes on messages. Sound and notifications that nobody takes are dropped; they are
// counted.
func (b *inbox) read(ctx context.Context) {
	defer close(b.in)
	for {
		m, err := b.link.Recv(ctx)
		in := incoming{kind: kindTooLong}
		switch {
		case err == nil:
			in = decodeMessage(m)
		case !errors.Is(err, transport.ErrTooLong):
			b.err = err
			return
		}
		in.at = time.Now()
		b.mu.Lock()
		switch in.kind {
		case kindNotification:
			b.notifications++
		case kindSound:
			b.sounds++
		}
		b.mu.Unlock()
		if in.kind == kindNotification || in.kind == kindSound {
			select {
			case b.in <- in:
			default:
			}
			continue
		}
		select {
		case b.in <- in:
		case <-ctx.Done():
			b.err = ctx.Err()
			return
		}
	}
}

// count returns how many notifications have arrived.
func (b *inbox) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.notifications
}

// close closes the link and waits for the reader.
func (b *inbox) close() {
	b.stop()
	b.link.Close()
	for range b.in {
	}
	b.ends.Wait()
}

// wrap returns a JSON-RPC message in the envelope of voice toys.
func wrap(payload []byte) []byte {
	return bytes.Join([][]byte{[]byte(`{"type":"mcp","payload":`), payload, []byte(`}`)}, nil)
}

// reasonText returns why a connection ended, for people.
func reasonText(err error) string {
	if err == nil {
		return "it ended"
	}
	return strings.TrimSpace(err.Error())
}
