package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/approval"
	"github.com/ferrulehq/ferrule/internal/measure/waits"
	"github.com/ferrulehq/ferrule/internal/ops/audit"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/internal/watch"
)

// plant is a gateway with a sensor and actuators that count their calls.
type plant struct {
	*site
	claude ferrule.Principal
	secret string
	moved  map[string]*atomic.Int64
	calls  chan *ferrule.Call
}

func newPlant(t *testing.T) *plant {
	p := &plant{site: newSite(t), moved: make(map[string]*atomic.Int64), calls: make(chan *ferrule.Call, 100)}
	token, err := managed{p.Gateway}.Add(owner, builtin.AddTokenInput{Name: "claude"})
	if err != nil {
		t.Fatal(err)
	}
	scopes, err := ferrule.ParseScopes(token.Token.Scopes)
	if err != nil {
		t.Fatal(err)
	}
	p.secret = token.Secret
	p.claude = ferrule.Principal{Role: ferrule.Agent, Name: "claude", Auth: ferrule.AuthToken, Scopes: scopes, TokenID: token.Token.ID}
	for id, tool := range map[string]string{"tank": "level", "lamp": "blink", "door": "open", "pump": "run"} {
		m := &ferrule.Manifest{Model: id, Tools: []ferrule.Tool{{Name: tool, Effect: ferrule.Changes}}}
		if id == "tank" {
			m.Tools[0].Effect = ferrule.Reads
		}
		kind, err := m.Kind()
		if err != nil {
			t.Fatal(err)
		}
		count := &atomic.Int64{}
		p.moved[id] = count
		d := &ferrule.Device{ID: id, Kind: kind, Accepted: kind, Model: id, State: ferrule.StateOnline, Since: time.Now(), Trust: ferrule.TrustAdopted, Node: p.node()}
		p.Fleet.Put(d, m, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			count.Add(1)
			p.calls <- call
			return &ferrule.Result{Value: []byte(`{}`)}, nil
		})
	}
	return p
}

// set sets a watch with a call as claude.
func (p *plant) set(device, tool string, edit func(*builtin.WatchInput)) watch.Status {
	p.t.Helper()
	above := 90.0
	in := builtin.WatchInput{
		Name: "tank full", When: &condition.Condition{Device: "tank", Signal: "level", Above: &above, Hysteresis: 5},
		Call: &builtin.WatchCall{Device: device, Tool: tool, Args: map[string]any{"seconds": 1}}, Every: ferrule.Duration(time.Second),
	}
	if edit != nil {
		edit(&in)
	}
	w, err := callOwn[watch.Status](p.t.Context(), p.Gateway, p.claude, builtin.WatchTool, in)
	if err != nil {
		p.t.Fatal(err)
	}
	return w
}

func (p *plant) level(v float64) {
	now := time.Now()
	p.publish(ferrule.Reading{Device: "tank", Node: p.node(), Poll: "level", Time: now, Batches: []ferrule.SampleBatch{{Signal: "level", Samples: []ferrule.Sample{{Time: now, Value: v}}}}})
}

// outcome waits for the outcome of a watch.
func (p *plant) outcome(id string, holds func(*watch.Outcome) bool) *watch.Outcome {
	p.t.Helper()
	var last *watch.Outcome
	wait.For(p.t, "the outcome of the watch", func() bool {
		out, err := callOwn[builtin.ListWatchesOutput](p.t.Context(), p.Gateway, p.claude, builtin.ListWatchesTool, builtin.ListWatchesInput{Watch: id})
		if err != nil {
			p.t.Fatal(err)
		}
		last = out.Watches[0].Outcome
		return last != nil && holds(last)
	})
	return last
}

func ended(o *watch.Outcome) bool { return !o.Waiting && o.Message != "calling" }

