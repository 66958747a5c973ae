package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/protocol/mcp"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/httpclient"
	"github.com/ferrulehq/ferrule/internal/device/transport/websocket"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

type steps struct {
	Steps int `json:"steps"`
}

type place struct {
	Position int `json:"position"`
}

type sure struct {
	Sure bool `json:"sure"`
}

// robot returns a device that uses every feature.
func robot() *mcpserver.Device {
	board := thing.New("robot", "1.2.3")
	position := 0
	thing.Tool(board, "move", "Move some steps", func(ctx context.Context, in steps) (place, error) {
		mcpserver.Progress(ctx, 1, 2, "half way")
		mcpserver.Log(ctx, slog.LevelWarn, "the battery is low")
		position += in.Steps
		return place{position}, nil
	})
	thing.Tool(board, "where", "Tell the position", func(context.Context, struct{}) (place, error) { return place{position}, nil }, thing.Reads(), thing.Titled("Where it is"))
	thing.Tool(board, "look", "Take a picture", func(context.Context, struct{}) (thing.Image, error) {
		return thing.Image{MIME: "image/png", Data: []byte("PNG")}, nil
	})
	thing.Tool(board, "fail", "Fail", func(context.Context, struct{}) (int, error) { return 0, errors.New("out of oil") }, thing.Endangers())
	thing.Tool(board, "careful", "Ask first", func(ctx context.Context, _ struct{}) (string, error) {
		_, err := mcpserver.AskUser[sure](ctx, "sure", "Are you sure?")
		return "done", err
	})
	thing.Tool(board, "think", "Ask a model, and for folders", func(ctx context.Context, _ struct{}) (string, error) {
		answers, err := mcpserver.Ask(ctx, mcpserver.Generate{Name: "sum", Text: "2+2?", MaxTokens: 5}, mcpserver.Roots{Name: "where"})
		if err != nil {
			return "", err
		}
		return answers[0].Text + " in " + strings.Join(answers[1].Roots, " "), nil
	})
	thing.Tool(board, "hold", "Take long", func(ctx context.Context, _ struct{}) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
	thing.Tool(board, "extra", "Not always there", func(context.Context, struct{}) (int, error) { return 1, nil })
	d := mcpserver.New(board, mcpserver.Config{Title: "A robot", Instructions: "Mind the cat.", Icons: []mcpserver.Icon{{URL: "https://example.com/robot.png"}}})
	d.Group("extras", "extra")
	d.Resource(mcpserver.Resource{URI: "robot://log", Name: "log", MIME: "text/plain", Audience: []string{"user"}, Priority: 0.5},
		func(context.Context) (any, error) { return "all is well", nil })
	d.Template(mcpserver.Template{
		Resource: mcpserver.Resource{URI: "robot://arm/{joint}"},
		Complete: map[string]mcpserver.Completer{"joint": func(context.Context, string, map[string]string) []string { return []string{"elbow", "wrist"} }},
	}, func(_ context.Context, values map[string]string) (any, error) { return values["joint"], nil })
	d.Prompt(mcpserver.Prompt{Name: "tour", Text: "A tour", Arguments: []mcpserver.Argument{{Name: "room", Required: true}}},
		func(_ context.Context, args map[string]string) ([]mcpserver.Message, error) {
			return []mcpserver.Message{{Role: "user", Content: "Show me the " + args["room"]}}, nil
		})
	return d
}

// transports are how the robot is connected: over HTTP with both families of versions,
// and over a WebSocket with a modern one.
var transports = []string{"http legacy", "http modern", "ws"}

// legacyOnly makes a device reject modern versions.
func legacyOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= "2026-07-28" {
			http.Error(w, "unknown version", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// serveRobot serves a device over a transport until the test ends, and returns its URL.
func serveRobot(t *testing.T, d *mcpserver.Device, name string) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	switch name {
	case "ws":
		go func() { ended <- d.ServeWebSocket(ctx, ln) }()
		url = "ws://" + ln.Addr().String() + "/"
	case "http modern":
		go func() { ended <- d.Serve(ctx, ln) }()
		url = "http://" + ln.Addr().String() + "/mcp"
	default:
		server := &http.Server{Handler: legacyOnly(d.Handler())}
		go func() { server.Serve(ln); ended <- nil }()
		context.AfterFunc(ctx, func() { server.Close() })
		url = "http://" + ln.Addr().String() + "/mcp"
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return url
}

// connector returns the transport of one device.
func connector(t *testing.T, d httpclient.Device) *httpclient.Connector {
	cfg := httpclient.DefaultConfig()
	cfg.Protocols, cfg.Devices = []string{mcp.Name}, []httpclient.Device{d}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	return httpclient.New(cfg, websocket.DefaultConfig().Dial, slog.New(slog.NewTextHandler(t.Output(), nil)))
}

// openWith opens a real link to a device.
func openWith(t *testing.T, d httpclient.Device) transport.Link {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan transport.Sighting, 1)
	go connector(t, d).Watch(ctx, func(_ string, all []transport.Sighting) { seen <- all[0] })
	sighting := <-seen
	cancel()
	link, err := sighting.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	return link
}

// peer is a device whose session runs.
type peer struct {
	protocol.Session
	t        *testing.T
	manifest *ferrule.Manifest
	stop     context.CancelFunc
	ran      chan error

	mu            sync.Mutex
	notes         []string
	notifications []string
}

func connect(t *testing.T, url string) *peer {
	t.Helper()
	m := &peer{t: t, ran: make(chan error, 1)}
	link := openWith(t, httpclient.Device{URL: url})
	link.(transport.Traceable).Observe(func(f transport.Frame) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.notes = append(m.notes, f.Message.Channel+" "+string(f.Message.Data)+" "+f.Note)
	})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	session, manifest, err := mcp.New(mcp.Parts{Version: "1.0"}).Greet(ctx, link)
	if err != nil {
		t.Fatalf("greeting: %v\n%s", err, strings.Join(m.notes, "\n"))
	}
	m.Session, m.manifest = session, manifest
	session.(protocol.Notifier).Notify(func(method string, params json.RawMessage) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.notifications = append(m.notifications, method+" "+string(params))
	})
	running, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() { m.ran <- session.Run(running) }()
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			m.mu.Lock()
			t.Log(strings.Join(m.notes, "\n"))
			m.mu.Unlock()
		}
	})
	return m
}

