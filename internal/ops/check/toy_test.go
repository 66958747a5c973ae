package check_test

import (
	"context"
	"regexp"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ops/check"
	"github.com/ferrulehq/ferrule/internal/sim"
)

// toyFindings is what must be found on a simulated toy with each misbehavior; "" is the good
// toy.
var toyFindings = map[string][]string{
	"":               {},
	"bare":           {"xiaozhi.bare-answer", "xiaozhi.unknown-id"},
	"failing":        {"xiaozhi.failed-call"},
	"half-open":      {"xiaozhi.stopped-answering"},
	"hang-up":        {"xiaozhi.closed-connection"},
	"hello-again":    {"xiaozhi.repeated-hello"},
	"hello-late":     {"xiaozhi.late-hello"},
	"late":           {"xiaozhi.slow-call"},
	"long-list":      {"xiaozhi.paged-list"},
	"long-tool":      {"xiaozhi.long-tool"},
	"long-user-tool": {"xiaozhi.long-tool"},
	"lost-cursor":    {"xiaozhi.lost-cursor", "xiaozhi.paged-list"},
	"no-tools":       {"xiaozhi.no-tools"},
	"notifies":       {"xiaozhi.notifications"},
	"odd-visit":      {"xiaozhi.odd-check-in"},
	"old-firmware":   {"xiaozhi.no-mcp", "xiaozhi.audio"},
	"other-ids":      {"xiaozhi.unknown-id", "xiaozhi.answered-twice"},
	"page-loop":      {"xiaozhi.page-loop", "xiaozhi.duplicate-tool", "xiaozhi.paged-list"},
	"ping":           {"xiaozhi.unknown-message"},
	"queued":         {"xiaozhi.held-answer", "xiaozhi.slow-call"},
	"says-false":     {"xiaozhi.says-false"},
	"second-socket":  {"xiaozhi.second-connection"},
	"silent":         {"xiaozhi.unanswered-call"},
	"sound":          {"xiaozhi.audio", "xiaozhi.invalid-json", "xiaozhi.unknown-message"},
	"stale-session":  {"xiaozhi.stale-session"},
	"storm":          {"xiaozhi.reconnect-storm"},
	"talkative":      {"xiaozhi.notification-flood", "xiaozhi.notifications"},
	"unescaped":      {"xiaozhi.invalid-json"},
	"user-tools":     {"xiaozhi.user-tools-only"},
	"wants-to-talk":  {"xiaozhi.wants-audio"},
}

// toysMay is what may be found in addition. That depends on the time.
var toysMay = map[string][]string{
	"half-open": {"xiaozhi.closed-connection", "xiaozhi.unanswered-call"},
	"silent":    {"xiaozhi.second-connection", "xiaozhi.closed-connection", "xiaozhi.silent-error", "xiaozhi.stopped-answering"},
}

// unseenToys are misbehaviors that a check cannot see, with the reason. Nothing is found then.
var unseenToys = map[string]string{
	"impatient":    "it leaves a connection after two minutes without a message, and a check takes less than one",
	"reboot":       "it restarts after self.reboot, which is not called",
	"strict-hello": "it drops a connection if its hello is not answered, and the check answers it",
}

var waitingPort = regexp.MustCompile(`http://ADDRESS:(\d+)/`)

// checkToy runs a check that waits for a toy, and a simulated toy that connects to it.
func checkToy(t *testing.T, transport, misbehave string) (*check.Report, error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	running := false
	defer func() {
		cancel()
		if running {
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", misbehave, err)
			}
		}
	}()
	o := check.Options{OnStep: func(_, _ int, s check.Step) {
		port := waitingPort.FindStringSubmatch(s.Detail)
		if port == nil {
			return
		}
		toys, err := sim.NewToyClients(sim.ToyClientsConfig{URL: "http://127.0.0.1:" + port[1] + "/xiaozhi/ota/", Transport: transport, First: 1, Count: 1, Misbehave: misbehave})
		if err != nil {
			t.Error(err)
			return
		}
		running = true
		go func() { ended <- toys.Run(ctx) }()
	}}
	return check.Run(ctx, target(t, transport+"://0.0.0.0:0"), o)
}

// TestToys checks that each misbehavior of the simulated toys is found, and that nothing is
// found on the good toy.
func TestToys(t *testing.T) {
	slow(t)
	t.Parallel()
	names := []string{""}
	for _, b := range sim.ToyBehaviors() {
		if names = append(names, b.Name); toyFindings[b.Name] == nil && unseenToys[b.Name] == "" {
			t.Errorf("the table does not say what is found on a toy that %s (%s)", b.Text, b.Name)
		}
	}
	reports := checkAll(t, names, func(name string) (*check.Report, error) {
		return checkToy(t, sim.OverWebSocket, name)
	})
	for _, name := range names {
		t.Run("toy "+name, func(t *testing.T) { judgeExact(t, reports[name], toyFindings[name], toyReaders, toysMay[name]...) })
	}
}

// toyReaders are the tools of simulated toys that only read.
var toyReaders = []string{"self.get_device_status", "self.get_system_info"}

// TestToyMQTT checks that nothing is found on a good toy that connects with MQTT.
func TestToyMQTT(t *testing.T) {
	slow(t)
	t.Parallel()
	report, err := checkToy(t, sim.OverMQTT, "")
	if err != nil {
		t.Fatal(err)
	}
	judge(t, report, nil, toyReaders)
}
