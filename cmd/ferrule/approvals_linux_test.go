package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
)

var approvalKills = flag.Int("approval-kills", 3, "how often TestApprovalKilled kills the gateway")

// guarded makes tools of a board dangerous, by an overlay in a directory.
func guarded(t *testing.T, dir string, tools ...string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := "match: {protocol: mcpu}\ntools:\n"
	for _, tool := range tools {
		file += "  " + tool + ": {effect: endangers}\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "guarded.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestApprovalKilled kills the gateway between the approval of a call and its execution,
// at random moments. The agent calls again, with the same arguments: however often it
// does, the board has run the call at most once.
func TestApprovalKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	n := newNode(t, "a", 1, "")
	guarded(t, filepath.Join(n.data, "overlays"), "pulse")
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
		for range 2 { // the first uses what is left
			<-n.asks(token, time.Second)
		}
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
	eventually(n.t, 30*time.Second, token+" waits for approval", func() bool {
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
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	overlays := t.TempDir()
	guarded(t, overlays, "gpio_write")
	boards := startSim(t, sim.Config{})
	join := func(name string) func(c *config.Config) {
		return func(c *config.Config) {
			joins(c, name, servers)
			c.Overlays, c.Calls.Deadline = overlays, config.Interval(300*time.Millisecond)
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
		eventually(t, ample, "node a lists the request of node b", func() bool {
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
		select {
		case err := <-done:
			t.Fatalf("the call ended without an answer: %v", err)
		case <-time.After(time.Second): // longer than the deadline
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
