package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/browser"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// pulseLater lets an agent call pulse, which waits for a person. The outcome is sent when it
// is known. The call ends with the test: otherwise closing the agent's session would wait for it.
func (a *testAgent) pulseLater(token string) <-chan *agentOutcome {
	outcomes := make(chan *agentOutcome, 1)
	go func() {
		told, err := a.use(a.t.Context(), "robot__pulse", fmt.Sprintf(`{"token":%q}`, token))
		if err != nil {
			told = &agentOutcome{isError: true, text: err.Error()}
		}
		outcomes <- told
	}()
	return outcomes
}

// withAskedPeople makes people need another person's approval for what endangers.
func withAskedPeople(t *testing.T) func(*config.Config) {
	dir := t.TempDir()
	rule := `@id("people ask too")
forbid (principal is Person, action == Action::"call", resource)
when { resource.effect == "endangers" && !context.approved };
`
	if err := os.WriteFile(filepath.Join(dir, "people.cedar"), []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(c *config.Config) { c.Policy.Dir = dir }
}

// waiting returns the requests that wait, once there are n.
func (g *testGateway) waiting(n int) (all []ferrule.Approval) {
	g.t.Helper()
	wait.For(g.t, fmt.Sprintf("%d calls wait", n), func() bool {
		all = nil
		for _, a := range g.Approvals.List() {
			if a.State == ferrule.ApprovalWaiting {
				all = append(all, a)
			}
		}
		return len(all) == n
	})
	return all
}

// TestConsoleApprovalsMisuse answers requests in ways that must not work: with the token of
// another person, twice, and one's own call.
func TestConsoleApprovalsMisuse(t *testing.T) {
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured, withGuarded(t, "pulse"), withAskedPeople(t))
	g.online("robot")
	g.command("people", "add", "anna", "--role", "operator")
	g.command("people", "add", "otto", "--role", "operator")
	anna, otto := g.login("--as", "anna"), g.login("--as", "otto")
	answer := func(p *person, token, id, answer string) (int, string) {
		return p.open("/approvals", url.Values{"id": {id}, "answer": {answer}, "csrf": {token}})
	}
	done := make(chan error, 1)
	go func() {
		_, err := g.call("robot", "pulse", `{"token":"misuse"}`, 0)
		done <- err
	}()
	id := g.waiting(1)[0].ID
	if code, page := answer(anna, otto.csrf(), id, "allow"); code != http.StatusForbidden {
		t.Errorf("the token of another person: %d %s", code, page)
	}
	for _, wrong := range []string{"", "maybe", "allow_for"} {
		if code, page := answer(anna, anna.csrf(), id, wrong); code != http.StatusBadRequest {
			t.Errorf("the answer %q: %d %s", wrong, code, page)
		}
	}
	g.waiting(1)
	if code, page := answer(anna, anna.csrf(), id, "allow"); code != http.StatusOK || !strings.Contains(page, "Allowed") {
		t.Errorf("%d %s", code, page)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	for p, word := range map[*person]string{anna: "allow", otto: "deny"} {
		if code, page := answer(p, p.csrf(), id, word); code == http.StatusOK {
			t.Errorf("%s again: %d %s", word, code, page)
		}
	}
	// Anna's own call waits. She can deny it, but not allow it.
	own, token := make(chan int, 1), anna.csrf()
	go func() {
		got := anna.send(http.MethodPost, "/api/v1/devices/robot/tools/pulse", `{"arguments":{"token":"own"},"confirmed":true}`, "Content-Type", "application/json", "X-CSRF-Token", token, "Origin", anna.at)
		own <- got.status
	}()
	id = g.waiting(1)[0].ID
	if _, page := anna.open("/approvals", nil); !strings.Contains(page, "This is your own call") || strings.Contains(page, `value="allow"`) {
		t.Error(page)
	}
	for _, word := range []string{"allow", "allow_for"} {
		if code, page := anna.open("/approvals", url.Values{"id": {id}, "answer": {word}, "for": {"10m"}, "csrf": {anna.csrf()}}); code != http.StatusForbidden {
			t.Errorf("%s: %d %s", word, code, page)
		}
	}
	if code, page := answer(anna, anna.csrf(), id, "deny"); code != http.StatusOK {
		t.Errorf("denying: %d %s", code, page)
	}
	if code := <-own; code == http.StatusOK {
		t.Error("the call of anna ran without an answer")
	}
	if runs := boards.Boards[0].Runs(); runs["misuse"] != 1 || runs["own"] != 0 {
		t.Errorf("runs: %v", runs)
	}
}

// TestConsoleApprovalTooLate allows a call that nobody has answered in time.
func TestConsoleApprovalTooLate(t *testing.T) {
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured, withGuarded(t, "pulse"), func(c *config.Config) {
		c.Approvals.Wait = config.Interval(time.Second)
	})
	g.online("robot")
	if _, err := g.call("robot", "pulse", `{"token":"late"}`, 0); ferrule.AsError(err).Code != ferrule.Denied {
		t.Fatalf("without an answer: %v", err)
	}
	var id string
	wait.For(t, "the request is recorded", func() bool {
		if err := journal.Read(g.data, func(e ferrule.Entry) error {
			if e.Phase == ferrule.ApprovalStep {
				fmt.Sscanf(e.Message, "approval %s ", &id)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return id != ""
	})
	owner := g.login()
	if code, page := owner.open("/approvals", url.Values{"id": {id}, "answer": {"allow"}, "csrf": {owner.csrf()}}); code == http.StatusOK || !strings.Contains(page, id) {
		t.Errorf("after its time: %d %s", code, page)
	}
	if runs := boards.Boards[0].Runs(); runs["late"] != 0 {
		t.Errorf("runs: %v", runs)
	}
}

// cards returns a script that returns the cards of the page that can be answered.
const cards = `[...document.querySelectorAll(".appr:not([data-done])")]`

// TestConsoleStill lets two agents ask, and answers by mouse and keys while requests come and
// go. A card never moves under the cursor or the focus of another one.
func TestConsoleStill(t *testing.T) {
	browser.Need(t)
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured, withGuarded(t, "pulse"))
	g.online("robot")
	d, agent := g.newDesk(t), dialAgent(t, g, modern, "/mcp")
	d.at("/approvals")
	shown := func(token string) string {
		return fmt.Sprintf(`%s.find(c => c.innerText.includes('"%s"'))`, cards, token)
	}
	outcomes := make(map[string]<-chan *agentOutcome)
	for _, token := range []string{"first", "second", "third"} {
		outcomes[token] = agent.pulseLater(token)
		d.Until(token+" is on the page", shown(token))
	}
	top := func(token string) (y float64) {
		d.Eval(shown(token)+`.getBoundingClientRect().top + scrollY`, &y)
		return y
	}
	second, third := top("second"), top("third")
	// The focus is on the button of the second. The first is answered elsewhere.
	d.Eval(shown("second")+`.querySelector('[value=deny]').focus()`, nil)
	g.command("deny", g.waiting(3)[0].ID)
	d.Until("the first says so", `document.querySelector(".appr[data-done] .out")`)
	if got := top("second"); got != second {
		t.Errorf("the second moved from %v to %v", second, got)
	}
	var focused bool
	if d.Eval(shown("second")+`.contains(document.activeElement) && document.activeElement.value === "deny"`, &focused); !focused {
		t.Errorf("the focus is on %+v", d.Focused())
	}
	d.Keys("Enter")
	if told := <-outcomes["second"]; !told.isError {
		t.Errorf("the second: %+v", told)
	}
	d.Until("the second is answered", fmt.Sprintf(`%s.length === 1`, cards))
	if got := top("third"); got != third {
		t.Errorf("the third moved from %v to %v", third, got)
	}
	if f := d.Focused(); f.Tag == "button" || f.Tag == "body" {
		t.Errorf("the focus is on %+v", f)
	}
	d.Click(".appr:not([data-done]) [value=allow]", "")
	if told := <-outcomes["third"]; told.isError {
		t.Errorf("the third: %+v", told)
	}
	// A card that has just moved ignores the mouse, and not keys.
	outcomes["fourth"] = agent.pulseLater("fourth")
	d.Until("the fourth is on the page", shown("fourth"))
	var ignored []bool
	d.Eval(`(() => {
		const press = (detail) => {
			const e = new MouseEvent("click", {detail, bubbles: true, cancelable: true})
			document.getElementById("main").addEventListener("click", (e) => e.preventDefault(), {once: true})
			let reached = false
			document.getElementById("main").addEventListener("click", () => { reached = true }, {once: true})
			document.querySelector(".appr:not([data-done]) [value=allow]").dispatchEvent(e)
			return !reached
		}
		scrollTo(0, 0) // otherwise the browser keeps what is in view in its place
		document.getElementById("main").prepend(document.createElement("hr"))
		return [press(1), press(0)]
	})()`, &ignored)
	if len(ignored) != 2 || !ignored[0] || ignored[1] {
		t.Errorf("ignored after a move: the mouse %v", ignored)
	}
	g.command("deny", g.waiting(1)[0].ID)
	if runs := boards.Boards[0].Runs(); runs["first"] != 0 || runs["second"] != 0 || runs["third"] != 1 {
		t.Errorf("runs: %v", runs)
	}
	<-outcomes["first"]
	<-outcomes["fourth"]
	d.clean("approvals")
}

// TestConsoleOwnCall runs a tool that a rule has somebody else approve. The page says that
// the call waits, and then shows the result.
func TestConsoleOwnCall(t *testing.T) {
	browser.Need(t)
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured, withGuarded(t, "pulse"), withAskedPeople(t))
	g.online("robot")
	g.command("people", "add", "anna", "--role", "operator")
	d := g.newDesk(t, "--as", "anna")
	d.at("/devices/robot")
	form := `form:has(input[name=tool][value=pulse])`
	d.Eval(fmt.Sprintf(`document.querySelector(%q).closest("details").open = true`, form), nil)
	d.Clear(form + ` [name="arg.token"]`)
	d.Type("own")
	d.Click(form+" .run button", "")
	d.Until("the page asks first", `document.querySelector("dialog[open] .danger.fill")`)
	d.Click("dialog[open] .danger.fill", "")
	d.Until("the call waits", `[...document.querySelectorAll(".tool .out")].some(o => o.innerText.includes("Waiting") && o.innerText.includes("A person has to allow this call first") && /\d:\d\d left/.test(o.innerText))`)
	owner := g.login()
	if code, page := owner.open("/approvals", url.Values{"id": {g.waiting(1)[0].ID}, "answer": {"allow"}, "csrf": {owner.csrf()}}); code != http.StatusOK {
		t.Errorf("%d %s", code, page)
	}
	d.Until("the result is shown", `[...document.querySelectorAll(".tool .out")].some(o => o.innerText.includes("Done"))`)
	if runs := boards.Boards[0].Runs(); runs["own"] != 1 {
		t.Errorf("runs: %v", runs)
	}
	d.clean("an own call")
}

// TestConsoleStreams opens as many pages as one login may have with live updates. The next one
// says that it has none, and can be used.
func TestConsoleStreams(t *testing.T) {
	browser.Need(t)
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured)
	g.online("robot")
	d := g.newDesk(t)
	p, cookie := g.newPerson(), d.Cookies()
	d.at("/login") // it has no live updates
	var open []io.Closer
	wait.For(t, "32 streams are open", func() bool {
		resp := p.get("/live/devices", "Cookie", cookie)
		if resp.StatusCode != http.StatusOK {
			resp.Body.Close()
			return false
		}
		open = append(open, resp.Body)
		return len(open) == 32
	})
	refused := p.get("/live/devices", "Cookie", cookie)
	refused.Body.Close()
	if refused.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one more: %s", refused.Status)
	}
	d.at("/devices/robot")
	d.Until("the page says so", `document.getElementById("lostslot").innerText.includes("Too many pages are open") && document.getElementById("live").innerText.includes("Not live")`)
	d.Click(`form:has(input[name=tool][value=read_climate]) button`, "")
	d.Until("a tool can be called", `document.querySelector(".tool .out")?.innerText.includes("Done")`)
	for _, body := range open {
		body.Close()
	}
	d.Until("the page is live again", `document.getElementById("lostslot").innerText === "" && document.getElementById("live").innerText.includes("Live")`)
	d.clean("too many pages")
}

