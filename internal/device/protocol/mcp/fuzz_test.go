package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// spoken returns the JSON that the boards in testdata/transcripts send.
func spoken(f *testing.F) (messages []string) {
	files, err := filepath.Glob("testdata/transcripts/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(section(f, archive, "script")) {
			if word, rest, _ := strings.Cut(strings.TrimSpace(line), " "); word == "<" || word == "event" {
				if at := strings.IndexAny(rest, "{["); at >= 0 {
					messages = append(messages, rest[at:])
				}
			}
		}
	}
	return messages
}

// FuzzDecode decodes anything: each message is valid, and a request can be answered.
func FuzzDecode(f *testing.F) {
	for _, m := range spoken(f) {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		all := decode(data)
		if len(all) > maxBatch {
			t.Errorf("%d messages", len(all))
		}
		for _, m := range all {
			if m.isAnswer() == (m.Error == nil && m.Result == nil) {
				t.Errorf("neither a request nor an answer, or both: %+v", m)
			}
			if m.Error != nil && len(m.Error.Error()) > 300 {
				t.Errorf("an error of %d bytes", len(m.Error.Error()))
			}
			if m.isRequest() && !json.Valid(jsonrpc.Message{ID: jsonrpc.Marshal(m.ID), Result: json.RawMessage("{}")}.Append(nil)) {
				t.Errorf("%s cannot be answered", m.ID)
			}
		}
	})
}

// FuzzEvents reads any stream. The events do not depend on how it is cut into pieces.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("event: endpoint\ndata: /mcp\n\nid: 1\r\ndata: {\r\ndata: }\r\n\r\n: ok\n\nretry: 5000\nid: 7\ndata:\n\n"))
	f.Add([]byte("data: no end"))
	f.Add([]byte("id: \x00\n\nretry: -1\n\nretry: 99999999999999\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var whole, pieces []event
		err := events(bytes.NewReader(data), func(e event) bool { whole = append(whole, e); return true })
		errPieces := events(io.MultiReader(bytes.NewReader(data[:len(data)/2]), bytes.NewReader(data[len(data)/2:])), func(e event) bool { pieces = append(pieces, e); return true })
		if (err == nil) != (errPieces == nil) || len(whole) != len(pieces) {
			t.Errorf("%d events and %v, in pieces %d and %v", len(whole), err, len(pieces), errPieces)
		}
		for _, e := range whole {
			if e.retry < 0 || len(e.id) > maxEventID || len(e.data) > len(data) {
				t.Errorf("got %+v", e)
			}
		}
	})
}

