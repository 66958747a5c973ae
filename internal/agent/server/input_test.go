//lint:file-ignore SA1019 sampling and roots are deprecated, but some agents have nothing else

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var (
	aForm  = ferrule.Question{Name: "form", Text: "Which joint?", Schema: json.RawMessage(`{"type":"object","properties":{"joint":{"type":"integer"}},"required":["joint"]}`)}
	aText  = ferrule.Question{Name: "text", Text: "Why?"}
	aPage  = ferrule.Question{Name: "page", Text: "Log in", URL: "https://example.com/login"}
	aModel = ferrule.Question{Name: "model", Target: ferrule.Model, Prompt: json.RawMessage(`{"messages":[{"role":"user","content":{"type":"text","text":"Hello?"}}],"maxTokens":5,"includeContext":"allServers"}`)}
	aRoot  = ferrule.Question{Name: "roots", Target: ferrule.Roots}
)

// curious is a device whose tools ask questions.
type curious struct {
	calls atomic.Int32
	ask   func(ctx context.Context, call *ferrule.Call) (string, error)
}

func (c *curious) handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	c.calls.Add(1)
	call.Target.Tool = &ferrule.Tool{}
	said, err := c.ask(ctx, call)
	if err != nil {
		return nil, err
	}
	return &ferrule.Result{Content: []ferrule.Content{{Type: ferrule.TextContent, Text: said, URI: call.Tool}}}, nil
}

// asks returns a device that asks the questions in order, and returns the answers.
func asks(questions ...ferrule.Question) *curious {
	return &curious{ask: func(ctx context.Context, call *ferrule.Call) (string, error) {
		var all []string
		for _, q := range questions {
			answer, err := call.Ask(ctx, q)
			if err != nil {
				return "", ferrule.Errorf(ferrule.Refused, "%s: %w", q.Name, err)
			}
			all = append(all, fmt.Sprintf("%s %t %t %s", q.Name, answer.Given, answer.Dismissed, answer.Value))
		}
		return strings.Join(all, "\n"), nil
	}}
}

// server returns a server with that device.
func (c *curious) server(t *testing.T) *Server {
	m := aServer()
	m.Tools = append(m.Tools, ferrule.Tool{Name: "other", Effect: ferrule.Changes})
	return newServerOf(t, c.handle, m)
}

// user returns options of a client whose user and model answer. The user declines
// unknown forms and pages.
func user() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{
			RootsV2: &mcp.RootCapabilities{}, Sampling: &mcp.SamplingCapabilities{},
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}},
		},
		ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			switch message := strings.TrimPrefix(req.Params.Message, "robot: "); {
			case message == "Which joint?":
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"joint": 3}}, nil
			case message == "Why?":
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "because"}}, nil
			case req.Params.URL == "https://example.com/login":
				return &mcp.ElicitResult{Action: "accept"}, nil
			case message == "Hurry?":
				return &mcp.ElicitResult{Action: "cancel"}, nil
			}
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
		CreateMessageHandler: func(_ context.Context, req *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			said := req.Params.Messages[0].Content.(*mcp.TextContent).Text + req.Params.IncludeContext
			return &mcp.CreateMessageResult{Role: "assistant", Model: "m", Content: &mcp.TextContent{Text: "I heard " + said}}, nil
		},
	}
}

// everyTransport runs a test in all protocol versions: over HTTP, HTTP+SSE, and
// standard input and output.
func everyTransport(t *testing.T, f *Server, options *mcp.ClientOptions, test func(t *testing.T, session *mcp.ClientSession)) {
	t.Helper()
	server := httptest.NewServer(f.Handler())
	t.Cleanup(server.Close)
	for _, version := range versions {
		begin := func(t *testing.T, transport mcp.Transport) {
			t.Helper()
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options)
			client.AddRoots(&mcp.Root{URI: "file:///home"})
			session, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			test(t, session)
		}
		t.Run("http "+version, func(t *testing.T) {
			begin(t, &mcp.StreamableClientTransport{Endpoint: server.URL + "/mcp"})
		})
		if version < mcphttp.StatelessVersion {
			t.Run("http+sse "+version, func(t *testing.T) {
				begin(t, &mcp.SSEClientTransport{Endpoint: server.URL + "/mcp"})
			})
		}
		t.Run("stdio "+version, func(t *testing.T) {
			theirs, answers := io.Pipe()
			in, requests := io.Pipe()
			go f.Stdio(t.Context(), in, answers)
			begin(t, &mcp.IOTransport{Reader: theirs, Writer: requests})
		})
	}
}