// TestWatchPermitted: a watch calls once, as its owner, and the journal says which watch.
func TestWatchPermitted(t *testing.T) {
	p := newPlant(t)
	w := p.set("lamp", "blink", nil)
	p.level(50)
	p.level(95)
	p.level(96)
	got := p.outcome(w.ID, ended)
	if got.Code != "" || p.moved["lamp"].Load() != 1 {
		t.Fatalf("outcome %+v after %d calls", got, p.moved["lamp"].Load())
	}
	call := <-p.calls
	if call.Principal != p.claude || call.ID != got.Call || !strings.HasPrefix(call.ID, "watch-"+w.ID) || call.Client.Name != ferrule.WatchClient || call.Verdict.Ruling != ferrule.Permit {
		t.Errorf("called %+v", call)
	}
	wait.For(t, "the journal has the call", func() bool {
		return len(p.Calls.Recent(1, func(c *audit.Call) bool {
			return c.Call == call.ID && c.Principal.Name == "claude" && c.Client.Name == ferrule.WatchClient && c.Tool == "blink" && c.Code == ""
		})) == 1
	})
}

// TestWatchAsked: a call that the policy asks about waits for a person and then runs once.
func TestWatchAsked(t *testing.T) {
	p := newPlant(t)
	w := p.set("door", "open", nil)
	p.level(95)
	p.outcome(w.ID, func(o *watch.Outcome) bool { return o.Waiting })
	if n := p.moved["door"].Load(); n != 0 {
		t.Fatalf("the door moved %d times before a person answered", n)
	}
	all := p.Approvals.List()
	if len(all) != 1 || all[0].Caller != "agent:claude" {
		t.Fatalf("requests %+v", all)
	}
	if _, err := p.Approvals.Answer(owner, all[0].ID, approval.Answer{Allow: true}); err != nil {
		t.Fatal(err)
	}
	if got := p.outcome(w.ID, ended); got.Code != "" || p.moved["door"].Load() != 1 {
		t.Errorf("outcome %+v after %d calls", got, p.moved["door"].Load())
	}
}

// TestWatchDenied: what the owner may not call, the watch does not call.
func TestWatchDenied(t *testing.T) {
	p := newPlant(t)
	p.claude = owner // who sees the pump, which is forbidden to agents
	if _, err := callOwn[watch.Status](t.Context(), p.Gateway, ferrule.Principal{Role: ferrule.Agent, Name: "claude", Auth: ferrule.AuthToken, Scopes: ferrule.LimitTo(ferrule.ScopeEndanger)}, builtin.WatchTool,
		builtin.WatchInput{When: &condition.Condition{Device: "tank", Signal: "level", Changes: true}, Call: &builtin.WatchCall{Device: "pump", Tool: "run"}}); err == nil {
		t.Error("a watch was set with a tool that its owner does not see")
	}
	p.claude = ferrule.Principal{Role: ferrule.Agent, Name: "claude", Auth: ferrule.AuthToken, Scopes: ferrule.LimitTo(ferrule.ScopeEndanger)}
	w := p.set("lamp", "blink", func(in *builtin.WatchInput) { in.Call.Args = map[string]any{"seconds": 60} })
	p.level(95)
	if got := p.outcome(w.ID, ended); got.Code != ferrule.Denied || got.MayHaveRun || p.moved["lamp"].Load() != 0 {
		t.Errorf("outcome %+v after %d calls", got, p.moved["lamp"].Load())
	}
}

// TestWatchRevoked: a watch of an agent whose token is gone does nothing.
func TestWatchRevoked(t *testing.T) {
	p := newPlant(t)
	w := p.set("lamp", "blink", nil)
	p.level(50)
	if _, err := p.Tokens.Revoke(owner, "claude"); err != nil {
		t.Fatal(err)
	}
	if _, err := (managed{p.Gateway}).Add(owner, builtin.AddTokenInput{Name: "claude"}); err != nil { // another one of the same name
		t.Fatal(err)
	}
	p.level(95)
	if got := p.outcome(w.ID, ended); got.Code != ferrule.Denied || !strings.Contains(got.Message, "revoked") || p.moved["lamp"].Load() != 0 {
		t.Errorf("outcome %+v after %d calls", got, p.moved["lamp"].Load())
	}
}

