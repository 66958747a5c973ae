package check

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
)

// toyReaders are the tools of xiaozhi firmware that only read.
var toyReaders = []string{"self.get_device_status", "self.get_system_info", "self.screen.get_info"}

// voiceMessages are the types of other messages that voice toys send.
var voiceMessages = []string{"listen", "abort", "goodbye", "iot", "tts", "stt", "llm", "system", "alert"}

// toy is the check of a voice toy with xiaozhi firmware.
type toy struct {
	*talk
	server *toyServer // nil if the toy listens
	hello  bool       // the toy begins with a hello
}

// Times of a toy.
const (
	firstToy  = 2 * time.Minute  // until somebody has switched it on
	laterToy  = 15 * time.Second // until it comes back
	helloWait = 3 * time.Second
	// storm is the shortest pause before a toy may connect again.
	storm = 500 * time.Millisecond
)

// checkToy waits for a voice toy and tests it.
func checkToy(ctx context.Context, target Target, o Options) (*Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	server, wait, err := serveToys(ctx, target)
	if err != nil {
		cancel()
		return nil, err
	}
	defer wait()
	defer cancel()
	t := &toy{talk: newTalk(newRun(target, "xiaozhi", xiaozhiRules, o), "xiaozhi"), server: server, hello: target.kind == "ws"}
	t.enveloped, t.reading = true, toyReaders
	limit := firstToy
	t.next = func(ctx context.Context) (transport.Link, error) {
		link, err := server.link(ctx, limit)
		if err != nil && limit == laterToy {
			return nil, errGiveUp
		}
		return link, err
	}
	t.talk.greet = t.greet
	defer func() { t.close() }()
	_, port, _ := net.SplitHostPort(server.ln.Addr().String())
	t.progress(0, 0, Step{Name: "connection", State: Running, Detail: fmt.Sprintf("waiting for the device: set its OTA URL to http://ADDRESS:%s/xiaozhi/ota/ and restart it, where ADDRESS is that of this computer", port)})
	link, err := t.next(ctx)
	if err != nil {
		return nil, err
	}
	limit = laterToy
	t.began = time.Now()
	t.tooLate = t.began.Add(maxTime)
	t.box, t.opened = newInbox(ctx, link), time.Now()
	return t.test(ctx)
}

// test runs the steps.
func (t *toy) test(ctx context.Context) (*Report, error) {
	err := t.steps(ctx, []step{
		{"identity", t.identity}, {"list", t.list}, {"names", t.names}, {"schemas", t.schemas}, {"calls", t.toyCalls}, {"errors", t.errors},
		{"several requests", func(ctx context.Context) (string, error) { return t.several(ctx, "tools/list", "{}") }},
		{"speed", func(ctx context.Context) (string, error) {
			return t.measure(ctx, "ferrule/check-no-such-method", "{}")
		}},
		{"messages", t.messages}, {"reconnect", t.reconnect},
	})
	if err != nil {
		return nil, err
	}
	return t.finish(), nil
}

// identity greets the toy for the first time.
func (t *toy) identity(ctx context.Context) (string, error) {
	if err := t.greet(ctx); err != nil {
		return "", err
	}
	if t.server != nil {
		if odd := t.server.oddCheckIn(); odd != nil {
			t.finding("odd-check-in", evidence{"", odd.body}, "the check-in is unusual: %s", odd.what)
		}
	}
	return fmt.Sprintf("%s %s", t.run.report.Device, t.run.report.Version), nil
}

