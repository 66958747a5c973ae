package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport/tcp"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// gatewayWithToys runs a gateway with voice toys called toy-1, toy-2 and so on.
func gatewayWithToys(t *testing.T, toys *sim.Toys, change ...func(*config.Config)) *testGateway {
	t.Helper()
	cfg := testConfig()
	cfg.Listen = "127.0.0.1:0"
	for _, fn := range change {
		fn(&cfg)
	}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	var boards []tcp.Board
	for i, address := range toys.Addrs() {
		boards = append(boards, tcp.Board{Name: fmt.Sprintf("toy-%d", i+1), Address: address})
	}
	g := withToys(t, cfg, boards...)
	for _, board := range boards {
		g.online(board.Name)
	}
	return g
}

// sentLog is the messages that were sent to a device.
type sentLog struct {
	mu   sync.Mutex
	sent []string
}

// logSent records all messages that are sent to a device.
func logSent(t *testing.T, g *testGateway, device string) *sentLog {
	t.Helper()
	l := &sentLog{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- g.Dock.Trace(ctx, device, func(tr ferrule.Trace) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if tr.Direction == "out" {
				l.sent = append(l.sent, tr.Data)
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	wait.For(t, "messages are traced", func() bool {
		g.call(device, "self.get_device_status", `{}`, time.Second)
		return l.has("self.get_device_status")
	})
	return l
}

func (l *sentLog) has(word string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.sent, func(text string) bool { return strings.Contains(text, word) })
}

// forPeople are tools for people only, and other spellings of their names.
var forPeople = map[string][]string{
	"self.reboot":           {"self.reboot", "self_reboot"},
	"self.upgrade_firmware": {"self.upgrade_firmware", "self_upgrade_firmware"},
}

// attempt is a call of a tool by an agent: a name and arguments.
type attempt struct{ name, args string }

// attempts returns all ways in which an agent can name a tool of a device: in the list
// of all devices, shared by Kind, through the tools that call others, and in the list of
// one device.
func attempts(device, spelled, args string, alone bool) []attempt {
	if alone {
		return []attempt{{spelled, args}}
	}
	name := device + "__" + spelled
	return []attempt{
		{name, args},
		{"gateway__call_tool", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args)},
		{"gateway__call_many", fmt.Sprintf(`{"tool":%q,"devices":[%q],"arguments":%s}`, spelled, device, args)},
	}
}

// TestForPeopleOnly checks that a tool for people only is in no list of an agent and
// refused under every name, on every path. Nothing is sent to the toy, and the journal
// has each attempt. A person may call it.
func TestForPeopleOnly(t *testing.T) {
	toys, _ := startToys(t, 3, "")
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	for _, list := range []struct {
		name   string
		budget int
	}{{"listed", 40}, {"folded", 8}, {"searched", 1}} {
		t.Run(list.name, func(t *testing.T) {
			brokers := make(map[*testGateway]*testBroker)
			node := func(name string, broker *testBroker) func(*config.Config) {
				return func(c *config.Config) {
					joins(c, name+"-"+list.name, servers)
					c.Cluster.Tenant = list.name
					c.Listen, c.Agents.Budget = "127.0.0.1:0", list.budget
					c.Endpoints = []config.Endpoint{{Name: "home", URL: ferrule.Secret(broker.url())}}
				}
			}
			atB, atA := newBroker(t, false), newBroker(t, false)
			b := gatewayWithToys(t, toys, node("b", atB))
			a := startGateway(t, nil, node("a", atA))
			brokers[a], brokers[b] = atA, atB
			wait.For(t, "the other node has the toys", func() bool { return a.device("toy-1").State == ferrule.StateOnline })
			log := logSent(t, b, "toy-1")
			for _, g := range []*testGateway{a, b} {
				made := make(map[string]int)
				for _, mcpVersion := range mcpVersions {
					dialAgent(t, g, mcpVersion, "/mcp").tryForPeople(false, made)
					dialAgent(t, g, mcpVersion, "/mcp/devices/toy-1").tryForPeople(true, made)
					pipeAgent(t, g, mcpVersion).tryForPeople(false, made)
				}
				brokers[g].connect().tryForPeople(made)
				for spelled, n := range made {
					wait.For(t, fmt.Sprintf("%d attempts at %s are in the journal", n, spelled), func() bool {
						return len(g.outcomes("toy-1", spelled)) == n
					})
				}
			}
			for tool := range forPeople {
				if log.has(tool) {
					t.Errorf("%s was sent to the toy", tool)
				}
			}
		})
	}
	g := gatewayWithToys(t, toys)
	log := logSent(t, g, "toy-1")
	person := &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Person, Name: "anna"}, Device: "toy-1", Tool: "self.reboot", Args: json.RawMessage(`{}`)}
	if _, err := g.Pipeline.Handle(t.Context(), person); err != nil || !log.has("self.reboot") {
		t.Errorf("a person calls it: %v, %v", err, log.sent)
	}
}