// TestWatchStopped: a stop of the gateway or of the device stops its watches too.
func TestWatchStopped(t *testing.T) {
	for name, devices := range map[string][]string{"everything": nil, "device": {"lamp"}} {
		t.Run(name, func(t *testing.T) {
			p := newPlant(t)
			w := p.set("lamp", "blink", nil)
			if _, err := (stopper{p.Gateway}).Halt(t.Context(), owner, "test", devices); err != nil {
				t.Fatal(err)
			}
			p.level(95)
			if got := p.outcome(w.ID, ended); got.Code != ferrule.Denied || got.MayHaveRun || p.moved["lamp"].Load() != 0 {
				t.Errorf("outcome %+v after %d calls", got, p.moved["lamp"].Load())
			}
			if _, err := (stopper{p.Gateway}).Resume(t.Context(), owner, devices); err != nil {
				t.Fatal(err)
			}
			wait.For(t, "the watch calls again", func() bool {
				p.level(50)
				p.level(95)
				return p.moved["lamp"].Load() == 1
			})
		})
	}
}

// TestWatchLimited: a flapping sensor moves an actuator at most as often as the watch says.
func TestWatchLimited(t *testing.T) {
	p := newPlant(t)
	w := p.set("lamp", "blink", func(in *builtin.WatchInput) { in.Every, in.PerHour = ferrule.Duration(time.Second), 2 })
	start := time.Now()
	for range 20_000 { // a storm
		p.level(95)
		p.level(50)
	}
	p.level(95)
	wait.For(t, "the second call", func() bool { return p.moved["lamp"].Load() == 2 })
	for range 1000 {
		p.level(50)
		p.level(95)
	}
	p.outcome(w.ID, ended)
	if n := p.moved["lamp"].Load(); n != 2 {
		t.Errorf("%d calls in %v; the limit is 2 in an hour", n, time.Since(start))
	}
	out, err := p.Watches.Get(owner, w.ID)
	if err != nil || out.Hits < 20_000 || out.Held < out.Hits-10 {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestWatchResource: an agent is told when its watch fires, and reads what happened. Another
// agent can do neither.
func TestWatchResource(t *testing.T) {
	p := newPlant(t)
	w := p.set("lamp", "blink", nil)
	updated := make(chan string, 100)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { updated <- r.Params.URI }})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: "http://" + p.Addr() + "/mcp", HTTPClient: &http.Client{Transport: bearer(p.secret)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	uri := "ferrule://watches/" + w.ID
	if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
	p.level(95)
	select {
	case got := <-updated:
		if got != uri {
			t.Errorf("update of %s", got)
		}
	case <-time.After(wait.Ample):
		t.Fatal("no update")
	}
	p.outcome(w.ID, ended)
	read, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
	if err != nil || !strings.Contains(read.Contents[0].Text, `"hits":1`) {
		t.Errorf("read %+v, %v", read, err)
	}
	other, err := managed{p.Gateway}.Add(owner, builtin.AddTokenInput{Name: "cursor"})
	if err != nil {
		t.Fatal(err)
	}
	leaked := make(chan string, 100)
	client = mcp.NewClient(&mcp.Implementation{Name: "cursor", Version: "1"}, &mcp.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { leaked <- r.Params.URI }})
	stranger, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: "http://" + p.Addr() + "/mcp", HTTPClient: &http.Client{Transport: bearer(other.Secret)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if _, err := stranger.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil {
		t.Error("another agent reads the watch")
	}
	stranger.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}) // newer clients are not told that it failed
	for len(updated) > 0 {
		<-updated
	}
	wait.For(t, "the watch fires again", func() bool {
		p.level(50)
		p.level(95)
		return len(updated) > 0
	})
	if len(leaked) > 0 {
		t.Error("another agent is told about the watch")
	}
}