// TestAsk: questions of a device are answered by the user, the model and the folders of
// the agent, in all protocol versions. The device is called once, for a tool, a prompt
// and a resource.
func TestAsk(t *testing.T) {
	c := asks(aForm, aText, aPage, aModel, aRoot, ferrule.Question{Name: "no", Text: "Really?"}, ferrule.Question{Name: "gone", Text: "Hurry?"})
	f := c.server(t)
	want := `form true false {"joint":3}
text true false "because"
page true false 
model true false {"content":{"type":"text","text":"I heard Hello?"},"model":"m","role":"assistant"}
roots true false {"roots":[{"uri":"file:///home"}]}
no false false 
gone false true `
	everyTransport(t, f, user(), func(t *testing.T, session *mcp.ClientSession) {
		c.calls.Store(0)
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "robot__move", Arguments: map[string]any{"far": 1}})
		if err != nil || result.IsError {
			t.Fatalf("%+v, %v", result, err)
		}
		if got := result.Content[0].(*mcp.TextContent).Text; got != want {
			t.Errorf("got %s", got)
		}
		prompt, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "robot__greet"})
		if err != nil || prompt.Messages[0].Content.(*mcp.TextContent).Text != want {
			t.Errorf("%+v, %v", prompt, err)
		}
		read, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "ferrule://devices/robot/resources/file:///log"})
		if err != nil || read.Contents[0].Text != want {
			t.Errorf("%+v, %v", read, err)
		}
		if n := c.calls.Load(); n != 3 {
			t.Errorf("the device was called %d times for 3 requests", n)
		}
	})
	if n := f.pending.count(); n > 0 {
		t.Errorf("%d calls are pending", n)
	}
}

// count returns the number of pending calls.
func (p *pendingCalls) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls)
}

// byHand returns options of a stateless client that leaves the questions to the test.
func byHand(can *mcp.ClientCapabilities) *mcp.ClientOptions {
	return &mcp.ClientOptions{Capabilities: can, MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true}}
}

// TestQuestionsTogether: questions that a device asks together are sent together, by
// their names. An invalid or missing answer is asked for again, and an answer without a
// question is ignored.
func TestQuestionsTogether(t *testing.T) {
	c := &curious{ask: func(ctx context.Context, call *ferrule.Call) (string, error) {
		var wg sync.WaitGroup
		said := make([]string, 3)
		for i, q := range []ferrule.Question{aForm, aText, aText} {
			wg.Go(func() {
				answer, err := call.Ask(ctx, q)
				said[i] = fmt.Sprint(string(answer.Value), err)
			})
		}
		wg.Wait()
		slices.Sort(said)
		return fmt.Sprint(said), nil
	}}
	f := c.server(t)
	session := connectAt(t, f.viewAt("robot"), mcphttp.StatelessVersion, byHand(user().Capabilities))
	text := func(word string) *mcp.ElicitResult {
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": word}}
	}
	state := ""
	for round, test := range []struct {
		answers mcp.InputResponseMap
		open    string
	}{
		{nil, "[form text text-2]"},
		{mcp.InputResponseMap{"form": &mcp.ListRootsResult{}, "text": text("a"), "stray": text("b")}, "[form text-2]"},
		{mcp.InputResponseMap{"form": &mcp.ElicitResult{Action: "perhaps"}, "text-2": text("b")}, "[form]"},
		{nil, "[form]"},
		{mcp.InputResponseMap{"form": &mcp.ElicitResult{Action: "accept"}}, "[]"},
	} {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "move", RequestState: state, InputResponses: test.answers})
		if err != nil {
			t.Fatal(err)
		}
		open := []string{}
		for name := range result.InputRequests {
			open = append(open, name)
		}
		slices.Sort(open)
		if fmt.Sprint(open) != test.open {
			t.Errorf("round %d: got open questions %v, want %s", round, open, test.open)
		}
		if state = result.RequestState; state == "" {
			if got := result.Content[0].(*mcp.TextContent).Text; got != `["a"<nil> "b"<nil> {}<nil>]` {
				t.Errorf("got %s", got)
			}
		}
	}
	if n := c.calls.Load(); n != 1 {
		t.Errorf("the device was called %d times", n)
	}
}

