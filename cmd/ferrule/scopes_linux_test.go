package main

import (
	"bufio"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
)

// scopeMatrix is what each caller gets for each operation on each path:
//
//	p  it is permitted, or shown in a list
//	f  it is refused, and the error names the scope that is missing
//	s  it is refused with 403 and the scopes to ask for: the program can step up
//	d  the address is refused with 403, whatever is asked for
//	u  it is unknown to the caller, as if it did not exist
//	.  the path does not have it
//
// A caller is named after its scope. Tokens of the owner are static; those that begin with
// oauth- are from an authorization server. Other-admin is good for other devices only. The
// person and the local agent have no credential.
const scopeMatrix = `
	paths: http, node
	#              look set unlock log greet complete watch status tokens label forget accept stop see-set see-unlock
	none           d    d   d      d   d     d        d     d      d      d     d      d      d    d       d
	metrics        d    d   d      d   d     d        d     d      d      d     d      d      d    d       d
	read           p    f   f      p   p     p        p     p      u      u     u      u      p    u       u
	change         p    p   f      p   p     p        p     p      u      u     u      u      p    p       u
	endanger       p    p   p      p   p     p        p     p      u      u     u      u      p    p       p
	admin          p    p   p      p   p     p        p     p      p      u     u      u      p    p       p
	other-admin    u    u   u      u   u     u        u     p      u      u     u      u      p    u       u
	oauth-metrics  d    d   d      d   d     d        d     d      d      d     d      d      d    d       d
	oauth-read     p    s   s      p   p     p        p     p      u      u     u      u      p    p       p
	oauth-change   p    p   s      p   p     p        p     p      u      u     u      u      p    p       p
	oauth-endanger p    p   p      p   p     p        p     p      u      u     u      u      p    p       p
	oauth-admin    p    p   p      p   p     p        p     p      p      u     u      u      p    p       p

	paths: device
	#              look set unlock log greet complete watch status tokens label forget accept stop see-set see-unlock
	none           d    d   d      d   d     d        d     .      .      .     .      .      .    d       d
	metrics        d    d   d      d   d     d        d     .      .      .     .      .      .    d       d
	read           p    f   f      p   p     p        p     .      .      .     .      .      .    u       u
	change         p    p   f      p   p     p        p     .      .      .     .      .      .    p       u
	endanger       p    p   p      p   p     p        p     .      .      .     .      .      .    p       p
	admin          p    p   p      p   p     p        p     .      .      .     .      .      .    p       p
	oauth-metrics  d    d   d      d   d     d        d     .      .      .     .      .      .    d       d
	oauth-read     p    s   s      p   p     p        p     .      .      .     .      .      .    p       p
	oauth-change   p    p   s      p   p     p        p     .      .      .     .      .      .    p       p
	oauth-endanger p    p   p      p   p     p        p     .      .      .     .      .      .    p       p
	oauth-admin    p    p   p      p   p     p        p     .      .      .     .      .      .    p       p

	paths: call_tool
	#              look set unlock status tokens label forget accept stop
	read           p    f   f      p      u      u     u      u      p
	change         p    p   f      p      u      u     u      u      p
	endanger       p    p   p      p      u      u     u      u      p
	admin          p    p   p      p      p      u     u      u      p
	other-admin    u    u   u      p      u      u     u      u      p
	oauth-read     p    f   f      p      u      u     u      u      p
	oauth-change   p    p   f      p      u      u     u      u      p
	oauth-endanger p    p   p      p      u      u     u      u      p
	oauth-admin    p    p   p      p      p      u     u      u      p

	paths: call_many
	#              look set unlock
	read           p    f   f
	change         p    p   f
	endanger       p    p   p
	admin          p    p   p
	other-admin    u    u   u
	oauth-read     p    f   f
	oauth-change   p    p   f
	oauth-endanger p    p   p
	oauth-admin    p    p   p

	paths: /metrics
	#              get
	none           d
	metrics        p
	read           d
	change         d
	endanger       d
	admin          p
	oauth-metrics  p
	oauth-read     d
	oauth-endanger d
	oauth-admin    p

	paths: socket
	#              look set unlock log greet complete watch status label stop
	person         p    p   p      p   p     p        p     p      p     p

	paths: stdio
	#              look set unlock log greet complete watch status tokens label forget accept stop see-set see-unlock
	local          p    p   p      p   p     p        p     p      u      u     u      u      p    p       p
`

// matrixCell is one cell of the matrix.
type matrixCell struct{ path, who, what, want string }

