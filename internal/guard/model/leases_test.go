package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/lease"
)

// TestReplayLeases replays traces of the model with the leases of two nodes. The code ends
// a lease as soon as it can, so its device may be off earlier than that of the model. It
// is on later in two cases only: see newer and hidden.
func TestReplayLeases(t *testing.T) {
	needSpin(t)
	t.Parallel()
	steps := make(made)
	for _, seed := range seeds(t) {
		tr := simulate(t, 8, seed)
		steps.add(tr)
		synctest.Test(t, func(t *testing.T) {
			m := newLeases(t, tr.begin)
			err := tr.replay(m)
			if err == nil {
				time.Sleep(30 * time.Minute)
				synctest.Wait()
				m.newer = false
				err = m.compare(tr.steps[len(tr.steps)-1].after)
			}
			m.end()
			if err != nil {
				t.Error(err)
			}
		})
	}
	steps.want(t, "lease_arm", "lease_arm_alone", "lease_end", "lease_take", "call_run", "env_move", "env_crash")
}

// leases are two nodes and a device.
type leases struct {
	t     *testing.T
	files [2]string
	nodes [2]*leaseNode // nil while a node is down
	runs  int

	at      [3]int
	session [3]string
	leave   [3]func(error)

	mu     sync.Mutex
	link   int
	on     bool
	by     int  // the node whose call switched the device on
	newer  bool // the model has ended an older lease than that of this call
	shared map[string][]byte
}

// leaseNode is one run of a node.
type leaseNode struct {
	*lease.Keeper
	m       *leases
	number  int
	boot    string
	stop    func()
	watch   func(key string, value []byte)
	changes chan string

	cut     bool // the cluster is out of reach
	crashed bool
	unsent  map[string][]byte
}

func newLeases(t *testing.T, begin state) *leases {
	m := &leases{t: t, link: begin.link, shared: make(map[string][]byte)}
	for i := range m.files {
		m.files[i] = filepath.Join(t.TempDir(), "leases.jsonl")
		m.open(i)
	}
	m.nodes[m.link].Put(lamp, nil)
	return m
}

func (m *leases) open(number int) {
	m.runs++
	n := &leaseNode{m: m, number: number, boot: fmt.Sprint("boot", m.runs), changes: make(chan string, 100), unsent: make(map[string][]byte)}
	k, err := lease.Open(lease.Parts{
		File: m.files[number], Node: []string{"a", "b"}[number], Boot: n.boot, Handle: n.handle,
		Alive: func(string) bool { return true }, Shared: (*leaseRecords)(n), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	n.Keeper = k
	m.mu.Lock()
	m.nodes[number] = n
	m.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { k.Run(ctx) })
	wg.Go(func() {
		for key := range n.changes {
			m.mu.Lock()
			value, watch, gone := m.shared[key], n.watch, n.crashed
			m.mu.Unlock()
			if !gone {
				watch(key, value)
			}
		}
	})
	n.stop = func() {
		cancel()
		synctest.Wait()
		time.Sleep(time.Minute)
		close(n.changes)
		wg.Wait()
		k.Close()
	}
	synctest.Wait()
}

// handle is the pipeline for the calls that end leases.
func (n *leaseNode) handle(context.Context, *ferrule.Call) (*ferrule.Result, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	if n.crashed || n.m.link != n.number {
		return nil, lamp.OfflineError()
	}
	n.m.on = false
	return &ferrule.Result{}, nil
}

// leaseRecords implements lease.Shared for one node.
type leaseRecords leaseNode

func (n *leaseRecords) Put(key string, value []byte) error {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	if n.crashed {
		return errors.New("crashed")
	}
	if n.cut {
		n.unsent[key] = value
		return errors.New("the cluster is out of reach")
	}
	n.m.write(key, value)
	return nil
}

func (n *leaseRecords) Delete(key string) error { return n.Put(key, nil) }

func (n *leaseRecords) Watch(fn func(key string, value []byte)) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	n.watch = fn
	for key := range n.m.shared {
		n.changes <- key
	}
}

// write changes a shared record. It is called with mu held.
func (m *leases) write(key string, value []byte) {
	if m.shared[key] = value; value == nil {
		delete(m.shared, key)
	}
	for _, n := range m.nodes {
		if n != nil && !n.crashed && n.watch != nil {
			n.changes <- key
		}
	}
}

// reach ends the time in which a node does not reach the cluster.
func (n *leaseNode) reach() {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	n.cut = false
	for key, value := range n.unsent {
		n.m.write(key, value)
	}
	clear(n.unsent)
}

// end lets everything end that still runs.
func (m *leases) end() {
	for i := range m.leave {
		m.left(i, nil)
	}
	for i := range m.nodes {
		m.crash(i)
	}
}

func (m *leases) crash(number int) {
	n := m.nodes[number]
	if n == nil {
		return
	}
	m.mu.Lock()
	n.crashed = true
	m.mu.Unlock()
	n.Remove(lamp.ID)
	for i := range m.leave {
		if m.at[i] == number {
			m.leave[i] = nil
		}
	}
	n.stop()
	m.nodes[number] = nil
}

func (m *leases) left(attempt int, err error) {
	if m.leave[attempt] != nil {
		m.leave[attempt](err)
	}
	m.leave[attempt] = nil
}