// traced waits until a message that contains a text was sent or received.
func (m *peer) traced(text string) {
	m.t.Helper()
	wait.For(m.t, text, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.ContainsFunc(m.notes, func(note string) bool { return strings.Contains(note, text) })
	})
}

// listening is what a device sends, by transport, when its notifications reach the gateway.
var listening = map[string]string{
	"http legacy": "event: prime", "http modern": "subscriptions/acknowledged", "ws": "subscriptions/acknowledged",
}

// do calls, and returns the result or error as JSON.
func (m *peer) do(call ferrule.Call) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), wait.Ample)
	defer cancel()
	call.Device = "robot"
	if call.Ask != nil {
		call.Askable = []ferrule.AskTarget{ferrule.User, ferrule.Page, ferrule.Model, ferrule.Roots}
	}
	result, err := m.Invoke(ctx, &call)
	for err == nil && result.InputRequest != nil && call.Ask != nil { // as the dock does
		inputs := *result.InputRequest
		for _, q := range inputs.Questions {
			answer, err := call.Ask(ctx, q)
			if err != nil {
				m.t.Fatal(err)
			}
			inputs.Answers = append(inputs.Answers, answer)
		}
		call.Inputs = &inputs
		result, err = m.Invoke(ctx, &call)
	}
	var data []byte
	if err != nil {
		data, _ = json.Marshal(ferrule.AsError(err))
	} else {
		data, _ = json.Marshal(result)
	}
	return string(data)
}

