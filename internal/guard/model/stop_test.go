package model

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/halt"
)

// TestReplayStop replays traces of the model with two nodes that can be stopped.
func TestReplayStop(t *testing.T) {
	needSpin(t)
	t.Parallel()
	steps := make(made)
	for i, seed := range seeds(t) {
		tr := simulate(t, []int{2, 2, 2, 4}[i%4], seed)
		steps.add(tr)
		synctest.Test(t, func(t *testing.T) {
			m := newStops(t)
			err := tr.replay(m)
			m.end()
			if err != nil {
				t.Error(err)
			}
		})
	}
	steps.want(t, "stop_admit", "stop_refuse", "stop_set", "stop_ack", "stop_send", "stop_hear", "stop_resume", "env_crash", "env_move", "call_run")
}

// stops are two nodes that can be stopped.
type stops struct {
	t       *testing.T
	dirs    [2]string
	nodes   [2]*halt.Stop // nil while a node is down
	records [2]*stopRecords
	sent    [2]map[string][]byte // the last message to a node
	halting [2]chan struct{}     // closed when a Halt has returned; nil without one
	at      [3]int
	running [3]context.Context // nil if an attempt was not admitted
	leave   [3]func()
}

func newStops(t *testing.T) *stops {
	m := &stops{t: t, dirs: [2]string{t.TempDir(), t.TempDir()}}
	m.open(nodeA)
	m.open(nodeB)
	return m
}

func (m *stops) open(node int) {
	r := &stopRecords{known: make(map[string][]byte)}
	s := halt.Open(halt.Options{
		Dir: m.dirs[node], Node: []string{"a", "b"}[node], Records: r, Nodes: func() []string { return nil }, Targets: func() []ferrule.Target { return nil },
		Journal: r, Event: func(ferrule.Event) {}, Log: slog.New(slog.DiscardHandler),
	})
	s.Connect()
	m.nodes[node], m.records[node] = s, r
	r.synced() // it writes what it knows
	m.t.Cleanup(func() { s.Close() })
}

// end lets everything end that still runs.
func (m *stops) end() {
	for i := range m.leave {
		m.left(i)
	}
	time.Sleep(time.Hour)
	synctest.Wait()
}

func (m *stops) left(attempt int) {
	if m.leave[attempt] != nil {
		m.leave[attempt]()
	}
	m.leave[attempt], m.running[attempt] = nil, nil
}

func (m *stops) enter(attempt int) error {
	call := &ferrule.Call{
		Principal: robot, Device: lamp.ID, Tool: "switch",
		Target: ferrule.Target{Device: lamp, Tool: &ferrule.Tool{Name: "switch", Effect: ferrule.Changes}},
	}
	ctx, leave, err := m.nodes[m.at[attempt]].Enter(context.Background(), call)
	if err == nil {
		m.running[attempt], m.leave[attempt] = ctx, leave
	}
	return err
}

func (m *stops) do(s transition) error {
	defer synctest.Wait()
	switch s.name {
	case "call_enter":
		m.at[s.arg] = nodeA
	case "call_accept":
		m.at[s.arg] = nodeB
	case "env_crash":
		for i := range m.leave {
			if m.at[i] == s.arg {
				m.left(i)
			}
		}
		m.nodes[s.arg], m.halting[s.arg] = nil, nil
	case "env_start":
		m.open(s.arg)
	case "env_attach", "env_move": // the calls of the other node end
		for i := range m.leave {
			if m.at[i] != s.arg {
				m.left(i)
			}
		}
	case "env_lose":
		m.sent[s.arg] = nil
	case "stop_admit":
		return m.enter(s.arg)
	case "stop_refuse":
		if m.enter(s.arg) == nil {
			return errors.New("the call was admitted")
		}
	case "stop_cancel":
		if m.running[s.arg].Err() == nil || ferrule.MaySend(m.running[s.arg]) == nil {
			return errors.New("the call was not cancelled")
		}
		m.left(s.arg)
	case "call_run":
		if err := ferrule.MaySend(m.running[s.arg]); err != nil {
			return err
		}
		m.left(s.arg)
	case "call_fail":
		m.left(s.arg)
	case "stop_set":
		done := make(chan struct{})
		m.halting[s.arg] = done
		go func() {
			defer close(done)
			if _, err := m.nodes[s.arg].Halt(context.Background(), robot, "", nil); err != nil {
				m.t.Error(err)
			}
		}()
	case "stop_ack":
		select {
		case <-m.halting[s.arg]:
		default:
			if m.halting[s.arg] != nil {
				return errors.New("the stop is not acknowledged, although nothing runs any more")
			}
		}
	case "stop_resume":
		_, _, err := m.nodes[s.arg].Resume(context.Background(), person, nil)
		return err
	case "stop_send":
		m.sent[1-s.arg] = m.records[s.arg].all()
	case "stop_hear":
		for key, value := range m.sent[s.arg] {
			m.records[s.arg].hear(key, value)
		}
	case "call_send", "env_die":
	default:
		return errors.New("this step has no counterpart here")
	}
	return nil
}

func (m *stops) compare(want state) error {
	for node, s := range m.nodes {
		if (s != nil) != (want.up[node] == 1) {
			return fmt.Errorf("node %d is up: %v", node, s != nil)
		}
		if s == nil {
			continue
		}
		if got := s.Stopped().Everything(); got != want.stopped(node) {
			return fmt.Errorf("node %d is stopped: %v, want %v", node, got, want.stopped(node))
		}
	}
	return nil
}

// stopRecords are what one node knows. It hears of others only when a test says so.
type stopRecords struct {
	mu     sync.Mutex
	known  map[string][]byte
	watch  func(key string, value []byte)
	synced func()
}

// Append implements halt.Journal.
func (*stopRecords) Append(ferrule.Entry, bool) error { return nil }

func (r *stopRecords) Put(key string, value []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[key] = value
	return nil
}

func (r *stopRecords) Watch(fn func(key string, value []byte)) { r.watch = fn }
func (r *stopRecords) OnSync(fn func())                        { r.synced = fn }

func (r *stopRecords) Announce(_ context.Context, key string, value []byte, _ func(node string, data []byte)) error {
	return r.Put(key, value)
}

func (r *stopRecords) Serve(func(key string, value []byte, reply func(data []byte))) {}

// hear delivers a record of the other node.
func (r *stopRecords) hear(key string, value []byte) {
	r.Put(key, value) // the node puts what it knows if that is more
	r.watch(key, value)
}

func (r *stopRecords) all() map[string][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.known)
}