// arm lets the call of an attempt pass the leases. If one is due that cannot be ended now,
// the call is refused.
func (m *leases) arm(attempt int) error {
	n := m.nodes[m.at[attempt]]
	manifest := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "switch", Effect: ferrule.Changes, Lease: &ferrule.Lease{
		For: ferrule.Duration(10 * time.Minute), Then: ferrule.Undo{Tool: "switch", Args: map[string]any{"on": false}},
	}}}}
	m.session[attempt] = fmt.Sprint(n.boot, "-", attempt)
	call := &ferrule.Call{
		Principal: robot, Device: lamp.ID, Tool: "switch", Session: m.session[attempt], Args: json.RawMessage(`{"on":true}`), DecodedArgs: map[string]any{"on": true},
		Target: ferrule.Target{Device: lamp, Manifest: manifest, Tool: &manifest.Tools[0]},
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if n.Await(ctx, call) != nil {
		return nil
	}
	leave, err := n.Enter(call, 0, "")
	m.leave[attempt] = leave
	return err
}

func (m *leases) do(s transition) error {
	defer func() {
		time.Sleep(2 * time.Second)
		synctest.Wait()
	}()
	switch s.name {
	case "call_enter":
		m.at[s.arg] = nodeA
	case "call_accept":
		m.at[s.arg] = nodeB
	case "env_crash":
		m.crash(s.arg)
		m.moveTo(s.after.link)
	case "env_start":
		m.open(s.arg)
	case "env_attach", "env_move":
		m.moveTo(s.arg)
	case "lease_arm":
		return m.arm(s.arg)
	case "lease_arm_alone":
		n := m.nodes[m.at[s.arg]]
		m.mu.Lock()
		n.cut = true
		m.mu.Unlock()
		return m.arm(s.arg)
	case "lease_share":
		m.nodes[s.arg].reach()
	case "call_run":
		if m.leave[s.arg] != nil {
			m.mu.Lock()
			m.on, m.by, m.newer = true, m.at[s.arg], false
			m.mu.Unlock()
			m.left(s.arg, nil)
		}
	case "call_fail":
		m.left(s.arg, lamp.OfflineError())
	case "lease_take":
		m.newer = m.by == s.arg
	case "lease_end": // the callers leave
		m.newer = false
		for _, session := range m.session {
			m.nodes[s.arg].SessionEnded(session)
		}
	}
	return nil
}

// moveTo connects the device to a node. Calls that wait at the other one end.
func (m *leases) moveTo(link int) {
	m.mu.Lock()
	m.link = link
	m.mu.Unlock()
	for number, n := range m.nodes {
		if n == nil || number == link {
			continue
		}
		n.Remove(lamp.ID)
		for i := range m.leave {
			if m.at[i] == number && link < len(m.nodes) {
				m.left(i, lamp.OfflineError())
			}
		}
	}
	if link < len(m.nodes) && m.nodes[link] != nil {
		m.nodes[link].Put(lamp, nil)
	}
}

func (m *leases) compare(want state) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.link != want.link {
		return fmt.Errorf("the device is at node %d, want %d", m.link, want.link)
	}
	if m.on && want.on == 0 && !m.newer && !m.hidden() {
		return errors.New("the device is on, and should be off")
	}
	return nil
}

// hidden reports whether only a node that the device has left knows the lease: it has not
// reached the cluster since. The model can switch such a device off by an older lease that
// the code has ended before.
func (m *leases) hidden() bool {
	n := m.nodes[m.by]
	return m.link != m.by && (n == nil || len(n.unsent) > 0)
}

// TestFoundLeases replays executions in which a lease did not end once.
func TestFoundLeases(t *testing.T) {
	at := func(link, on int) state { return state{up: [2]int{1, 1}, link: link, on: on} }
	for name, steps := range map[string][]transition{
		"a lease that no other node knew before a restart": {
			{"call_enter", 0, at(nodeA, 0)}, {"lease_arm_alone", 0, at(nodeA, 0)}, {"call_run", 0, at(nodeA, 1)}, {"env_move", 1, at(nodeB, 1)},
			{"env_crash", 0, at(nodeB, 1)}, {"env_start", 0, at(nodeB, 1)}, {"lease_share", 0, at(nodeB, 1)}, {"lease_take", 1, at(nodeB, 0)},
		},
		"a lease that no other node knows, after one that the code has ended": {
			{"call_enter", 0, at(nodeA, 0)}, {"lease_arm_alone", 0, at(nodeA, 0)}, {"call_run", 0, at(nodeA, 1)}, {"env_move", 1, at(nodeB, 1)},
			{"lease_share", 0, at(nodeB, 1)}, {"env_move", 0, at(nodeA, 1)}, {"call_enter", 2, at(nodeA, 1)}, {"lease_arm_alone", 2, at(nodeA, 1)},
			{"call_run", 2, at(nodeA, 1)}, {"env_move", 1, at(nodeB, 1)}, {"lease_take", 1, at(nodeB, 0)}, {"lease_share", 0, at(nodeB, 0)},
		},
		"a lease that replaced an older one": {
			{"call_enter", 0, at(nodeA, 0)}, {"lease_arm_alone", 0, at(nodeA, 0)}, {"lease_share", 0, at(nodeA, 0)}, {"call_run", 0, at(nodeA, 1)},
			{"call_enter", 2, at(nodeA, 1)}, {"lease_arm_alone", 2, at(nodeA, 1)}, {"call_run", 2, at(nodeA, 1)}, {"lease_take", 0, at(nodeA, 0)},
			{"lease_end", 0, at(nodeA, 0)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newLeases(t, at(nodeA, 0))
				err := trace{steps: steps}.replay(m)
				m.end()
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
}