func matrixCells(t *testing.T) (cells []matrixCell) {
	t.Helper()
	var paths, columns []string
	for line := range strings.Lines(scopeMatrix) {
		words := strings.Fields(strings.ReplaceAll(line, ",", " "))
		switch {
		case len(words) == 0:
		case words[0] == "paths:":
			paths = words[1:]
		case words[0] == "#":
			columns = words
		case len(words) != len(columns):
			t.Fatalf("%q", line)
		default:
			for _, path := range paths {
				for i, want := range words[1:] {
					if want != "." {
						cells = append(cells, matrixCell{path, words[0], columns[i+1], want})
					}
				}
			}
		}
	}
	return cells
}

// matrixTokens are the tokens of the callers of the matrix.
type matrixTokens struct {
	config config.Auth       // that accepts them
	secret map[string]string // by caller
}

// newMatrixTokens makes static tokens, and starts an issuer of the others.
func newMatrixTokens(t *testing.T, cells []matrixCell) *matrixTokens {
	t.Helper()
	const audience = "api://ferrule"
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keys" {
			fmt.Fprintf(w, `{"keys":[{"kty":"RSA","use":"sig","alg":"RS256","kid":"one","n":%q,"e":"AQAB"}]}`, encode(key.N.Bytes()))
			return
		}
		fmt.Fprintf(w, `{"issuer":"http://%[1]s","jwks_uri":"http://%[1]s/keys","authorization_endpoint":"http://%[1]s/authorize","token_endpoint":"http://%[1]s/token"}`, r.Host)
	}))
	t.Cleanup(issuer.Close)
	sign := func(who, scope string) string {
		payload := fmt.Sprintf(`{"iss":%q,"sub":%q,"aud":%q,"exp":%d,"scope":%q,"groups":["IT"]}`, issuer.URL, who, audience, time.Now().Add(time.Hour).Unix(), scope)
		text := encode([]byte(`{"alg":"RS256","kid":"one","typ":"at+jwt"}`)) + "." + encode([]byte(payload))
		hash := sha256.Sum256([]byte(text))
		signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, hash[:])
		if err != nil {
			t.Fatal(err)
		}
		return text + "." + encode(signature)
	}
	m := &matrixTokens{secret: make(map[string]string)}
	m.config.Issuers = []config.Issuer{{Name: "company", URL: issuer.URL, Audience: audience, GroupsClaim: "groups", Groups: map[string]string{"IT": "owner"}}}
	for _, c := range cells {
		if m.secret[c.who] != "" || c.path == "socket" || c.path == "stdio" {
			continue
		}
		if scope, ok := strings.CutPrefix(c.who, "oauth-"); ok {
			m.secret[c.who] = sign(c.who, scope)
			continue
		}
		scope, other := strings.CutPrefix(c.who, "other-")
		token := config.Token{Name: c.who, Token: ferrule.Secret("secret-of-" + c.who + "-0123456789"), Scopes: []string{}}
		if other {
			token.Devices = []string{"other-*"}
		}
		if scope != "none" {
			token.Scopes = []string{scope}
		}
		m.secret[c.who] = token.Token.Reveal()
		m.config.Tokens = append(m.config.Tokens, token)
	}
	return m
}

// matrixDevice is a device with all that a device can have. It records the headers that it
// gets.
type matrixDevice struct {
	url string

	mu      sync.Mutex
	headers []string
	runs    map[string]int // by tool
}

func newMatrixDevice(t *testing.T) *matrixDevice {
	d := &matrixDevice{runs: make(map[string]int)}
	s := mcp.NewServer(&mcp.Implementation{Name: "lamp", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{"hall"}}}, nil
		},
	})
	yes, no := true, false
	for name, hints := range map[string]*mcp.ToolAnnotations{"look": {ReadOnlyHint: true}, "set": {DestructiveHint: &no}, "unlock": {DestructiveHint: &yes}} {
		s.AddTool(&mcp.Tool{Name: name, Annotations: hints, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.runs[name]++
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
		})
	}
	s.AddResource(&mcp.Resource{URI: "file:///log", Name: "log"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "file:///log", Text: "text"}}}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "greet", Arguments: []*mcp.PromptArgument{{Name: "room"}}}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "hello"}}}}, nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		d.mu.Lock()
		d.headers = append(d.headers, fmt.Sprint(r.URL, r.Header, string(body)))
		d.mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

// stepUps is an HTTP client's transport that sends a token and counts the answers that ask
// for more scopes.
type stepUps struct {
	token string
	mu    sync.Mutex
	asked int
}

func (s *stepUps) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+s.token)
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && answer.StatusCode == http.StatusForbidden && strings.Contains(answer.Header.Get("WWW-Authenticate"), `error="insufficient_scope"`) {
		s.mu.Lock()
		s.asked++
		s.mu.Unlock()
	}
	return answer, err
}

