package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/approval"
)

// TestReplayApprovals replays traces of the model with the approvals of two nodes.
func TestReplayApprovals(t *testing.T) {
	needSpin(t)
	t.Parallel()
	steps := make(made)
	for _, seed := range seeds(t) {
		tr := simulate(t, 1, seed)
		steps.add(tr)
		if err := tr.replay(newApprovals(t, tr.same)); err != nil {
			t.Fatal(err)
		}
	}
	steps.want(t, "approve_ask", "approve_allow", "approve_deny", "approve_use", "env_crash")
}

var (
	person = ferrule.Principal{Role: ferrule.Person, Name: "anna", Auth: ferrule.AuthSocket}
	robot  = ferrule.Principal{Role: ferrule.Agent, Name: "robot", Auth: ferrule.AuthToken}
	lamp   = &ferrule.Device{ID: "lamp", Address: "tcp:lamp", Kind: "k1", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}
)

// approvals are the approvals of both nodes.
type approvals struct {
	t     *testing.T
	same  bool
	dirs  [2]string
	nodes [2]*approval.Approvals // nil while a node is down
	at    [3]int
}

func newApprovals(t *testing.T, same bool) *approvals {
	m := &approvals{t: t, same: same, dirs: [2]string{t.TempDir(), t.TempDir()}}
	m.open(nodeA)
	m.open(nodeB)
	return m
}

func (m *approvals) open(node int) {
	m.t.Helper()
	a, err := approval.Open(approval.Parts{
		Config: approval.DefaultConfig(), Dir: m.dirs[node], Journal: m, Devices: m, Version: func() string { return "v1" }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.nodes[node] = a
	m.t.Cleanup(func() { a.Close() })
}

// Append implements approval.Journal.
func (*approvals) Append(ferrule.Entry, bool) error { return nil }

// Lookup implements approval.Devices.
func (*approvals) Lookup(string) (*ferrule.Device, *ferrule.Manifest, bool) { return lamp, nil, true }

func (m *approvals) content(attempt int) int {
	if m.same {
		return 0
	}
	return attempt / 2
}

// await makes the call of an attempt. It does not wait for an answer.
func (m *approvals) await(attempt int) error {
	pin := json.Number(fmt.Sprint(m.content(attempt)))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	call := &ferrule.Call{
		ID: fmt.Sprint("call", attempt), Principal: robot, Device: lamp.ID, Tool: "switch", Args: json.RawMessage(`{"pin":` + pin + `}`), DecodedArgs: map[string]any{"pin": pin},
		Target:  ferrule.Target{Device: lamp, Tool: &ferrule.Tool{Name: "switch", Effect: ferrule.Endangers}},
		Verdict: ferrule.Verdict{Ruling: ferrule.Ask}, Progress: func(ferrule.Progress) { cancel() },
	}
	if m.at[attempt] == nodeB {
		call.Via = "a"
	}
	return m.nodes[m.at[attempt]].Await(ctx, call)
}

// list returns the requests of a node by content.
func (m *approvals) list(node int) map[int]ferrule.Approval {
	all := make(map[int]ferrule.Approval)
	for _, r := range m.nodes[node].List() {
		var args struct{ Pin int }
		if err := json.Unmarshal(r.Args, &args); err != nil {
			m.t.Fatal(err)
		}
		all[args.Pin] = r
	}
	return all
}

func (m *approvals) do(s transition) error {
	switch s.name {
	case "call_enter":
		m.at[s.arg] = nodeA
	case "call_accept":
		m.at[s.arg] = nodeB
	case "env_crash":
		m.nodes[s.arg] = nil // it is not closed
	case "env_start":
		m.open(s.arg)
	case "approve_ask":
		if err := m.await(s.arg); err == nil || ferrule.AsError(err).Code != ferrule.Cancelled {
			return fmt.Errorf("the call does not wait: %v", err)
		}
	case "approve_use":
		return m.await(s.arg)
	case "approve_allow":
		id := m.list(s.arg / 2)[s.arg%2].ID
		if _, err := m.nodes[s.arg/2].Answer(robot, id, approval.Answer{Allow: true}); err == nil {
			return errors.New("the caller approved its own call")
		}
		_, err := m.nodes[s.arg/2].Answer(person, id, approval.Answer{Allow: true})
		return err
	case "approve_deny":
		_, err := m.nodes[s.arg/2].Answer(person, m.list(s.arg / 2)[s.arg%2].ID, approval.Answer{})
		return err
	case "approve_expire":
		return m.expire(s.arg/2, m.list(s.arg / 2)[s.arg%2].ID)
	}
	return nil
}

// expire lets the time of one request pass while its node is down: a clock that moves on
// would end all of them.
func (m *approvals) expire(node int, id string) error {
	if err := m.nodes[node].Close(); err != nil {
		return err
	}
	path := filepath.Join(m.dirs[node], "approvals.jsonl")
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var out []byte
	for text := range bytes.Lines(data) {
		var line struct {
			Record map[string]json.RawMessage `json:"record,omitempty"`
			End    string                     `json:"end,omitempty"`
		}
		if err := json.Unmarshal(text, &line); err != nil {
			return err
		}
		if string(line.Record["id"]) == `"`+id+`"` {
			if line.Record["expires"], err = json.Marshal(time.Now().Add(-time.Second)); err != nil {
				return err
			}
		}
		text, err := json.Marshal(line)
		if err != nil {
			return err
		}
		out = append(append(out, text...), '\n')
	}
	if err := os.WriteFile(path, out, 0o600); err != nil {
		return err
	}
	m.open(node)
	return nil
}

func (m *approvals) compare(want state) error {
	for node, a := range m.nodes {
		if (a != nil) != (want.up[node] == 1) {
			return fmt.Errorf("node %d is up: %v", node, a != nil)
		}
		if a == nil {
			continue
		}
		list := m.list(node)
		for content := range 2 {
			var state ferrule.ApprovalState
			switch want.approvals[2*node+content] {
			case asked:
				state = ferrule.ApprovalWaiting
			case allowed:
				state = ferrule.ApprovalAllowed
			}
			if got := list[content].State; got != state {
				return fmt.Errorf("the approval of content %d at node %d is %q, want %q", content, node, got, state)
			}
		}
	}
	return nil
}
