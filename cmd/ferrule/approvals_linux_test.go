package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/model"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var approvalKills = flag.Int("approval-kills", 3, "how often TestApprovalKilled kills the gateway")

// TestApprovalKilled kills the gateway between the approval of a call and its execution,
// at random moments. The agent calls again, with the same arguments: however often it
// does, the board has run the call at most once.
func TestApprovalKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	n := newNode(t, "a", 1, "")
	guarded(t, filepath.Join(n.data, "overlays"), "pulse") // next to its configuration
	n.start()
	n.reaches("a-0", 30*time.Second)
	board := n.boards.Boards[0]
	ran, left := 0, 0
	for round := range *approvalKills {
		token := fmt.Sprintf("round %d", round)
		first := n.asks(token, 30*time.Second)
		id := n.waitsFor(token)
		delay := rand.N(20 * time.Millisecond) // an approval takes about as long
		killed := make(chan struct{})
		time.AfterFunc(delay, func() {
			n.cmd.Process.Kill()
			close(killed)
		})
		n.call(ferrule.GatewayID, "answer_approval", fmt.Sprintf(`{"id":%q,"allow":true}`, id)) // it may fail
		<-killed
		<-first
		n.kill()
		n.start()
		n.reaches("a-0", 30*time.Second)
		before := board.Runs()[token]
		allowed := false
		for _, a := range n.approvals() {
			allowed = allowed || a.State == ferrule.ApprovalAllowed
		}
		if before > 0 && allowed {
			t.Errorf("%s ran, and its approval can still be used", token)
		}
		patience := time.Second
		if allowed { // the first uses what is left
			patience = wait.Ample
		}
		<-n.asks(token, patience)
		<-n.asks(token, time.Second)
		switch runs := board.Runs()[token]; {
		case runs > 1:
			t.Errorf("%s: killed after %v, it ran %d times", token, delay, runs)
		case runs == 1 && before == 0:
			left++
		case allowed && runs == 0:
			t.Errorf("%s: its approval was not used", token)
		default:
			ran += runs
		}
		for _, a := range n.approvals() {
			n.call(ferrule.GatewayID, "answer_approval", fmt.Sprintf(`{"id":%q,"allow":false}`, a.ID))
		}
	}
	t.Logf("%d kills: %d calls ran before, %d after, %d never", *approvalKills, ran, left, *approvalKills-ran-left)
}

// asks calls a guarded tool as an agent that leaves after a time. The channel is closed
// when it has.
func (n *upNode) asks(token string, patience time.Duration) <-chan struct{} {
	n.t.Helper()
	socket, err := control.SocketPath(n.data)
	if err != nil {
		n.t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		client := control.NewClient(socket)
		defer client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		client.Handle(ctx, &ferrule.Call{
			Principal: ferrule.Principal{Role: ferrule.Agent, Name: "robby"}, Device: "a-0", Tool: "pulse", Args: json.RawMessage(fmt.Sprintf(`{"token":%q}`, token)),
		})
	}()
	return over
}

