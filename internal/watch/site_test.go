package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

var maria = ferrule.Principal{Role: ferrule.Person, Name: "maria", Auth: ferrule.AuthSocket}
var claude = ferrule.Principal{Role: ferrule.Agent, Name: "claude", Auth: ferrule.AuthToken}

// site is a keeper with what it works with, under a fake clock.
type site struct {
	t      *testing.T
	file   string
	node   string
	shared *fakeShared // nil for one node
	keeper *Keeper
	stop   func()

	mu      sync.Mutex
	calls   []*ferrule.Call
	notices []Notice
	reports []Notice // outcomes
	events  []ferrule.Event
	updates int
	hidden  map[string]bool // devices, from agents
	barred  error
	answer  func(ctx context.Context, call *ferrule.Call) error
	lost    func(ctx context.Context, calls []LostCall) []error
}

func newSite(t *testing.T) *site {
	return &site{t: t, file: filepath.Join(t.TempDir(), "watches"), node: "one"}
}

// start starts a run of the gateway.
func (s *site) start() *site {
	s.t.Helper()
	p := Parts{
		File: s.file, Node: s.node, Lost: s.lost, Changes: func(*Action) bool { return true }, Log: slog.New(slog.DiscardHandler),
		Updated: func(string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.updates++
		},
		Event: func(e ferrule.Event) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, e)
		},
		Owner: func(w *Watch) (ferrule.Principal, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return w.Owner, s.barred
		},
		Sees: func(who ferrule.Principal, device string) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return who.Role == ferrule.Person || !s.hidden[device]
		},
		Send: map[string]func(context.Context, Notice) error{Webhook: func(_ context.Context, n Notice) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if n.Event == "outcome" {
				s.reports = append(s.reports, n)
			} else {
				s.notices = append(s.notices, n)
			}
			return nil
		}},
		Handle: func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			s.mu.Lock()
			s.calls = append(s.calls, call)
			answer := s.answer
			s.mu.Unlock()
			if answer != nil {
				return nil, answer(ctx, call)
			}
			return &ferrule.Result{}, nil
		},
	}
	if s.shared != nil {
		p.Shared = s.shared
	}
	k, err := Open(p)
	if err != nil {
		s.t.Fatal(err)
	}
	k.Connect()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Run(ctx)
	}()
	s.keeper = k
	s.stop = func() {
		cancel()
		<-done
		k.Close()
	}
	if s.shared != nil && !s.shared.late {
		s.shared.sync()
	}
	return s
}

// crash ends a run without what it does at the end: its file and goroutines are cut off.
func (s *site) crash() {
	k := s.keeper
	k.Close()
	if s.shared != nil {
		s.shared.cutOff(s.node)
	}
	s.stop()
}

func (s *site) attach(id string) {
	s.keeper.Devices().Put(&ferrule.Device{ID: id, State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, nil)
}

func (s *site) measure(device string, values ...float64) {
	for _, v := range values {
		time.Sleep(100 * time.Millisecond)
		now := time.Now()
		s.keeper.Measured(ferrule.Reading{Device: device, Node: s.node, Poll: "p", Time: now, Batches: []ferrule.SampleBatch{
			{Signal: "level", Samples: []ferrule.Sample{{Time: now, Value: v}}},
		}})
	}
	time.Sleep(time.Second) // of the fake clock
	synctest.Wait()
}

func (s *site) counts() (calls, notices int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls), len(s.notices)
}

func (s *site) want(calls, notices int) {
	s.t.Helper()
	if c, n := s.counts(); c != calls || n != notices {
		s.t.Fatalf("%d calls and %d notices, want %d and %d", c, n, calls, notices)
	}
}

func (s *site) set(who ferrule.Principal, edit func(*Settings)) Status {
	s.t.Helper()
	above := 90.0
	in := Settings{
		Name: "tank full", Notify: []string{Webhook}, Condition: condition.Condition{Device: "tank", Signal: "level", Above: &above, Hysteresis: 5},
		Call: &Action{Device: "valve", Tool: "close", Args: json.RawMessage(`{"port":1}`)},
	}
	if edit != nil {
		edit(&in)
	}
	w, err := s.keeper.Set(who, in)
	if err != nil {
		s.t.Fatal(err)
	}
	return w
}

func (s *site) state(id string) Status {
	s.t.Helper()
	w, err := s.keeper.Get(maria, id)
	if err != nil {
		s.t.Fatal(err)
	}
	return w
}

// fakeShared is a bucket of shared records between sites.
type fakeShared struct {
	mu       sync.Mutex
	all      map[string][]byte
	watchers []func(string, []byte)
	synced   []func()
	down     bool
	late     bool // watchers get what is there when it is in sync
}

func (f *fakeShared) Put(key string, value []byte) error {
	f.mu.Lock()
	if f.down {
		f.mu.Unlock()
		return fmt.Errorf("not written")
	}
	f.all[key] = value
	watchers := f.watchers
	f.mu.Unlock()
	for _, fn := range watchers {
		fn(key, value)
	}
	return nil
}

func (f *fakeShared) Delete(key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, key)
	return nil
}

func (f *fakeShared) Watch(fn func(string, []byte)) {
	f.mu.Lock()
	f.watchers = append(f.watchers, fn)
	late := f.late
	f.mu.Unlock()
	if late {
		f.synced = append(f.synced, func() { f.replay(fn) })
	} else {
		f.replay(fn)
	}
}

func (f *fakeShared) replay(fn func(string, []byte)) {
	f.mu.Lock()
	all := maps.Clone(f.all)
	f.mu.Unlock()
	for key, value := range all {
		fn(key, value)
	}
}

func (f *fakeShared) OnSync(fn func()) { f.synced = append(f.synced, fn) }

func (f *fakeShared) sync() {
	for _, fn := range f.synced {
		fn()
	}
}

func (f *fakeShared) cutOff(string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = true
}

func (f *fakeShared) back() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down, f.watchers, f.synced = false, nil, nil
}
