package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/notify"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// listening is a response that is read while it is written.
type listening struct {
	*httptest.ResponseRecorder
	mu      sync.Mutex
	flushed func()
}

func (l *listening) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ResponseRecorder.Write(p)
}

func (l *listening) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ResponseRecorder.Flush()
	l.flushed()
}

func (l *listening) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Body.String()
}

// listenTo posts a request and returns when it has ended.
func listenTo(ctx context.Context, s *Server, body, accept string, flushed func()) *listening {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", strings.NewReader(body))
	r.Host = "127.0.0.1"
	for key, value := range map[string]string{
		"Content-Type": "application/json", "Accept": accept, mcphttp.VersionHeader: mcphttp.StatelessVersion, mcphttp.MethodHeader: listenMethod,
	} {
		r.Header.Set(key, value)
	}
	w := &listening{ResponseRecorder: httptest.NewRecorder(), flushed: flushed}
	s.http.ServeHTTP(w, r)
	return w
}

// randomListen returns a request to be told of changes, mostly a usual one.
func randomListen(r *rand.Rand, id int) string {
	lists := pick(r, `"toolsListChanged":true`, `"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true`, `"toolsListChanged":false`, `"toolsListChanged":1`, `"ToolsListChanged":true`, "")
	members := []string{lists}
	if uris := pick(r, "", `["ferrule://devices/robot/state"]`, `["ferrule://devices/robot/state","ferrule://devices/other/state","x"]`, `[]`, `null`, `{}`, `[1]`); uris != "" {
		members = append(members, `"resourceSubscriptions":`+uris)
	}
	if extra := pick(r, "", `"taskIds":[]`, `"taskIds":["a"]`, `"more":1`); extra != "" {
		members = append(members, extra)
	}
	wanted := strings.Trim(strings.Join(members, ","), ",")
	meta := fmt.Sprintf(`{%q:%s,%q:%s,%q:%s%s}`,
		"io.modelcontextprotocol/protocolVersion", pick(r, `"2026-07-28"`, `"2025-11-25"`, `1`),
		"io.modelcontextprotocol/clientInfo", pick(r, `{"name":"test","version":"1"}`, `{}`, `null`, `"x"`),
		"io.modelcontextprotocol/clientCapabilities", pick(r, `{}`, `{"elicitation":{}}`, `null`),
		pick(r, "", `,"progressToken":7`, `,"x":1`))
	params := []string{`"notifications":` + pick(r, "{"+wanted+"}", `null`, `[]`, `{}`), `"_meta":` + meta}
	if extra := pick(r, "", `"more":1`, `"Notifications":{}`); extra != "" {
		params = append(params, extra)
	}
	r.Shuffle(len(params), func(i, j int) { params[i], params[j] = params[j], params[i] })
	return fmt.Sprintf(`{"jsonrpc":"2.0",%s,"method":%s,"params":%s}`,
		pick(r, fmt.Sprintf(`"id":%d`, id), fmt.Sprintf(`"id":"id-%d"`, id), `"id":null`, `"id":1.5`),
		pick(r, `"subscriptions/listen"`, `"subscriptions\/listen"`, `"ping"`),
		pick(r, "{"+strings.Join(params, ",")+"}", `null`, `[]`, `{}`))
}

// events returns the messages of a stream, or the one of another response.
func events(t *testing.T, body string) (all []any) {
	t.Helper()
	if !strings.HasPrefix(body, "event:") {
		return []any{decodeAnswer(t, body)}
	}
	for text := range strings.SplitSeq(body, "\n\n") {
		if data, ok := strings.CutPrefix(text, "event: message\ndata: "); ok {
			all = append(all, decodeAnswer(t, data))
		} else if text != "" && text != ":" {
			t.Errorf("an event is %q", text)
		}
	}
	return all
}

// sameEvents compares the events of a stream with those of the SDK. When the gateway ends a stream,
// the SDK does not always send its last one, the result.
func sameEvents(got, want []any) bool {
	if len(got) > 1 && len(want) == len(got)-1 {
		got = got[:len(want)]
	}
	return reflect.DeepEqual(got, want)
}