// get opens a stream, or anything else whose body the caller closes.
func (p *person) get(path string, header ...string) *http.Response {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.at+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp
}

// TestConsoleNodes presses Stop on one of three nodes, and counts what waits on another.
func TestConsoleNodes(t *testing.T) {
	servers := natscluster.Start(t, natscluster.Options{})
	boards := startSim(t, sim.Config{})
	var nodes []*testGateway
	for _, name := range []string{"a", "b", "c"} {
		devices := make(map[string]string)
		if name == "a" {
			devices["robot"] = boards.Addrs()[0]
		}
		nodes = append(nodes, startGateway(t, devices, unmeasured, withGuarded(t, "pulse"), func(c *config.Config) {
			c.Cluster.Mode, c.Cluster.Tenant, c.Cluster.Secret, c.Cluster.Shards, c.Cluster.Node = "join", "acme", servers.Secret, 4, name
			c.Cluster.Servers = strings.Split(servers.URLsAs("acme-operator"), ",")
		}))
	}
	for _, n := range nodes {
		wait.For(t, "nodes see each other", func() bool { return len(n.Cluster.State().Nodes) == 2 })
	}
	nodes[0].online("robot")
	owner := nodes[1].login()
	lines := owner.stream("/live")
	done := make(chan error, 1)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	go func() {
		_, err := nodes[0].Pipeline.Handle(ctx, &ferrule.Call{
			Principal: ferrule.Principal{Role: ferrule.Agent, Name: "test"}, Device: "robot", Tool: "pulse", Args: json.RawMessage(`{"token":"far"}`),
		})
		done <- err
	}()
	if !expect(t, lines, `n hot\"\u003e1\u003cspan class=\"sr\"\u003e waiting`) {
		t.Fatal("the stream ended")
	}
	owner.open("/stop", url.Values{"csrf": {owner.csrf()}})
	if !expect(t, lines, "3 of 3 nodes confirmed") {
		t.Fatal("the stream ended")
	}
	leave() // a stop does not end what waits for a person
	if err := <-done; err == nil || boards.Boards[0].Runs()["far"] != 0 {
		t.Errorf("%v, runs %v", err, boards.Boards[0].Runs())
	}
	if _, page := owner.open("/devices", nil); !strings.Contains(page, "3 of 3 nodes confirmed") {
		t.Error(page)
	}
}