// TestWatchWebhook: notices are signed like requests for approval, and do not follow
// redirects.
func TestWatchWebhook(t *testing.T) {
	const secret = ferrule.Secret("0123456789abcdef0123")
	got := make(chan watch.Notice, 1)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/elsewhere" {
			t.Error("a redirect was followed")
		}
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return
		}
		if want := approval.Sign(secret, r.Header.Get("Ferrule-Timestamp"), body); r.Header.Get("Ferrule-Signature") != want {
			t.Errorf("signature %s, want %s", r.Header.Get("Ferrule-Signature"), want)
		}
		var n watch.Notice
		if err := json.Unmarshal(body, &n); err != nil {
			t.Error(err)
		}
		got <- n
	}))
	defer web.Close()
	g := &Gateway{}
	send := func(path string) error {
		cfg := config.Watches{Webhook: config.WatchWebhook{URL: ferrule.Secret(web.URL + path), Secret: secret}}
		return g.watchSenders(cfg)[watch.Webhook](t.Context(), watch.Notice{Event: "watch", Watch: "abcdefghij", Name: "tank full"})
	}
	if err := send("/hook"); err != nil {
		t.Fatal(err)
	}
	if n := <-got; n.Name != "tank full" {
		t.Errorf("notice %+v", n)
	}
	if err := send("/redirect"); err == nil {
		t.Error("a redirect counts as delivered")
	}
}

// TestWatchesPage: a person sees the watches of agents, disables and removes them, and sets
// one. A viewer only looks. What an agent wrote is text.
func TestWatchesPage(t *testing.T) {
	p := newPlant(t)
	w := p.set("lamp", "blink", func(in *builtin.WatchInput) { in.Name = "<script>alert(1)</script>" })
	page := p.request(ferrule.RoleViewer, http.MethodGet, "/watches", "").Body.String()
	if !strings.Contains(page, w.ID) || strings.Contains(page, "<script>alert") || strings.Contains(page, "New watch") {
		t.Errorf("a viewer sees %s", page)
	}
	form := func(role ferrule.PersonRole, values url.Values) int {
		return p.request(role, http.MethodPost, "/watches", values.Encode()).Code
	}
	if code := form(ferrule.RoleViewer, url.Values{"do": {"remove"}, "watch": {w.ID}}); code != http.StatusForbidden {
		t.Errorf("a viewer removes a watch: %d", code)
	}
	if code := form(ferrule.RoleOperator, url.Values{"do": {"disable"}, "watch": {w.ID}}); code != http.StatusSeeOther {
		t.Errorf("disabled: %d", code)
	}
	if got, err := p.Watches.Get(owner, w.ID); err != nil || !got.Off || got.OffBy != "person:mira" {
		t.Errorf("disabled: %+v, %v", got, err)
	}
	if code := form(ferrule.RoleOperator, url.Values{"do": {"remove"}, "watch": {w.ID}}); code != http.StatusSeeOther {
		t.Errorf("removed: %d", code)
	}
	if _, err := p.People.Add(owner, "mira", ferrule.RoleOperator); err != nil {
		t.Fatal(err)
	}
	if code := form(ferrule.RoleOperator, url.Values{"do": {"add"}, "device": {"tank"}, "signal": {"level"}, "test": {"above"}, "value": {"90"}, "call_device": {"lamp"}, "call_tool": {"blink"}, "call_args": {`{"seconds":1}`}}); code != http.StatusSeeOther {
		t.Errorf("added: %d", code)
	}
	if code := form(ferrule.RoleOperator, url.Values{"do": {"add"}, "device": {"tank"}, "signal": {"level"}, "test": {"above"}, "value": {"much"}}); code != http.StatusBadRequest {
		t.Errorf("a value that is not a number: %d", code)
	}
	if code := form(ferrule.RoleOperator, url.Values{"do": {"add"}, "device": {"tank"}, "signal": {"level"}, "test": {"outside"}, "value": {"10"}, "to": {"9"}}); code != http.StatusBadRequest {
		t.Errorf("a band that ends before it begins: %d", code)
	}
	for _, values := range []url.Values{
		{"do": {"add"}, "name": {"band"}, "device": {"tank"}, "signal": {"level"}, "test": {"outside"}, "value": {"10"}, "to": {"90"}},
		{"do": {"add"}, "name": {"event"}, "device": {"tank"}, "signal": {"gone"}, "test": {"event"}},
	} {
		if code := form(ferrule.RoleOperator, values); code != http.StatusSeeOther {
			t.Errorf("%v: %d", values, code)
		}
		got, err := p.Watches.Remove(owner, values.Get("name"))
		if c := got.Condition; err != nil || values.Get("test") == "event" && (c.Event != "gone" || c.Signal != "") || values.Get("test") == "outside" && (c.Outside == nil || c.Outside.To != 90) {
			t.Errorf("%v is %+v, %v", values, c, err)
		}
	}
	all := p.Watches.List(owner)
	if len(all) != 1 || all[0].Owner.Name != "mira" {
		t.Fatalf("watches %+v", all)
	}
	p.level(95)
	wait.For(t, "the lamp blinks", func() bool { return p.moved["lamp"].Load() == 1 })
	if _, err := p.People.Remove(owner, "mira"); err != nil {
		t.Fatal(err)
	}
	if who, err := p.watchOwner(&all[0].Watch); err == nil {
		t.Errorf("the watch of somebody who is gone acts as %v", who)
	}
}