// TestAnsweredBefore: an answer may come with the call, by the name of the question.
func TestAnsweredBefore(t *testing.T) {
	session := connect(t, asks(aText).server(t), mcphttp.StatelessVersion, byHand(user().Capabilities))
	yes := &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "yes"}}
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{
		Name: "robot__move", InputResponses: mcp.InputResponseMap{"text": yes, "stray": yes},
	})
	if err != nil || result.NeedsInput() || result.Content[0].(*mcp.TextContent).Text != `text true false "yes"` {
		t.Errorf("%+v, %v", result, err)
	}
}

// TestState: a state that is unknown, changed, used before, or of another caller or
// call is an error, and nothing is called.
func TestState(t *testing.T) {
	c := asks(aText)
	f := c.server(t)
	v := f.viewAt("robot")
	session := connectAt(t, v, mcphttp.StatelessVersion, byHand(user().Capabilities))
	far := map[string]any{"far": 1, "fast": true}
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "move", Arguments: far})
	if err != nil || !result.NeedsInput() || len(result.RequestState) < 26 {
		t.Fatalf("%+v, %v", result, err)
	}
	state := result.RequestState
	answers := mcp.InputResponseMap{"text": &mcp.ElicitResult{Action: "decline"}}
	refused := func(what string, err error) {
		t.Helper()
		var wrong *jsonrpc.Error
		if !errors.As(err, &wrong) || wrong.Code != jsonrpc.CodeInvalidParams || !strings.Contains(wrong.Message, "may have run") || c.calls.Load() != 1 {
			t.Errorf("%s: %v after %d calls", what, err, c.calls.Load())
		}
	}
	for what, p := range map[string]*mcp.CallToolParams{
		"unknown":         {Name: "move", Arguments: far, RequestState: "x"},
		"changed":         {Name: "move", Arguments: far, RequestState: state + "-TAMPERED"},
		"of another tool": {Name: "other", Arguments: far, RequestState: state},
		"other arguments": {Name: "move", Arguments: map[string]any{"far": 2, "fast": true}, RequestState: state},
	} {
		p.InputResponses = answers
		_, err := session.CallTool(t.Context(), p)
		refused(what, err)
	}
	_, err = session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "move", RequestState: state, InputResponses: answers})
	refused("of a prompt", err)
	_, err = session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "file:///log", RequestState: state, InputResponses: answers})
	refused("of a resource", err)
	elsewhere := connect(t, f, mcphttp.StatelessVersion, byHand(user().Capabilities))
	_, err = elsewhere.CallTool(t.Context(), &mcp.CallToolParams{Name: "robot__move", Arguments: far, RequestState: state, InputResponses: answers})
	refused("of another address", err)
	theirs, out := io.Pipe()
	in, requests := io.Pipe()
	go f.Serve(t.Context(), ferrule.Principal{Role: ferrule.Agent, Name: "mallory"}, 0, in, out)
	mallory, err := mcp.NewClient(&mcp.Implementation{Name: "m", Version: "1"}, byHand(user().Capabilities)).
		Connect(t.Context(), &mcp.IOTransport{Reader: theirs, Writer: requests}, &mcp.ClientSessionOptions{ProtocolVersion: mcphttp.StatelessVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer mallory.Close()
	_, err = mallory.CallTool(t.Context(), &mcp.CallToolParams{Name: "robot__move", Arguments: far, RequestState: state, InputResponses: answers})
	refused("of another caller", err)

	var good atomic.Int32
	var wg sync.WaitGroup
	for range 8 { // at the same time
		wg.Go(func() {
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "move", Arguments: far, RequestState: state, InputResponses: answers})
			if err == nil && !result.IsError {
				good.Add(1)
			} else {
				refused("used before", err)
			}
		})
	}
	wg.Wait()
	if good.Load() != 1 || c.calls.Load() != 1 {
		t.Errorf("%d requests went on, and the device was called %d times", good.Load(), c.calls.Load())
	}
}