// TestUpPrintsLink runs `ferrule up` on a terminal, where it prints a link that logs in once,
// and with a file, where it prints no link.
func TestUpPrintsLink(t *testing.T) {
	start := func(out *os.File) (data string, stop func()) {
		t.Helper()
		data = filepath.Join(t.TempDir(), "data")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() { ended <- run(ctx, []string{"up", "--data", data, "--listen", "127.0.0.1:0"}, out, out) }()
		return data, func() {
			t.Helper()
			cancel()
			if code := <-ended; code != 0 {
				t.Errorf("it exits with %d", code)
			}
		}
	}
	f, screen := openTerminal(t, 200, 40, nil)
	_, stop := start(f)
	var link string
	wait.For(t, "the link is on the screen", func() bool {
		_, rest, ok := strings.Cut(screen.Text(), "Open the console: ")
		link, _, _ = strings.Cut(rest, "\n")
		link = strings.TrimSpace(link)
		return ok && strings.Contains(rest, "run `ferrule open`")
	})
	resp, err := http.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(page), "Log in as") {
		t.Errorf("%v %s %s", err, resp.Status, page)
	}
	stop()

	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, stop := start(file)
	wait.For(t, "the gateway is up", func() bool {
		var out, failed strings.Builder
		return run(t.Context(), []string{"devices", "--data", data}, &out, &failed) == 0
	})
	stop()
	log, err := os.ReadFile(file.Name())
	if err != nil || !strings.Contains(string(log), "is up") || strings.Contains(string(log), "/login/") || strings.Contains(string(log), "Open the console") {
		t.Errorf("%v: %s", err, log)
	}
}