// TestWatchesLive: an open page shows a watch that an agent sets and what became of it.
func TestWatchesLive(t *testing.T) {
	p := newPlant(t)
	server := httptest.NewServer(p.web)
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/live/watches", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Role", string(ferrule.RoleViewer))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	until := func(texts ...string) {
		t.Helper()
		for lines.Scan() {
			texts = slices.DeleteFunc(texts, func(text string) bool { return strings.Contains(lines.Text(), text) })
			if len(texts) == 0 {
				return
			}
		}
		t.Fatalf("the page never shows %q: %s, %v", texts, resp.Status, lines.Err())
	}
	until("There is no watch.")
	w := p.set("lamp", "blink", nil)
	until(w.ID, "No value yet", "at most every 1s, 12 an hour, hysteresis 5")
	p.level(95)
	until("True now", "/activity?text=watch-"+w.ID)
}

// TestWatchArguments: arguments that contradict each other are refused, and hints name what the
// caller has: agents have a tool, people a command.
func TestWatchArguments(t *testing.T) {
	p := newPlant(t)
	w := p.set("lamp", "blink", nil)
	on, above := true, 90.0
	when := &condition.Condition{Device: "tank", Signal: "level", Above: &above}
	for name, c := range map[string]struct {
		who           ferrule.Principal
		in            builtin.WatchInput
		code          ferrule.Code
		message, hint string
	}{
		"remove and enabled":  {p.claude, builtin.WatchInput{Watch: w.ID, Remove: true, Enabled: &on}, ferrule.Invalid, "remove: needs watch, and nothing else", "gateway__list_watches"},
		"remove and name":     {p.claude, builtin.WatchInput{Watch: w.ID, Remove: true, Name: "x"}, ferrule.Invalid, "remove: needs watch, and nothing else", "gateway__list_watches"},
		"remove nothing":      {p.claude, builtin.WatchInput{Remove: true}, ferrule.Invalid, "remove: needs watch, and nothing else", "gateway__list_watches"},
		"enabled and when":    {p.claude, builtin.WatchInput{Watch: w.ID, Enabled: &on, When: when}, ferrule.Invalid, "enabled: needs watch, and nothing else", "gateway__list_watches"},
		"enabled and every":   {p.claude, builtin.WatchInput{Watch: w.ID, Enabled: &on, Every: ferrule.Duration(time.Hour)}, ferrule.Invalid, "enabled: needs watch, and nothing else", "gateway__list_watches"},
		"unknown, agent":      {p.claude, builtin.WatchInput{Watch: "nope", Remove: true}, ferrule.NotFound, `there is no watch "nope"`, "call gateway__list_watches to list the watches"},
		"unknown, person":     {owner, builtin.WatchInput{Watch: "nope", Enabled: &on}, ferrule.NotFound, `there is no watch "nope"`, "run `ferrule watch list` to list the watches"},
		"a tool of gateway":   {p.claude, builtin.WatchInput{When: when, Call: &builtin.WatchCall{Device: "gateway", Tool: "call_many"}}, ferrule.Invalid, "call: a watch cannot call the gateway's own tools, only a tool of a device; leave call out, and let an agent that is notified call the gateway", ""},
		"its name for agents": {p.claude, builtin.WatchInput{When: when, Call: &builtin.WatchCall{Device: "lamp", Tool: "gateway__call_many"}}, ferrule.Invalid, "call: a watch cannot call the gateway's own tools, only a tool of a device; leave call out, and let an agent that is notified call the gateway", ""},
	} {
		_, err := callOwn[watch.Status](t.Context(), p.Gateway, c.who, builtin.WatchTool, c.in)
		if e := ferrule.AsError(err); err == nil || e.Code != c.code || e.Message != c.message || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%s: %v, hint %q", name, err, ferrule.AsError(err).Hint)
		}
	}
	if got := p.Watches.List(p.claude); len(got) != 1 || got[0].Off || got[0].Name != w.Name {
		t.Errorf("watches %+v", got)
	}
}