// TestNeverComesBack: a call whose agent does not come back with an answer is cancelled
// at its deadline, and nothing is left of it.
func TestNeverComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var why error
		var after time.Duration
		c := &curious{ask: func(ctx context.Context, call *ferrule.Call) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // like the pipeline
			defer cancel()
			start := time.Now()
			call.Ask(ctx, aText)
			<-ctx.Done()
			why, after = context.Cause(ctx), time.Since(start)
			return "", ferrule.Errorf(ferrule.Cancelled, "%w", why).AfterSend()
		}}
		f := c.server(t)
		session := connectAt(t, f.viewAt("robot"), mcphttp.StatelessVersion, byHand(user().Capabilities))
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "move"})
		if err != nil || !result.NeedsInput() || f.pending.count() != 1 {
			t.Fatalf("%+v, %v", result, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if !errors.Is(why, errLeft) || after != 29*time.Second || f.pending.count() != 0 {
			t.Errorf("%v after %v, and %d calls are pending", why, after, f.pending.count())
		}
		if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "move", RequestState: result.RequestState}); err == nil || c.calls.Load() != 1 {
			t.Errorf("%v after %d calls", err, c.calls.Load())
		}
		session.Close()
	})
}

// TestNeverAnswers: in versions with sessions, a question ends with its call.
func TestNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &curious{ask: func(ctx context.Context, call *ferrule.Call) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // like the pipeline
			defer cancel()
			start := time.Now()
			_, err := call.Ask(ctx, aText)
			return fmt.Sprint(err != nil, time.Since(start)), nil
		}}
		silent := user()
		silent.ElicitationHandler = func(ctx context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		session := connect(t, c.server(t), versions[0], silent)
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "robot__move"})
		if err != nil || result.Content[0].(*mcp.TextContent).Text != "true 30s" {
			t.Errorf("%+v, %v", result, err)
		}
		session.Close()
	})
}

// TestCancelledLater: an agent that came back with answers can cancel the call, and a
// gateway that stops cancels waiting calls.
func TestCancelledLater(t *testing.T) {
	answered, over := make(chan struct{}, 2), make(chan error, 1)
	c := &curious{ask: func(ctx context.Context, call *ferrule.Call) (string, error) {
		call.Ask(ctx, aText)
		answered <- struct{}{}
		<-ctx.Done()
		over <- context.Cause(ctx)
		return "", ferrule.Errorf(ferrule.Cancelled, "%w", context.Cause(ctx)).AfterSend()
	}}
	f := c.server(t)
	session := connectAt(t, f.viewAt("robot"), mcphttp.StatelessVersion, byHand(user().Capabilities))
	begin := func() *mcp.CallToolResult {
		t.Helper()
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "move"})
		if err != nil || !result.NeedsInput() {
			t.Fatalf("%+v, %v", result, err)
		}
		return result
	}
	end := func(want string) {
		t.Helper()
		select {
		case err := <-over:
			if !strings.Contains(err.Error(), want) {
				t.Errorf("ended with %v", err)
			}
		case <-time.After(wait.Ample):
			t.Fatal("the call goes on")
		}
	}
	state := begin().RequestState
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-answered
		cancel()
	}()
	session.CallTool(ctx, &mcp.CallToolParams{Name: "move", RequestState: state, InputResponses: mcp.InputResponseMap{"text": &mcp.ElicitResult{Action: "decline"}}})
	end("canceled")
	begin()
	f.halt()
	end("stopping")
}

// TestCannotAsk: a question that the agent cannot be asked is an error for the device.
// If the call fails, a stateless agent learns which capability it lacks.
func TestCannotAsk(t *testing.T) {
	for _, version := range versions {
		for _, q := range []ferrule.Question{aForm, aPage, aModel, aRoot} {
			t.Run(version+" "+q.Name, func(t *testing.T) {
				c := asks(q)
				others := &mcp.ClientCapabilities{Sampling: &mcp.SamplingCapabilities{}} // another capability
				if q.Target == ferrule.Model {
					others = &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{}}
				}
				f := c.server(t)
				session := connect(t, f, version, byHand(others))
				result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "robot__move"})
				if version != mcphttp.StatelessVersion {
					if err != nil || !result.IsError || !strings.Contains(result.Content[0].(*mcp.TextContent).Text, "cannot ask") {
						t.Errorf("%+v, %v", result, err)
					}
					return
				}
				var wrong *jsonrpc.Error
				if !errors.As(err, &wrong) || wrong.Code != mcp.CodeMissingRequiredClientCapabilities ||
					string(wrong.Data) != `{"requiredCapabilities":`+capabilities[q.Needs()]+`}` || !strings.Contains(wrong.Message, "the action did not run") {
					t.Errorf("%+v, %v", result, err)
				}
			})
		}
		c := &curious{ask: func(ctx context.Context, call *ferrule.Call) (string, error) {
			if call.Ask != nil {
				_, err := call.Ask(ctx, aForm)
				return fmt.Sprint(call.Askable, err), nil
			}
			return "nobody", nil
		}}
		f := c.server(t)
		session := connect(t, f, version, byHand(&mcp.ClientCapabilities{}))
		want := map[string]string{versions[0]: "nobody", mcphttp.StatelessVersion: "[] the calling program cannot ask its user"}[version]
		if result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "robot__move"}); err != nil || result.Content[0].(*mcp.TextContent).Text != want {
			t.Errorf("%s: %+v, %v", version, result, err)
		}
	}
}