func (s *stepUps) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// outcomeOf returns the letter of the matrix for an error.
func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "p"
	case strings.Contains(err.Error(), "needs the scope"):
		return "f"
	}
	for _, unknown := range []string{"has no tool", "there is no device", "no device", "unknown tool", "not found", "Resource not found"} {
		if strings.Contains(err.Error(), unknown) {
			return "u"
		}
	}
	return err.Error()
}

// matrixURI returns the URI of the device's resource.
func matrixURI(path string) string {
	if path == "device" {
		return "file:///log"
	}
	return "ferrule://devices/lamp/resources/file:///log"
}

// acknowledged returns an error unless a subscription is acknowledged. The modern version
// leaves out what cannot be subscribed to.
func acknowledged(ctx context.Context, a *plainAgent, uri string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer, err := a.send(ctx, http.MethodPost, "subscriptions/listen", "", request(modern, 1, "subscriptions/listen", fmt.Sprintf(`"notifications":{"resourceSubscriptions":[%q]}`, uri)))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if !strings.Contains(lines.Text(), "acknowledged") {
			continue
		}
		if !strings.Contains(lines.Text(), uri) {
			return errors.New("not found")
		}
		return nil
	}
	return errors.New("the stream ended")
}

// matrixOver makes the operations of the matrix over a session.
func matrixOver(ctx context.Context, session *mcp.ClientSession, path, what string) error {
	tool, prompt, uri := "lamp__"+what, "lamp__greet", matrixURI(path)
	if path == "device" {
		tool, prompt = what, "greet"
	}
	args := map[string]any{}
	switch what {
	case "log":
		_, err := session.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
		return err
	case "greet":
		_, err := session.GetPrompt(ctx, &mcp.GetPromptParams{Name: prompt})
		return err
	case "complete":
		done, err := session.Complete(ctx, &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: prompt}, Argument: mcp.CompleteParamsArgument{Name: "room", Value: "h"}})
		if err == nil && len(done.Completion.Values) != 1 {
			return errors.New("not found")
		}
		return err
	case "watch":
		return session.Subscribe(ctx, &mcp.SubscribeParams{URI: uri})
	case "see-set", "see-unlock":
		for listed, err := range session.Tools(ctx, nil) {
			if err != nil {
				return err
			}
			if strings.HasSuffix(listed.Name, strings.TrimPrefix(what, "see-")) {
				return nil
			}
		}
		return errors.New("not found")
	case "status":
		tool = "gateway__status"
	case "label":
		tool, args = "gateway__label_device", map[string]any{"device": "lamp", "set": map[string]string{"room": "hall"}}
	case "tokens":
		tool = "gateway__list_tokens"
	case "forget":
		tool, args = "gateway__forget_device", map[string]any{"device": "lamp"}
	case "accept":
		tool, args = "gateway__accept_device", map[string]any{"device": "lamp"}
	case "stop":
		tool = "gateway__" + ferrule.StopTool
	}
	switch path {
	case "call_tool":
		tool, args = "gateway__call_tool", map[string]any{"name": tool, "arguments": args}
	case "call_many":
		tool, args = "gateway__call_many", map[string]any{"tool": what, "devices": []string{"lamp"}}
	}
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return err
	}
	if text := result.Content[0].(*mcp.TextContent).Text; result.IsError || path == "call_many" && !strings.Contains(text, `"succeeded":1`) {
		return errors.New(text)
	}
	return nil
}

// matrixOverSocket makes the operations of the matrix as a person at the command line.
func matrixOverSocket(ctx context.Context, client *control.Client, what string) error {
	call := &ferrule.Call{Principal: control.User(), Device: "lamp", Tool: what, Subscriber: "test"}
	switch what {
	case "log":
		call.Operation, call.Tool = ferrule.ReadResource, "file:///log"
	case "greet":
		call.Operation = ferrule.GetPrompt
	case "complete":
		call.Operation, call.Tool, call.Args = ferrule.Complete, "greet", json.RawMessage(`{"argument":"room","value":"h"}`)
	case "watch":
		call.Operation, call.Tool = ferrule.Subscribe, "file:///log"
	case "status":
		call.Device = ferrule.GatewayID
	case "label":
		call.Device, call.Tool, call.Args = ferrule.GatewayID, "label_device", json.RawMessage(`{"device":"lamp","set":{"room":"hall"}}`)
	case "stop":
		call.Device, call.Tool = ferrule.GatewayID, ferrule.StopTool
	}
	_, err := client.Handle(ctx, call)
	return err
}