// FuzzConversation greets a server that answers everything with the same bytes, over HTTP
// as JSON and as a stream, and over messages, and performs each operation: everything
// ends, and the results are valid.
func FuzzConversation(f *testing.F) {
	for _, m := range spoken(f) {
		f.Add([]byte(m), 100)
	}
	f.Add([]byte(`{"jsonrpc":"2.0","id":0,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{"subscribe":true},"prompts":{},"completions":{}},"tools":[{"name":"a"}],"resources":[{"uri":"a:b"}],"prompts":[{"name":"p"}],"contents":[{"uri":"a:b","blob":"AA=="}],"messages":[{"role":"user","content":{"type":"resource_link","uri":"a:b"}}],"completion":{"values":["x"]},"resultType":"input_required","inputRequests":{"q":{"method":"roots/list"}}}}`), 100)
	f.Add([]byte(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","serverInfo":{"name":"x"},"capabilities":{"tools":{}},"nextCursor":"1","tools":[{"name":"a"}],"content":[{"type":"text","text":"1"}],"structuredContent":{"a":1}}}`), 100)
	f.Fuzz(func(t *testing.T, data []byte, status int) {
		if len(data) > 4<<10 {
			return
		}
		for _, how := range []string{"application/json", "text/event-stream"} {
			synctest.Test(t, func(t *testing.T) { converse(t, &parrot{data: data, status: status, contentType: how}) })
		}
		synctest.Test(t, func(t *testing.T) {
			link, far := transporttest.Pipe(transport.Info{})
			go io.Copy(io.Discard, far)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range 8 {
					time.Sleep(time.Second)
					if _, err := far.Write(append(bytes.ReplaceAll(data, []byte("\n"), []byte(" ")), '\n')); err != nil {
						return
					}
				}
			}()
			converse(t, link)
			far.Close()
			<-done
		})
	})
}

// converse greets a device and performs each operation.
func converse(t *testing.T, link transport.Link) {
	d := New(Parts{Version: "1.0"})
	d.firstID = func() int { return 1 }
	session, manifest, err := d.Greet(t.Context(), link)
	if err != nil {
		link.Close()
		return
	}
	manifest.Bound()
	if _, err := manifest.Kind(); err != nil {
		t.Error(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- session.Run(ctx) }()
	for _, op := range []ferrule.Operation{ferrule.CallTool, ferrule.ReadResource, ferrule.GetPrompt, ferrule.Complete, ferrule.Subscribe, ferrule.Unsubscribe} {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		result, err := session.Invoke(call, &ferrule.Call{Device: "d", Operation: op, Tool: "a", Args: json.RawMessage(`{"argument":"x","value":""}`)})
		cancel()
		if err != nil {
			ferrule.AsError(err) // it is a *ferrule.Error
		} else if _, err := json.Marshal(result); err != nil {
			t.Errorf("%s: %v", op, err)
		}
	}
	stop()
	<-ran
}

// parrot is a link to a server that answers every request with the same bytes, and puts
// the id of the request in place of 0.
type parrot struct {
	transport.Tracer
	data        []byte
	status      int
	contentType string
}

func (p *parrot) HTTP() (string, http.RoundTripper) { return "http://parrot/mcp", p }

func (p *parrot) RoundTrip(r *http.Request) (*http.Response, error) {
	var asked struct {
		ID json.RawMessage `json:"id"`
	}
	if r.Body != nil {
		json.NewDecoder(r.Body).Decode(&asked)
	}
	data := bytes.Replace(p.data, []byte(`"id":0`), append([]byte(`"id":`), asked.ID...), 1)
	if p.contentType != "application/json" {
		data = append(append([]byte("id: 1\ndata: "), data...), "\n\n"...)
	}
	header := http.Header{"Content-Type": {p.contentType}, "Mcp-Session-Id": {"s"}}
	return &http.Response{StatusCode: 100 + p.status&511, Header: header, Body: io.NopCloser(bytes.NewReader(data)), Request: r}, nil
}

func (p *parrot) Recv(ctx context.Context) (transport.Message, error) {
	<-ctx.Done()
	return transport.Message{}, ctx.Err()
}

func (p *parrot) Send(context.Context, transport.Message) error { return transport.ErrUnsent }
func (p *parrot) Close() error                                  { return nil }
func (p *parrot) Info() transport.Info                          { return transport.Info{} }

// FuzzTask checks that nothing that a device says about a task breaks a limit, and that an
// answer is either a state, a question, an outcome or an error.
func FuzzTask(f *testing.F) {
	for _, message := range spoken(f) {
		if strings.Contains(message, "taskId") {
			f.Add([]byte(message), true)
			f.Add([]byte(message), false)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, old bool) {
		style := modernTasks
		if old {
			style = legacyTasks
		}
		call := &ferrule.Call{Device: "board", Tool: "bake", Job: &ferrule.Job{Handle: taskHandle + "t-1"}}
		check := func(result *ferrule.Result, err error) {
			if (result == nil) == (err == nil) {
				t.Fatalf("got %v, %v", result, err)
			}
			if err != nil {
				if e := ferrule.AsError(err); len(e.Message) > 4*ferrule.MaxText {
					t.Fatalf("an error of %d bytes", len(e.Message))
				}
				return
			}
			if j := result.Job; j != nil && (len(j.Handle) > ferrule.MaxHandle || len(j.Message) > 4*ferrule.MaxJobMessage || !ferrule.Visible(j.Handle+j.Message) || j.Interval(time.Hour) < ferrule.MinJobPoll || j.Interval(0) > ferrule.MaxJobPoll) {
				t.Fatalf("got %+v", j)
			}
		}
		var m struct {
			Result json.RawMessage `json:"result"`
		}
		if json.Unmarshal(data, &m) != nil || m.Result == nil {
			m.Result = data
		}
		if task := createdTask(style, m.Result); task != nil {
			check(beginTask(call, task))
		}
		var task taskJSON
		if json.Unmarshal(m.Result, &task) != nil || style == legacyTasks && task.Status != "working" && task.Status != "cancelled" {
			return
		}
		r := &taskRequest{session: &session{}, active: &activeCall{call: call}, style: style, id: "t-1"}
		result, err := r.read(context.Background(), &task)
		check(result, err)
	})
}