// TestHostileQuestions: an invalid question is an error for the device only.
func TestHostileQuestions(t *testing.T) {
	for _, q := range []ferrule.Question{
		{Schema: json.RawMessage(`null`)}, {Schema: json.RawMessage(`[`)}, {Schema: json.RawMessage(`"` + strings.Repeat("x", ferrule.MaxSchema) + `"`)},
		{Text: "Which joint?", Schema: json.RawMessage(`{"$ref":"#"}`)}, {Text: "Which joint?", Schema: json.RawMessage(`{"type":"object","allOf":[{"$REF":"#"}]}`)},
		{Text: "Which joint?", Schema: json.RawMessage(`{"properties":{"joint":{"type":"integer","$ref":"#/$defs/a"}},"properties":{},"$defs":{"a":{"$ref":"#/$defs/a"}},"$defs":{}}`)},
		{Text: "Which joint?", Schema: json.RawMessage(strings.Repeat(`{"allOf":[`, 50) + "{}" + strings.Repeat("]}", 50))},
		{Text: "Which joint?", Schema: json.RawMessage(`{"type":"object","properties":{"joint":{"type":"integer","title":"Joint\u202e"}}}`)},
		{URL: "javascript:alert(1)"}, {URL: "https://a\u202e"}, {Target: ferrule.Page},
		{Target: ferrule.Model}, {Target: ferrule.Model, Prompt: json.RawMessage(`{"messages":[{"content":7}]}`)},
		{Target: ferrule.Model, Prompt: json.RawMessage(`{"x":"` + strings.Repeat("x", maxPrompt) + `"}`)},
		{Target: ferrule.Model, Prompt: json.RawMessage(`{"messages":[{"role":"user","content":{"type":"text","text":"?"}}],"metadata":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`)},
		{Target: "neighbour"},
	} {
		for _, version := range versions {
			session := connect(t, asks(q).server(t), version, user())
			if result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "robot__move"}); err == nil && !result.IsError {
				t.Errorf("%s: %+v was asked", version, q)
			}
			if _, err := session.ListTools(t.Context(), nil); err != nil {
				t.Errorf("%s: %+v ended the session: %v", version, q, err)
			}
		}
	}
	many := &curious{ask: func(ctx context.Context, call *ferrule.Call) (string, error) {
		var refused atomic.Int32
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if _, err := call.Ask(ctx, aText); err != nil {
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		return fmt.Sprint(refused.Load()), nil
	}}
	session := connect(t, many.server(t), mcphttp.StatelessVersion, user())
	if result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "robot__move"}); err != nil || result.Content[0].(*mcp.TextContent).Text != fmt.Sprint(100-maxQuestions) {
		t.Errorf("%+v, %v", result, err)
	}
}

// TestPendingLimit: a call beyond the limit of pending calls is cancelled.
func TestPendingLimit(t *testing.T) {
	c := &curious{ask: func(ctx context.Context, call *ferrule.Call) (string, error) {
		_, err := call.Ask(ctx, aText)
		return "", ferrule.Errorf(ferrule.Cancelled, "%w", errors.Join(err, context.Cause(ctx))).AfterSend()
	}}
	f := c.server(t)
	for i := range maxPending {
		f.pending.calls[fmt.Sprint(i)] = &pendingCall{}
	}
	session := connectAt(t, f.viewAt("robot"), mcphttp.StatelessVersion, byHand(user().Capabilities))
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "move"})
	if err != nil || !result.IsError || !strings.Contains(result.Content[0].(*mcp.TextContent).Text, "limit is 1024") {
		t.Errorf("%+v, %v", result, err)
	}
}