// TestRobot: every feature of a real device works, over each transport.
func TestRobot(t *testing.T) {
	for _, name := range transports {
		t.Run(name, func(t *testing.T) {
			d := robot()
			m := connect(t, serveRobot(t, d, name))
			checkManifest(t, m.manifest)

			var mu sync.Mutex
			var reports []ferrule.Progress
			progress := func(p ferrule.Progress) { mu.Lock(); defer mu.Unlock(); reports = append(reports, p) }
			for _, test := range []struct {
				call ferrule.Call
				want string
			}{
				{ferrule.Call{Tool: "move", Args: json.RawMessage(`{"steps":3}`), Progress: progress}, `{"value":{"position":3}}`},
				{ferrule.Call{Tool: "where"}, `{"value":{"position":3}}`},
				{ferrule.Call{Tool: "look"}, `{"content":[{"type":"image","data":"UE5H","mime":"image/png"}]}`},
				{ferrule.Call{Tool: "fail"}, `{"code":"failed","message":"fail failed on robot: out of oil","may_have_run":true,"content":[{"type":"text","text":"out of oil"}]}`},
				{ferrule.Call{Operation: ferrule.ReadResource, Tool: "robot://log"}, `{"content":[{"type":"resource","text":"all is well","mime":"text/plain","uri":"robot://log"}]}`},
				{ferrule.Call{Operation: ferrule.ReadResource, Tool: "robot://arm/wrist"}, `{"content":[{"type":"resource","text":"wrist","uri":"robot://arm/wrist"}]}`},
				{ferrule.Call{Operation: ferrule.GetPrompt, Tool: "tour", Args: json.RawMessage(`{"room":"kitchen"}`)}, `{"content":[{"type":"text","text":"Show me the kitchen","role":"user"}],"text":"A tour"}`},
				{ferrule.Call{Operation: ferrule.Complete, Tool: "robot://arm/{joint}", Args: json.RawMessage(`{"template":true,"argument":"joint","value":""}`)}, `{"value":{"values":["elbow","wrist"],"total":2}}`},
			} {
				if got := m.do(test.call); got != test.want {
					t.Errorf("%s %s: got %s, want %s", test.call.Operation, test.call.Tool, got, test.want)
				}
			}
			mu.Lock()
			half := slices.ContainsFunc(reports, func(p ferrule.Progress) bool { return p.Done == 1 && p.Total == 2 && p.Message == "half way" })
			log := slices.ContainsFunc(reports, func(p ferrule.Progress) bool {
				return p.Log != nil && p.Log.Level == "warning" && string(p.Log.Data) == `"the battery is low"`
			})
			mu.Unlock()
			if !half || !log {
				t.Errorf("got reports %+v", reports)
			}
			if got := m.do(ferrule.Call{Tool: "nonsense"}); !strings.Contains(got, `"code":"refused"`) || !strings.Contains(got, `"may_have_run":false`) {
				t.Errorf("an unknown tool: %s", got)
			}
			if got := m.do(ferrule.Call{Operation: ferrule.ReadResource, Tool: "robot://nothing"}); !strings.Contains(got, `"code":"not_found"`) {
				t.Errorf("an unknown resource: %s", got)
			}
		})
	}
}

// TestPins: pins, sampling and polling of a device survive over MCP, and wrong arguments
// are all named.
func TestPins(t *testing.T) {
	for _, name := range transports {
		t.Run(name, func(t *testing.T) {
			board := thing.New("board", "1")
			board.Output(2, "pump", "Water pump", nil)
			board.Analog(34, "light", "Light", func() int { return 7 }).Sampled(time.Second, 10).Summary()
			thing.Tool(board, "climate", "Climate", func(context.Context, struct{}) (map[string]int, error) { return map[string]int{"celsius": 21}, nil }, thing.Polled(2*time.Second))
			board.Tick(time.Now()) // the first sample
			m := connect(t, serveRobot(t, mcpserver.New(board, mcpserver.Config{}), name))
			m.manifest.Bound()
			pins, err := json.Marshal(m.manifest.Pins)
			if err != nil {
				t.Fatal(err)
			}
			if string(pins) != `[{"number":34,"name":"light","type":"adc_input","text":"Light","abilities":["buffer","summary"],"sampling":{"interval":"1s","size":10}},{"number":2,"name":"pump","type":"digital_output","text":"Water pump"}]` {
				t.Errorf("got pins %s", pins)
			}
			if tool := m.manifest.Tool("climate"); tool == nil || time.Duration(tool.Poll) != 2*time.Second {
				t.Errorf("got %+v", tool)
			}
			for _, test := range []struct{ tool, args, want string }{
				{"gpio_write", `{"pin":2,"value":true}`, `{"value":{"pin":2,"name":"pump","value":true}}`},
				{"get_pin_summary", `{"pin":34}`, `"latest":7`},
				{"gpio_write", `{"pin":34}`, `{"code":"refused","message":"robot refused gpio_write: Bad params: pin must be one of [2], got 34; value is missing; nothing was done (-32602)","may_have_run":false}`},
			} {
				if got := m.do(ferrule.Call{Tool: test.tool, Args: json.RawMessage(test.args)}); !strings.Contains(got, test.want) {
					t.Errorf("%s: got %s", test.tool, got)
				}
			}
		})
	}
}