// TestConsoleLinkPage opens the page of a link on a phone, in both themes and without
// scripts: it says until when to answer, and the answer counts.
func TestConsoleLinkPage(t *testing.T) {
	browser.Need(t)
	boards := startSim(t, sim.Config{})
	links := make(chan string, 1)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var in struct{ Link string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		links <- strings.TrimPrefix(in.Link, "http://localhost:1")
	}))
	defer hook.Close()
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured, withGuarded(t, "pulse"), func(c *config.Config) {
		c.Approvals.Webhook = config.Webhook{URL: ferrule.Secret(hook.URL), Secret: "0123456789abcdef", Link: "http://localhost:1/"}
	})
	g.online("robot")
	agent := dialAgent(t, g, modern, "/mcp")
	outcomes := agent.pulseLater("link")
	link := g.url(<-links)
	b := browser.Start(t)
	for _, dark := range []bool{true, false} {
		b.Show(browser.View{Width: 390, Dark: dark, NoScript: true})
		b.Open(link)
		page := b.Next()
		want := "until " + g.waiting(1)[0].Expires.Local().Format("15:04:05")
		if page.Status != http.StatusOK || !strings.Contains(page.Text, want) {
			t.Errorf("%d, no %q in %s", page.Status, want, page.Text)
		}
		var width int
		if b.Eval(`document.documentElement.scrollWidth`, &width); width > 390 {
			t.Errorf("the page is %d pixels wide", width)
		}
	}
	b.Click("button", "Allow once")
	b.Wait("the answer", func(p browser.Page) bool { return strings.Contains(p.Text, "Allowed") })
	if told := <-outcomes; told.isError || boards.Boards[0].Runs()["link"] != 1 {
		t.Errorf("%+v, runs %v", told, boards.Boards[0].Runs())
	}
	b.Open(link)
	if page := b.Next(); page.Status != http.StatusNotFound || !strings.Contains(page.Text, "This link cannot be used") || strings.Contains(page.Text, "`") {
		t.Errorf("%d %s", page.Status, page.Text)
	}
}