// tryForPeople makes all attempts and counts them by tool.
func (a *testAgent) tryForPeople(alone bool, made map[string]int) {
	a.t.Helper()
	listed := a.list()
	for tool, spellings := range forPeople {
		args := `{}`
		if tool == "self.upgrade_firmware" {
			args = `{"url":"http://192.0.2.1/firmware.bin"}`
		}
		for _, spelled := range spellings {
			if slices.ContainsFunc(listed, func(name string) bool { return strings.HasSuffix(name, spelled) }) {
				a.t.Errorf("%s: %s is listed", a.name, spelled)
			}
			tries := attempts("toy-1", spelled, args, alone)
			if folded := foldedPrefix(listed); folded != "" {
				tries = append(tries, attempt{folded + "__" + spelled, `{"device":"toy-1"}`})
			}
			for _, try := range tries {
				a.refusedOnce(try)
			}
			made[spelled] += len(tries)
		}
	}
	if alone {
		return
	}
	a.mustUse("toy-1__self_get_device_status", `{}`, nil)
	if told, err := a.use(a.t.Context(), "gateway__find_tools", `{"query":"reboot firmware upgrade"}`); err != nil || strings.Contains(told.text, "self_reboot") {
		a.t.Errorf("%s: it finds %+v, %v", a.name, told, err)
	}
	if told, err := a.use(a.t.Context(), "gateway__describe_tool", `{"name":"toy-1__self_reboot"}`); err != nil || !told.isError {
		a.t.Errorf("%s: it is described: %+v, %v", a.name, told, err)
	}
}

// tryForPeople makes all attempts and counts them by tool.
func (a *voiceAgent) tryForPeople(made map[string]int) {
	a.t.Helper()
	listed := a.list()
	for _, spellings := range forPeople {
		for _, spelled := range spellings {
			if slices.ContainsFunc(listed, func(name string) bool { return strings.HasSuffix(name, spelled) }) {
				a.t.Errorf("at an endpoint %s is listed", spelled)
			}
			for _, try := range attempts("toy-1", spelled, `{}`, false) {
				result, failure := a.hear(a.begin("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, try.name, try.args)))
				if failure == nil && !strings.Contains(string(result), "not_found") {
					a.t.Errorf("at an endpoint, %s: %s", try.name, result)
				}
				made[spelled]++
			}
		}
	}
}

// refusedOnce makes a call that must be refused.
func (a *testAgent) refusedOnce(try attempt) {
	a.t.Helper()
	told, err := a.use(a.t.Context(), try.name, try.args)
	switch {
	case err != nil: // there is no such tool
	case strings.Contains(try.name, "call_many"):
		if !strings.Contains(told.text, `"not_found"`) {
			a.t.Errorf("%s: %s: %s", a.name, try.name, told.text)
		}
	case !told.isError || told.code != ferrule.NotFound || told.mayHaveRun:
		a.t.Errorf("%s: %s %s: %+v", a.name, try.name, try.args, told)
	}
}

// foldedPrefix returns the prefix of tools that several devices of one Kind share.
func foldedPrefix(names []string) string {
	for _, name := range names {
		if prefix, tool, _ := strings.Cut(name, "__"); tool == "self_get_device_status" && !strings.HasPrefix(prefix, "toy-") {
			return prefix
		}
	}
	return ""
}