func checkManifest(t *testing.T, m *ferrule.Manifest) {
	t.Helper()
	m.Bound()
	if m.Model != "robot" || m.Version != "1.2.3" || m.Title != "A robot" || m.Instructions != "Mind the cat." || len(m.Icons) != 1 || len(m.Notes) != 0 {
		t.Errorf("manifest %+v", m)
	}
	where, fail := m.Tool("where"), m.Tool("fail")
	if where == nil || fail == nil || where.Effect != ferrule.Reads || where.Title != "Where it is" || where.Output == nil || fail.Effect != ferrule.Endangers || m.Tool("move").Effect != "" {
		t.Errorf("tools %+v", m.Tools)
	}
	if len(m.Resources) != 2 || m.Resources[0].Annotations == nil || *m.Resources[0].Annotations.Priority != 0.5 || !m.Resources[1].Template {
		t.Errorf("resources %+v", m.Resources)
	}
	if len(m.Prompts) != 1 || !m.Prompts[0].Arguments[0].Required {
		t.Errorf("prompts %+v", m.Prompts)
	}
	for _, op := range []ferrule.Operation{ferrule.ReadResource, ferrule.GetPrompt, ferrule.Complete, ferrule.Subscribe, ferrule.Unsubscribe} {
		if !m.Supports(op) {
			t.Errorf("%s is not supported", op)
		}
	}
}

// TestQuestions: a device asks the user during a call. Without a yes, it does nothing.
func TestQuestions(t *testing.T) {
	for _, name := range transports {
		t.Run(name, func(t *testing.T) {
			m := connect(t, serveRobot(t, robot(), name))
			var asked ferrule.Question
			answers := func(a ferrule.Answer) func(context.Context, ferrule.Question) (ferrule.Answer, error) {
				return func(_ context.Context, q ferrule.Question) (ferrule.Answer, error) { asked = q; return a, nil }
			}
			yes := answers(ferrule.Answer{Given: true, Value: json.RawMessage(`{"sure":true}`)})
			if got := m.do(ferrule.Call{Tool: "careful", Ask: yes}); got != `{"value":"done"}` {
				t.Errorf("yes: %s", got)
			}
			if asked.Target != ferrule.User || asked.Text != "Are you sure?" || !bytes.Contains(asked.Schema, []byte(`"sure"`)) {
				t.Errorf("got question %+v", asked)
			}
			for name, ask := range map[string]func(context.Context, ferrule.Question) (ferrule.Answer, error){"no": answers(ferrule.Answer{}), "later": answers(ferrule.Answer{Dismissed: true}), "nobody": nil} {
				if got := m.do(ferrule.Call{Tool: "careful", Ask: ask}); !strings.Contains(got, `"code":"refused"`) {
					t.Errorf("%s: %s", name, got)
				}
			}
		})
	}
}