// TestDirectListen compares the streams of the gateway with those of the SDK: how they begin,
// and how they end when the gateway ends them.
func TestDirectListen(t *testing.T) {
	ours, theirs := directServer(t, false), directServer(t, true)
	type answer struct {
		status int
		header http.Header
		events []any
	}
	random, direct := rand.New(rand.NewPCG(3, 4)), 0
	requests := min(*directRequests, 3000)
	for i := range requests {
		body := randomListen(random, i)
		accept := pick(random, "application/json, text/event-stream", "application/json,text/event-stream", "*/*", "application/json")
		var got [2]answer
		for n, s := range []*Server{ours, theirs} {
			ctx, cancel := context.WithCancel(t.Context())
			w := listenTo(ctx, s, body, accept, cancel)
			cancel()
			got[n] = answer{w.Code, w.Result().Header, events(t, w.text())}
		}
		isDirect := got[0].status == http.StatusOK && bothKinds(accept) && mcphttp.OneMeaning([]byte(body)) && ours.directListen([]byte(body)) != nil
		same := sameEvents(got[0].events, got[1].events) || !isDirect && sameEvents(got[1].events, got[0].events)
		if got[0].status != got[1].status || !reflect.DeepEqual(got[0].header, got[1].header) || !same {
			t.Fatalf("%s\n got %+v\nwant %+v", body, got[0], got[1])
		}
		if isDirect {
			direct++
		}
	}
	t.Logf("%d streams are equal, %d of them without the SDK", requests, direct)
	if direct < requests/20 {
		t.Error("too few")
	}
}

// TestDirectListenChanges checks that a stream without the SDK gets the same notifications as one
// with it, counts as a session, and leaves nothing behind.
func TestDirectListenChanges(t *testing.T) {
	const request = `{"jsonrpc":"2.0","id":"a","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["ferrule://devices/robot/state"]},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	var got [2][]any
	for n, onlySDK := range []bool{false, true} {
		s := directServer(t, onlySDK)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var w *listening
		begun := make(chan struct{}, 100)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w = listenTo(ctx, s, request, "application/json, text/event-stream", func() { begun <- struct{}{} })
		}()
		<-begun
		wait.For(t, "the stream is open", func() bool { return s.notifier.Subscriptions() == 1 })
		v := s.viewAt("")
		if s.Sessions() != 1 || v.group.Streams() != 1 {
			t.Errorf("only the SDK %t: %d sessions, %d streams", onlySDK, s.Sessions(), v.group.Streams())
		}
		v.group.ListChanged(notify.PromptsChanged) // nobody asked for it
		v.group.ListChanged(notify.ToolsChanged)
		<-begun
		s.notifier.Changed(notify.Topic{Device: "robot"})
		<-begun
		cancel()
		<-ended
		got[n] = events(t, w.text())
		if s.notifier.Subscriptions() != 0 || v.group.Streams() != 0 {
			t.Errorf("only the SDK %t: %d subscriptions and %d streams are left", onlySDK, s.notifier.Subscriptions(), v.group.Streams())
		}
		wait.For(t, "the session has ended", func() bool { return s.Sessions() == 0 })
	}
	if !sameEvents(got[0], got[1]) || len(got[0]) != 4 {
		t.Errorf(" got %v\nwant %v", got[0], got[1])
	}
}

// TestDirectListenGone checks that a client which is gone before the acknowledgment leaves nothing
// behind, and is sent nothing more.
func TestDirectListenGone(t *testing.T) {
	const request = `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	s := directServer(t, false)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(request))
	w := &refusing{ResponseRecorder: httptest.NewRecorder()}
	if !s.serveListen(w, r, []byte(request)) {
		t.Fatal("the SDK is to answer it")
	}
	v := s.viewAt("")
	v.group.ListChanged(notify.ToolsChanged)
	if n := v.group.Streams(); n != 0 || w.flushes != 1 {
		t.Errorf("%d streams are left, flushed %d times", n, w.flushes)
	}
}

// refusing is a response that cannot be sent.
type refusing struct {
	*httptest.ResponseRecorder
	flushes int
}

func (r *refusing) FlushError() error {
	r.flushes++
	return net.ErrClosed
}