// greet waits for the hello and sends initialize.
func (t *toy) greet(ctx context.Context) error {
	for end := time.Now().Add(helloWait); t.hello && t.hellos == 0 && time.Now().Before(end); {
		if t.idle(ctx, 50*time.Millisecond) {
			break
		}
	}
	if t.found("xiaozhi.no-mcp") {
		return errGiveUp
	}
	r := t.ask(ctx, "initialize", `{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"ferrule-check","version":"1"}}`, 5*time.Second)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r.outcome == closed && errors.Is(t.box.err, inbound.ErrReplaced):
		t.finding("second-connection", evidence{r.sent, ""}, "the device opened another connection and left the last one open")
		return t.again(ctx)
	case r.outcome != answered:
		t.finding("no-answer", r.evidence(), "initialize was not answered: %s", r.outcome)
		return errGiveUp
	}
	t.initialized = true
	var server struct {
		Info struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"serverInfo"`
	}
	if r.err != nil || json.Unmarshal(r.result, &server) != nil || server.Info.Name == "" {
		t.finding("bad-info", r.evidence(), "the result of initialize has no serverInfo with a name")
	}
	t.run.report.Device, t.run.report.Version = server.Info.Name, server.Info.Version
	return t.notify(ctx, "notifications/initialized")
}

// receiveVoice judges messages that are not MCP.
func (t *talk) receiveVoice(ctx context.Context, in incoming) {
	at := evidence{"", in.raw}
	switch in.kind {
	case kindHello:
		t.receiveHello(ctx, in)
	case kindNotification:
		t.finding("notifications", at, "the device sends %s by itself", cutText(in.name))
	case kindSound:
		t.finding("audio", evidence{}, "the device sends sound while nobody has asked for it")
	case kindOther:
		if slices.Contains(voiceMessages, in.name) {
			t.finding("audio", at, "the device sends the message %s while nobody has asked for it", cutText(in.name))
			return
		}
		t.finding("unknown-message", at, "the device sends a message of the type %s", cutText(in.name))
		if in.name == "ping" {
			t.send(ctx, []byte(`{"type":"pong"}`)) // the next request shows if the link is broken
		}
	}
}

// receiveHello judges a hello and answers it.
func (t *talk) receiveHello(ctx context.Context, in incoming) {
	at := evidence{"", in.raw}
	t.hellos++
	switch {
	case !in.hasMCP:
		t.finding("no-mcp", at, "the hello does not have features.mcp")
	case t.hellos > 1:
		t.finding("repeated-hello", at, "the device said hello %d times on one connection", t.hellos)
	case t.initialized:
		t.finding("late-hello", at, "the hello came after the answer to initialize")
	}
	wants := "websocket"
	if in.wants == "udp" {
		wants = "udp"
		t.finding("wants-audio", at, "the device asks for sound over UDP")
	}
	if t.session == "" {
		t.session, t.since = "check-"+rand.Text()[:8], time.Now()
	}
	answer := fmt.Sprintf(`{"type":"hello","transport":%q,"session_id":%q,"audio_params":{"format":"opus","sample_rate":24000,"channels":1,"frame_duration":60}`, wants, t.session)
	if wants == "udp" {
		answer += `,"version":3,"udp":{"server":"127.0.0.1","port":9,"encryption":"aes-128-ctr","key":"00000000000000000000000000000000","nonce":"00000000000000000000000000000000"}`
	}
	t.send(ctx, []byte(answer+"}")) // the next request shows if the link is broken
}

// list reads the list with and without the tools for people.
func (t *toy) list(ctx context.Context) (string, error) {
	t.extra = `,"withUserTools":true`
	agents, _, _, err := t.readList(ctx, "")
	if err != nil {
		return "", err
	}
	all, text, pages, err := t.readList(ctx, t.extra)
	if err != nil {
		return "", err
	}
	t.offered, t.raw = all, text
	if len(all) < len(agents) {
		t.offered = agents
	}
	switch {
	case len(t.offered) == 0 && !t.found("xiaozhi.long-tool"):
		t.finding("no-tools", evidence{}, "the device lists no tools")
	case len(agents) == 0 && !t.found("xiaozhi.long-tool"):
		t.finding("user-tools-only", evidence{}, "all %d tools are for people only", len(all))
	}
	if pages > 1 {
		t.finding("paged-list", evidence{}, "the list has %d pages", pages)
	}
	t.run.report.Tools = len(t.offered)
	return fmt.Sprintf("%d tools, %d of them for people, %d pages", len(t.offered), len(t.offered)-len(agents), pages), nil
}

// toyCalls also finds answers that wait for the next call.
func (t *toy) toyCalls(ctx context.Context) (string, error) {
	text, err := t.calls(ctx)
	if err != nil || !t.found("xiaozhi.slow-call") {
		return text, err
	}
	began := time.Now()
	_, err = t.several(ctx, "tools/call", callParams(t.readers()[0]))
	if took := time.Since(began); err == nil && took < slowCall {
		t.finding("held-answer", evidence{}, "one call takes longer than %v, and two calls together %v: an answer waits for the next call", slowCall, took.Round(time.Millisecond))
	}
	return text, err
}

// messages waits a while without a request.
func (t *toy) messages(ctx context.Context) (string, error) {
	const quiet, age = 2 * time.Second, 9 * time.Second // a toy that leaves a connection open does so within that age
	before, began := t.box.count(), time.Now()
	ended := t.idle(ctx, max(quiet, age-time.Since(t.opened)))
	if n, took := t.box.count()-before, time.Since(began); float64(n) > 10*took.Seconds() {
		t.finding("notification-flood", evidence{}, "%d notifications in %.0f s", n, took.Seconds())
	}
	if ended {
		return "", t.lost(ctx, reply{outcome: closed, tail: reasonText(t.box.err)})
	}
	return "", ctx.Err()
}

// reconnect closes the connection and waits for the toy.
func (t *toy) reconnect(ctx context.Context) (string, error) {
	if t.server == nil {
		return t.redial(ctx)
	}
	t.box.close()
	for len(t.server.arrivals) > 0 { // connections before
		<-t.server.arrivals
	}
	began := time.Now()
	link, err := t.server.link(ctx, laterToy)
	if err != nil && ctx.Err() == nil {
		t.box = nil
		return "", errSkip(fmt.Sprintf("the device did not come back within %v; on a WebSocket it does when somebody speaks to it", laterToy))
	}
	if err != nil {
		t.box = nil
		return "", err
	}
	took := time.Since(began)
	if took < storm {
		t.finding("reconnect-storm", evidence{}, "the device came back after %v", took.Round(time.Millisecond))
	}
	t.box, t.opened = newInbox(ctx, link), time.Now()
	t.initialized, t.hellos, t.session = false, 0, ""
	if err := t.greet(ctx); err != nil {
		return "", err
	}
	again, text, _, err := t.readList(ctx, t.extra)
	if err == nil && text != t.raw && len(again) > 0 && t.raw != "" {
		t.finding("changing-list", evidence{}, "after reconnecting the list has %d tools instead of %d, or others", len(again), len(t.offered))
	}
	return fmt.Sprintf("came back after %.1f s", took.Seconds()), err
}