// approvals lists what waits for approval.
func (n *upNode) approvals() []ferrule.Approval {
	n.t.Helper()
	result, err := n.call(ferrule.GatewayID, "list_approvals", `{}`)
	var out builtin.ListApprovalsOutput
	if err == nil {
		err = json.Unmarshal(result.Value, &out)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return out.Approvals
}

// waitsFor waits for the request of a call, and returns its ID.
func (n *upNode) waitsFor(token string) (id string) {
	n.t.Helper()
	wait.For(n.t, token+" waits for approval", func() bool {
		for _, a := range n.approvals() {
			if strings.Contains(string(a.Args), `"`+token+`"`) {
				id = a.ID
			}
		}
		return id != ""
	})
	return id
}

// TestApprovalOnOtherNode lets an agent of one node call a guarded tool of a board on
// another. The other node asks. Every node lists the request and answers it, the agent gets
// progress, and the wait is not part of the time of the call.
func TestApprovalOnOtherNode(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	overlays := t.TempDir()
	guarded(t, overlays, "gpio_write")
	boards := startSim(t, sim.Config{})
	join := func(name string) func(c *config.Config) {
		return func(c *config.Config) {
			joins(c, name, servers)
			c.Overlays, c.Calls.Deadline = overlays, config.Interval(2*time.Second)
		}
	}
	a := startGateway(t, nil, unmeasured, join("a"))
	b := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured, join("b"))
	a.online("robot")
	b.online("robot")
	person := ferrule.Principal{Role: ferrule.Person, Name: "anna", Auth: ferrule.AuthSocket}
	decide := func(tool, args string) (*ferrule.Result, error) {
		return a.Pipeline.Handle(t.Context(), &ferrule.Call{Principal: person, Device: ferrule.GatewayID, Tool: tool, Args: json.RawMessage(args)})
	}
	listed := func() (all builtin.ListApprovalsOutput) {
		result, err := decide("list_approvals", `{}`)
		if err == nil {
			err = json.Unmarshal(result.Value, &all)
		}
		if err != nil {
			t.Error(err)
		}
		return all
	}
	var mu sync.Mutex
	var progress []string
	ask := func() <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := a.Pipeline.Handle(t.Context(), &ferrule.Call{
				Principal: ferrule.Principal{Role: ferrule.Agent, Name: "robby"}, Device: "robot", Tool: "gpio_write", Args: json.RawMessage(`{"pin":2,"value":true}`),
				Progress: func(p ferrule.Progress) {
					mu.Lock()
					defer mu.Unlock()
					progress = append(progress, p.Message)
				},
			})
			done <- err
		}()
		return done
	}
	waits := func() (request ferrule.Approval) {
		t.Helper()
		wait.For(t, "node a lists the request of node b", func() bool {
			all := listed()
			if len(all.Approvals) == 1 && all.Approvals[0].Calls == 1 {
				request = all.Approvals[0]
			}
			return request.ID != ""
		})
		return request
	}
	for _, allow := range []bool{true, false} {
		done := ask()
		request := waits()
		if request.Node != "b" || request.Via != "a" || !strings.HasSuffix(request.ID, "@b") {
			t.Errorf("request %+v", request)
		}
		for name, want := range map[string]int{"robby": 1, "eve": 0} { // an agent sees its own requests, on every node
			result, err := a.Pipeline.Handle(t.Context(), &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: name}, Device: ferrule.GatewayID, Tool: builtin.ApprovalStatusTool})
			var own builtin.ApprovalStatusOutput
			if err == nil {
				err = json.Unmarshal(result.Value, &own)
			}
			if err != nil || len(own.Approvals) != want || len(own.Silent) > 0 {
				t.Errorf("%s sees %+v, %v", name, own, err)
			}
		}
		select {
		case err := <-done:
			t.Fatalf("the call ended without an answer: %v", err)
		case <-time.After(3 * time.Second): // longer than the deadline
		}
		if _, err := decide("answer_approval", fmt.Sprintf(`{"id":%q,"allow":%t}`, request.ID, allow)); err != nil {
			t.Fatal(err)
		}
		switch err := <-done; {
		case allow && err != nil:
			t.Error(err)
		case !allow && (err == nil || ferrule.AsError(err).Code != ferrule.Denied || !strings.Contains(err.Error(), "denied by person:anna")):
			t.Errorf("denied: %v", err)
		}
	}
	mu.Lock()
	if len(progress) == 0 || !strings.HasPrefix(progress[0], "waiting for approval by a person, 5:00 left (request ") {
		t.Errorf("progress %q", progress)
	}
	mu.Unlock()
	if _, err := decide("answer_approval", `{"id":"zzzzz@c","allow":true}`); ferrule.AsError(err).Code != ferrule.Offline {
		t.Errorf("an unknown node: %v", err)
	}
	intents := 0
	err := journal.Read(b.data, func(e ferrule.Entry) error {
		if e.Phase == ferrule.Intent && e.Tool == "gpio_write" {
			intents++
		}
		return nil
	})
	if err != nil || intents != 1 {
		t.Errorf("%d intents, %v", intents, err)
	}
}

// TestApprovalOfClaude has Claude Code, with a stand-in for its model, switch the LED of a
// board by a tool that is guarded. The call waits until `ferrule approve` lets it through;
// after `ferrule deny`, the LED does not change.
func TestApprovalOfClaude(t *testing.T) {
	dir := os.Getenv("FERRULE_TEST_AGENTS")
	if dir == "" {
		t.Skip("FERRULE_TEST_AGENTS is not set: see internal/testenv/agents")
	}
	at := slices.IndexFunc(programs, func(p agentProgram) bool { return p.name == "claude" })
	path := filepath.Join(dir, "bin", "claude")
	if _, err := os.Stat(path); err != nil || at < 0 {
		t.Skip("Claude Code is not installed")
	}
	files := t.TempDir()
	guarded(t, filepath.Join(files, "overlays"), "gpio_write")
	writeFile(t, filepath.Join(files, "ferrule.yaml"), openLoopback+"policy: {preset: careful}\n")
	board := uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "uno")})
	address, log := upWith(t, board, "--config", filepath.Join(files, "ferrule.yaml"))
	person := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("ferrule", append(args, "--data", filepath.Dir(log))...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	m := model.Start(t)
	args, env := programs[at].command(t, files, m.URL(), mcpServer{url: address}, "Switch the LED on.")
	run := programs[at].start(t, path, files, append(env, outward(m.URL())...), args)
	ctx, cancel := context.WithTimeout(run.ended, 3*time.Minute)
	defer cancel()
	tool := m.Offered(ctx, "uno__gpio_write")
	for _, answer := range []string{"approve", "deny"} {
		on := answer == "approve" // then off, which is denied
		before := len(board.Edges("B5"))
		result := make(chan string, 1)
		go func() { result <- m.Call(ctx, tool, fmt.Sprintf(`{"pin":13,"value":%t}`, on)) }()
		var request string
		wait.For(t, "the call of Claude Code waits", func() bool {
			request = regexp.MustCompile(`Request +([a-z0-9]{5})`).FindString(person("approvals"))
			return request != ""
		})
		if edges := board.Edges("B5"); len(edges) != before {
			t.Fatalf("the LED changed without an answer: %v", edges)
		}
		person(answer, strings.Fields(request)[1])
		said := <-result
		if on {
			board.WaitPin("B5", true)
			continue
		}
		if !strings.Contains(said, "was denied by person:") || len(board.Edges("B5")) != before {
			t.Errorf("denied: %s, %v", said, board.Edges("B5"))
		}
	}
	m.Say(ctx, "I may not switch it off.")
	run.wait(ctx)
	t.Log(greeting(t, log))
}