// TestUnknownEvent: an event that no device has sent and the gateway does not have is refused, and
// the hint lists the known ones. What may be the method of a notification is accepted.
func TestUnknownEvent(t *testing.T) {
	p := newPlant(t)
	const events = "events: appeared, gone, changed, pending, quarantined, waiting, stopped, resumed, registered, unregistered, notified; "
	refused := func(device, event, message, hint string) {
		t.Helper()
		c := condition.Condition{Device: device, Event: event}
		_, err := callOwn[waits.Output](t.Context(), p.Gateway, p.claude, waits.Tool, waits.Input{Conditions: []condition.Condition{c}})
		_, also := callOwn[watch.Status](t.Context(), p.Gateway, p.claude, builtin.WatchTool, builtin.WatchInput{When: &c})
		for _, err := range []error{err, also} {
			if e := ferrule.AsError(err); err == nil || e.Code != ferrule.NotFound || e.Message != message || e.Hint != hint {
				t.Errorf("%s of %s: %v, hint %q", event, device, err, ferrule.AsError(err).Hint)
			}
		}
	}
	accepted := func(device, event string) {
		t.Helper()
		in := builtin.WatchInput{When: &condition.Condition{Device: device, Event: event}}
		if _, err := callOwn[watch.Status](t.Context(), p.Gateway, p.claude, builtin.WatchTool, in); err != nil {
			t.Errorf("%s of %s: %v", event, device, err)
		}
	}
	const none = "no notification of it is known; notified is met by any notification"
	refused("lamp", "offline", `unknown event "offline"`, events+none)
	refused("lamp", "gnoe", `unknown event "gnoe"; did you mean gone?`, events+none)
	refused("l*", "pressed", `unknown event "pressed"`, events+none)
	accepted("lamp", "gone")
	accepted("lamp", "notifications/pressed")
	accepted("shelf-*", "pressed") // such a device may come
	p.Fleet.RecordEvent(ferrule.Event{Type: ferrule.Notified, Device: "lamp", Method: "pressed"})
	accepted("lamp", "pressed")
	accepted("l*", "pressed")
	refused("lamp", "released", `unknown event "released"`, events+"notifications so far: pressed; notified is met by any notification")
	dev, m, _ := p.Fleet.Lookup("tank")
	hub := *dev
	hub.Protocol = hass.Name
	p.Fleet.Put(&hub, m, nil)
	accepted("tank", "action") // the hub chooses the name
	refused("tank", "gnoe", `unknown event "gnoe"; did you mean gone?`, events+none)
}