// TestModelAndRoots: a device asks the caller's model, and for the caller's roots.
func TestModelAndRoots(t *testing.T) {
	for _, name := range transports {
		t.Run(name, func(t *testing.T) {
			m := connect(t, serveRobot(t, robot(), name))
			got := m.do(ferrule.Call{Tool: "think", Ask: func(_ context.Context, q ferrule.Question) (ferrule.Answer, error) {
				if q.Target == ferrule.Roots {
					return ferrule.Answer{Given: true, Value: json.RawMessage(`{"roots":[{"uri":"file:///work"}]}`)}, nil
				}
				if q.Target != ferrule.Model || !bytes.Contains(q.Prompt, []byte("2+2?")) {
					t.Errorf("got question %+v", q)
				}
				return ferrule.Answer{Given: true, Value: json.RawMessage(`{"role":"assistant","model":"m","content":{"type":"text","text":"four"}}`)}, nil
			}})
			if got != `{"value":"four in file:///work"}` {
				t.Errorf("got %s", got)
			}
			got = m.do(ferrule.Call{Tool: "think", Ask: func(context.Context, ferrule.Question) (ferrule.Answer, error) { return ferrule.Answer{}, nil }})
			if !strings.Contains(got, `"code":"failed"`) && !strings.Contains(got, `"code":"refused"`) {
				t.Errorf("a refused question: %s", got)
			}
		})
	}
}

// TestToken: a device is greeted with the configured token, and fails with a wrong one.
func TestToken(t *testing.T) {
	d := mcpserver.New(thing.New("safe", "1"), mcpserver.Config{Tokens: []string{"secret"}})
	url := serveRobot(t, d, "http modern")
	for token, want := range map[string]string{"secret": "", "wrong": "HTTP status 401 Unauthorized"} {
		link := openWith(t, httpclient.Device{URL: url, Token: token})
		_, manifest, err := mcp.New(mcp.Parts{}).Greet(t.Context(), link)
		if want == "" && (err != nil || manifest.Model != "safe") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", token, err)
		}
	}
}

// TestSubscribe: a subscriber gets the updates of a resource until it unsubscribes.
func TestSubscribe(t *testing.T) {
	for _, name := range transports {
		t.Run(name, func(t *testing.T) {
			d := robot()
			m := connect(t, serveRobot(t, d, name))
			m.traced(listening[name])
			const uri = "robot://log"
			if got := m.do(ferrule.Call{Operation: ferrule.Subscribe, Tool: uri}); got != `{}` {
				t.Fatalf("subscribe: %s", got)
			}
			updates := func() int {
				m.mu.Lock()
				defer m.mu.Unlock()
				n := 0
				for _, s := range m.notifications {
					if strings.HasPrefix(s, "notifications/resources/updated ") && strings.Contains(s, uri) {
						n++
					}
				}
				return n
			}
			d.Updated(uri)
			wait.For(t, "an update", func() bool { return updates() == 1 })
			if got := m.do(ferrule.Call{Operation: ferrule.Unsubscribe, Tool: uri}); got != `{}` {
				t.Fatalf("unsubscribe: %s", got)
			}
			wait.For(t, "no update", func() bool { // one may be on its way
				before := updates()
				d.Updated(uri)
				time.Sleep(50 * time.Millisecond)
				return updates() == before
			})
		})
	}
}

// TestListChanged: without a handler, a changed list ends the session after the active
// call.
func TestListChanged(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, name := range transports {
		t.Run(name, func(t *testing.T) {
			d := robot()
			m := connect(t, serveRobot(t, d, name))
			m.traced(listening[name])
			ctx, cancel := context.WithCancel(t.Context())
			called := make(chan error, 1)
			go func() {
				_, err := m.Invoke(ctx, &ferrule.Call{Device: "robot", Tool: "hold"})
				called <- err
			}()
			m.traced("hold")
			d.Disable("extras")
			select {
			case err := <-m.ran:
				t.Fatalf("the session ended during a call: %v", err)
			case <-time.After(300 * time.Millisecond):
			}
			cancel()
			if err := <-called; ferrule.AsError(err).Code != ferrule.Cancelled {
				t.Errorf("got %v", err)
			}
			select {
			case err := <-m.ran:
				if err == nil || !strings.Contains(err.Error(), "changed") {
					t.Errorf("it ended with %v", err)
				}
			case <-time.After(wait.Ample):
				t.Error("the session goes on")
			}
		})
	}
}