// TestScopeMatrix checks every scope with every operation on every path, and that no token
// gets to the device.
func TestScopeMatrix(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	cells := matrixCells(t)
	tokens := newMatrixTokens(t, cells)
	device := newMatrixDevice(t)
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	node := func(name string, urls ...string) *testGateway {
		cfg := config.Default()
		joins(&cfg, name, servers)
		cfg.Listen, cfg.Calls.Refused, cfg.Agents.OpenLoopback, cfg.Auth = "127.0.0.1:0", 0, false, tokens.config
		cfg.Polling.Enabled, cfg.History.Enabled, cfg.Policy.Preset = false, false, "open"
		for _, url := range urls {
			cfg.Devices.HTTP = append(cfg.Devices.HTTP, config.HTTPDevice{URL: url, Name: "lamp"})
		}
		data := t.TempDir()
		g, err := gateway.New(gateway.Parts{Config: cfg, Data: data, Version: version(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return runGateway(t, g, data)
	}
	near, far := node("a", device.url), node("b")
	near.online("lamp")
	far.online("lamp")
	socket, err := control.SocketPath(near.data)
	if err != nil {
		t.Fatal(err)
	}
	person := control.NewClient(socket)
	t.Cleanup(person.Close)

	address := func(path string) string {
		switch path {
		case "node":
			return far.url("/mcp")
		case "device":
			return near.url("/mcp/devices/lamp")
		}
		return near.url("/mcp")
	}
	type dialed struct {
		session *mcp.ClientSession
		steps   *stepUps
	}
	sessions := make(map[string]dialed)
	dial := func(c matrixCell, mcpVersion string) (dialed, error) {
		key := fmt.Sprint(c.path, c.who, mcpVersion)
		if d, ok := sessions[key]; ok {
			return d, nil
		}
		d := dialed{steps: &stepUps{token: tokens.secret[c.who]}}
		var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: address(c.path), HTTPClient: &http.Client{Transport: d.steps}, MaxRetries: -1}
		if c.path == "stdio" {
			cfg := config.Default()
			cfg.Listen = ""
			transport = mcpTransport(t, cfg, near.data)
		}
		var err error
		d.session, err = mcp.NewClient(&mcp.Implementation{Name: c.who, Version: c.path}, nil).Connect(context.Background(), transport, &mcp.ClientSessionOptions{ProtocolVersion: mcpVersion})
		if err == nil {
			t.Cleanup(func() { d.session.Close() })
			sessions[key] = d
		}
		return d, err
	}
	try := func(c matrixCell, mcpVersion string) string {
		ctx, cancel := context.WithTimeout(t.Context(), ample)
		defer cancel()
		switch c.path {
		case "socket":
			return outcomeOf(matrixOverSocket(ctx, person, c.what))
		case "/metrics":
			steps := &stepUps{token: tokens.secret[c.who]}
			answer, err := (&http.Client{Transport: steps}).Get(near.url("/metrics"))
			if err != nil {
				return err.Error()
			}
			answer.Body.Close()
			return map[int]string{http.StatusOK: "p", http.StatusForbidden: "d"}[answer.StatusCode]
		}
		d, err := dial(c, mcpVersion)
		if err != nil {
			if d.steps.count() > 0 {
				return "d"
			}
			return err.Error()
		}
		before := d.steps.count()
		if c.what == "watch" && mcpVersion == modern && c.path != "stdio" {
			return outcomeOf(acknowledged(ctx, &plainAgent{url: address(c.path), mcpVersion: modern, client: &http.Client{Transport: d.steps}}, matrixURI(c.path)))
		}
		err = matrixOver(ctx, d.session, c.path, c.what)
		if err != nil && d.steps.count() > before {
			return "s"
		}
		return outcomeOf(err)
	}
	last := func(c matrixCell) bool { return c.what == "stop" } // it ends changes
	cells = append(slices.DeleteFunc(slices.Clone(cells), last), slices.DeleteFunc(cells, func(c matrixCell) bool { return !last(c) })...)
	start, trials := time.Now(), 0
	want := make(map[string]int)
	for _, c := range cells {
		versions := mcpVersions
		if c.path == "socket" || c.path == "/metrics" {
			versions = versions[:1]
		}
		for _, mcpVersion := range versions {
			trials++
			got := try(c, mcpVersion)
			if got != c.want {
				t.Errorf("%s, %s: %s of %s is %s, want %s", c.path, mcpVersion, c.what, c.who, got, c.want)
			}
			if c.want == "p" {
				want[c.what]++
			}
		}
	}
	t.Logf("%d cells, %d trials in %v", len(cells), trials, time.Since(start))
	device.mu.Lock()
	defer device.mu.Unlock()
	for _, tool := range []string{"look", "set", "unlock"} {
		if device.runs[tool] != want[tool] && tool != "look" || device.runs["look"] == 0 { // an answer may come from the cache
			t.Errorf("%s ran %d times, want %d", tool, device.runs[tool], want[tool])
		}
	}
	for _, request := range device.headers {
		for who, secret := range tokens.secret {
			if strings.Contains(request, "Authorization") || strings.Contains(request, secret) {
				t.Errorf("the device got %s of %s", request, who)
			}
		}
	}
}