// TestWatchChecked: what cannot work is refused when the watch is set, not when it is needed.
func TestWatchChecked(t *testing.T) {
	p := newPlant(t)
	try := func(signal string, args map[string]any) error {
		above := 90.0
		_, err := callOwn[watch.Status](t.Context(), p.Gateway, p.claude, builtin.WatchTool, builtin.WatchInput{
			When: &condition.Condition{Device: "tank", Signal: signal, Above: &above}, Call: &builtin.WatchCall{Device: "lamp", Tool: "blink", Args: args},
		})
		return err
	}
	if err := try("levle", nil); err != nil { // the tank was not measured yet
		t.Fatal(err)
	}
	p.level(50)
	wait.For(t, "the signals of the tank are known", func() bool { return try("levle", nil) != nil })
	if e := ferrule.AsError(try("levle", nil)); e.Code != ferrule.NotFound || e.Message != `tank has no signal "levle"` || e.Hint != "It has level." {
		t.Errorf("a misspelled signal: %v, %s", e, e.Hint)
	}
	dev, m, _ := p.Fleet.Lookup("lamp")
	checked := *m
	checked.Tools = []ferrule.Tool{m.Tools[0]}
	checked.Tools[0].Check = func(args map[string]any) []string {
		if args["seconds"] == nil {
			return []string{"seconds is missing"}
		}
		return nil
	}
	p.Fleet.Put(dev, &checked, nil)
	if e := ferrule.AsError(try("level", nil)); e.Code != ferrule.Invalid || e.Message != "invalid arguments for blink on lamp: seconds is missing" {
		t.Errorf("wrong arguments: %v", e)
	}
	if err := try("level", map[string]any{"seconds": 1}); err != nil {
		t.Error(err)
	}
	if w := p.set("lamp", "blink", nil); w.Now != nil {
		t.Errorf("50 is said to be above 90: %+v", w.Now)
	}
	low := 60.0
	if w := p.set("lamp", "blink", func(in *builtin.WatchInput) {
		in.Name, in.When = "tank low", &condition.Condition{Device: "tank", Signal: "level", Below: &low}
	}); w.Now == nil || w.Now.Value != 50 || w.Now.Signal != "level" || w.Now.Time.IsZero() {
		t.Errorf("the answer does not say that 50 is below 60: %+v", w.Now)
	}
}

// TestWatchesReload: a webhook that is added to the configuration works after a reload.
func TestWatchesReload(t *testing.T) {
	cfg := config.Default()
	cfg.Listen = "127.0.0.1:0"
	next := cfg
	g, err := New(Parts{Config: cfg, Data: t.TempDir(), Log: slog.New(slog.DiscardHandler), Load: func() (config.Config, error) { return next, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	set := func() error {
		_, err := g.Watches.Set(ferrule.Principal{Role: ferrule.Person, Name: "mira", Auth: ferrule.AuthSocket}, watch.Settings{Name: "gone", Condition: condition.Condition{Device: "tank", Event: "gone"}, Notify: []string{watch.Webhook}})
		return err
	}
	if err := set(); err == nil {
		t.Fatal("a watch has a webhook that is not configured")
	}
	next.Watches.Webhook = config.WatchWebhook{URL: "http://127.0.0.1:1/hook", Secret: "0123456789abcdef0123"}
	if done, err := g.Reload(); err != nil || len(done.Restart) > 0 || !slices.Contains(done.Applied, "watches: other ways to notify") {
		t.Fatalf("reloaded %+v, %v", done, err)
	}
	if err := set(); err != nil {
		t.Error(err)
	}
	if done, err := g.Reload(); err != nil || len(done.Applied)+len(done.Restart) > 0 {
		t.Errorf("nothing has changed, but %+v, %v", done, err)
	}
	next.Watches.Webhook.Secret = "short"
	if _, err := g.Reload(); err == nil {
		t.Error("a secret that is too short is applied")
	}
	next.Watches = config.Watches{}
	if done, err := g.Reload(); err != nil || len(done.Applied) != 1 {
		t.Errorf("reloaded %+v, %v", done, err)
	}
	if err := set(); err == nil {
		t.Error("a watch has a webhook that was removed")
	}
}
