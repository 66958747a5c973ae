package dock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/fleet"
)

// board is a peer that the test controls.
type board struct {
	address string
	model   string

	mu       sync.Mutex
	refuse   error             // Open fails with it
	alien    error             // Greet fails with it
	manifest *ferrule.Manifest // nil for the usual one
	links    int               // open links
	opened   int               // how often it was opened
	greeted  int
	closing  time.Duration                   // how long a link takes to close
	panics   bool                            // when it is greeted
	settled  func(ctx context.Context) error // nil if its manifest is never read again
	listing  func(context.Context)           // called when it is greeted; may be nil
	lingers  bool                            // its session does not close the link
	ended    int                             // how many sessions have ended
	cut      func()                          // ends the running session
	renews   chan *ferrule.Manifest          // new manifests
	words    chan string                     // notifications
	invoke   func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error)
}

func (b *board) set(change func(*board)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

// get reads one of the board's numbers.
func (b *board) get(n *int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return *n
}

// hangUp breaks the link.
func (b *board) hangUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut()
}

func (b *board) open(context.Context) (transport.Link, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened++
	if b.refuse != nil {
		return nil, b.refuse
	}
	if b.links > 0 {
		panic("a second link was opened before the first was closed")
	}
	b.links++
	link, far := transporttest.Pipe(transport.Info{Address: b.address})
	go func() { // the far end reads until the link is closed
		buf := make([]byte, 1024)
		for {
			if _, err := far.Read(buf); err != nil {
				far.Close()
				return
			}
		}
	}()
	return &boardLink{Stream: link.(*transport.Stream), board: b}, nil
}

type boardLink struct {
	*transport.Stream
	board *board
	once  sync.Once
}

func (l *boardLink) Close() error {
	l.once.Do(func() {
		var closing time.Duration
		l.board.set(func(b *board) { closing = b.closing })
		time.Sleep(closing)
		l.board.set(func(b *board) { b.links-- })
	})
	return l.Stream.Close()
}

// testProtocol is the protocol of the test boards.
type testProtocol struct{}

func (testProtocol) Greet(ctx context.Context, link transport.Link) (protocol.Session, *ferrule.Manifest, error) {
	b := link.(*boardLink).board
	if b.listing != nil {
		b.listing(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.greeted++
	if b.panics {
		panic("a fault")
	}
	if b.alien != nil {
		return nil, nil, b.alien
	}
	m := b.manifest
	if m == nil {
		m = usual(b.model)
	}
	said := *m
	said.Tools, said.Pins = slices.Clone(m.Tools), slices.Clone(m.Pins)
	s := &session{board: b, link: link, broken: make(chan struct{})}
	b.cut = sync.OnceFunc(func() { close(s.broken) })
	return s, &said, nil
}

func usual(model string) *ferrule.Manifest {
	return &ferrule.Manifest{Model: model, Version: "1", Tools: []ferrule.Tool{
		{Name: "look", Effect: ferrule.Reads}, {Name: "move"}, {Name: "set", Idempotent: true},
	}}
}

type session struct {
	board  *board
	link   transport.Link
	broken chan struct{}
	notify func(method string, params json.RawMessage)
	renew  func(*ferrule.Manifest)
}

// Changed implements protocol.Changer.
func (s *session) Changed(fn func(*ferrule.Manifest), _ func(*ferrule.Call) error) { s.renew = fn }

// Settled implements protocol.Changer.
func (s *session) Settled(ctx context.Context) error {
	if s.board.settled != nil {
		return s.board.settled(ctx)
	}
	return nil
}

// Notify implements protocol.Notifier.
func (s *session) Notify(fn func(method string, params json.RawMessage)) { s.notify = fn }

func (s *session) Invoke(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	s.board.mu.Lock()
	invoke := s.board.invoke
	s.board.mu.Unlock()
	if invoke == nil {
		return &ferrule.Result{Value: json.RawMessage(`"` + call.Tool + `"`)}, nil
	}
	return invoke(ctx, call)
}

func (s *session) Run(ctx context.Context) error {
	defer s.board.set(func(b *board) { b.ended++ })
	if !s.board.lingers {
		defer s.link.Close()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.broken:
			return errors.New("the board hung up")
		case params := <-s.board.words: // nil for most boards
			s.notify("state", json.RawMessage(params))
		case m := <-s.board.renews: // nil for most boards
			s.renew(m)
		}
	}
}

// testTransport is a transport on which the test controls the sightings.
type testTransport struct {
	updates chan func(update func(string, []transport.Sighting))
}

func (s testTransport) Watch(ctx context.Context, update func(string, []transport.Sighting)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case do := <-s.updates:
			do(update)
		}
	}
}

func (s testTransport) see(group string, all ...transport.Sighting) {
	s.updates <- func(update func(string, []transport.Sighting)) { update(group, all) }
	synctest.Wait()
}

// plain sets missing effects, and changes texts of the device "special".
type plain struct{}

func (plain) Apply(_ string, _ ferrule.Kind, device string, m *ferrule.Manifest) *ferrule.Manifest {
	effective := *m
	effective.Tools = slices.Clone(m.Tools)
	for i := range effective.Tools {
		if effective.Tools[i].Effect == "" {
			effective.Tools[i].Effect = ferrule.Changes
		}
		if device == "special" {
			effective.Tools[i].Text = "special"
		}
	}
	return &effective
}

func (plain) MatchesDevice(device string) bool { return device == "special" }

func (plain) UnknownTools(_ string, _ ferrule.Kind, device string, m *ferrule.Manifest) []string {
	if device == "special" && m.Tool("fly") == nil {
		return []string{"it cannot fly"}
	}
	return nil
}

// world is a dock and its parts.
type world struct {
	t         *testing.T
	dir       string
	transport testTransport
	fleet     *fleet.Fleet
	dock      *dock.Dock
	store     *dock.Store
	logged    *logged
	stop      func()
}

// logged records the log.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count returns how often a text was logged.
func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// open starts a dock on a data directory. It ends with the test, or by stop.
func open(t *testing.T, dir string, change ...func(*dock.Parts)) *world {
	t.Helper()
	logged := &logged{}
	log := slog.New(slog.NewTextHandler(logged, nil))
	store, err := dock.OpenStore(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, dir: dir, store: store, logged: logged, fleet: fleet.New(nil),
		transport: testTransport{make(chan func(func(string, []transport.Sighting)))},
	}
	parts := dock.Parts{
		Config: dock.DefaultConfig(), Connectors: []transport.Connector{w.transport}, Protocols: map[string]protocol.Protocol{"testProtocol": testProtocol{}},
		Overlays: overlay.NewCache(plain{}), Fleet: w.fleet, Store: store, Log: log,
	}
	parts.Config.Waiting = 3
	parts.Config.Wait = 0 // tests of waiting set it
	for _, fn := range change {
		fn(&parts)
	}
	w.dock = dock.New(parts)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.dock.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.stop)
	return w
}

func named(b *board, name string) transport.Sighting {
	s := found(b)
	s.Name, s.Adopted = name, true
	return s
}

func found(b *board) transport.Sighting {
	return transport.Sighting{Address: b.address, Instance: 1, Transport: "testTransport", Protocols: []string{"testProtocol"}, Open: b.open}
}

// device returns a device that must exist.
func (w *world) device(id string) *ferrule.Device {
	w.t.Helper()
	dev, _, ok := w.fleet.Lookup(id)
	if !ok {
		w.t.Fatalf("there is no device %s; there are %s", id, w.ids())
	}
	return dev
}

// ids lists devices and their states.
func (w *world) ids() string {
	var all []string
	for _, d := range w.fleet.Devices() {
		all = append(all, d.ID+":"+string(d.State))
	}
	return strings.Join(all, " ")
}

func (w *world) wantIDs(want string) {
	w.t.Helper()
	if got := w.ids(); got != want {
		w.t.Errorf("devices are %q, want %q", got, want)
	}
}

// send sends a resolved call to the device that the fleet finds.
func (w *world) send(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	target, _ := w.fleet.Target(call.Device)
	call.Target.Handler = target.Handler
	return call.Target.Handle(ctx, call)
}

// call calls a tool.
func (w *world) call(ctx context.Context, role ferrule.Role, id, tool string) (*ferrule.Result, error) {
	w.t.Helper()
	dev, m, _ := w.fleet.Lookup(id)
	return w.send(ctx, &ferrule.Call{
		Device: id, Tool: tool, Principal: ferrule.Principal{Role: role},
		Target: ferrule.Target{Device: dev, Tool: m.Tool(tool)},
	})
}

// bubble runs a test in a synctest bubble with a data directory.
func bubble(t *testing.T, test func(t *testing.T, dir string)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { test(t, dir) })
}

func TestNamed(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", named(b, "robot"))
		dev := w.device("robot")
		if dev.State != ferrule.StateOnline || dev.Trust != ferrule.TrustAdopted || dev.Model != "demo" || dev.Kind == "" || dev.Protocol != "testProtocol" || dev.Transport != "testTransport" {
			t.Errorf("got %+v", dev)
		}
		if result, err := w.call(t.Context(), ferrule.Agent, "robot", "look"); err != nil || string(result.Value) != `"look"` {
			t.Errorf("got %v, %v", result, err)
		}
		w.stop()
		if dev := w.device("robot"); dev.State != ferrule.StateOffline || dev.Reason != "the gateway was stopped" {
			t.Errorf("got %+v", dev)
		}
		if b.get(&b.links) != 0 {
			t.Error("the link was left open")
		}
	})
}

func TestNotReached(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1:1", model: "demo", refuse: errors.New("connection refused")}
		w.transport.see("g", named(b, "robot"))
		anonymous := &board{address: "a2:1", alien: fmt.Errorf("%w: it printed", protocol.ErrNotMine)}
		w.transport.see("h", found(anonymous))
		w.wantIDs("a2:1:offline robot:offline")
		if dev := w.device("robot"); dev.Reason != "connection refused" || dev.Kind != "" {
			t.Errorf("got %+v", dev)
		}
		if dev := w.device("a2:1"); !strings.Contains(dev.Reason, "testProtocol: it does not speak this protocol: it printed") {
			t.Errorf("got %+v", dev)
		}
		time.Sleep(10 * time.Minute)
		// Waits double from 125..250 ms to 15..30 s.
		if n := b.get(&b.opened); n < 25 || n > 50 {
			t.Errorf("opened %d times in ten minutes", n)
		}
		if anonymous.get(&anonymous.links) != 0 {
			t.Error("a link to a stranger was left open")
		}
		b.set(func(b *board) { b.refuse = nil })
		time.Sleep(31 * time.Second)
		w.wantIDs("a2:1:offline robot:online")
		anonymous.set(func(b *board) { b.alien, b.model = nil, "Demo Board" })
		time.Sleep(31 * time.Second)
		w.wantIDs("demo-board:online robot:online")
	})
}

func TestPendingAndAdopted(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", found(b))
		if dev := w.device("demo"); dev.Trust != ferrule.TrustPending || dev.State != ferrule.StateOnline {
			t.Errorf("got %+v", dev)
		}
		if err := w.dock.Adopt("nonsense"); ferrule.AsError(err).Code != ferrule.NotFound {
			t.Errorf("got %v", err)
		}
		if err := w.dock.Adopt("demo"); err != nil || w.device("demo").Trust != ferrule.TrustAdopted {
			t.Errorf("got %v, %+v", err, w.device("demo"))
		}
		w.stop()

		w = open(t, dir) // it is stored
		w.wantIDs("demo:offline")
		w.transport.see("g", found(b))
		if dev := w.device("demo"); dev.Trust != ferrule.TrustAdopted || dev.State != ferrule.StateOnline {
			t.Errorf("got %+v", dev)
		}
		w.stop()
	})
}

func TestAdoptedWhileAbsent(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		w.transport.see("g", found(&board{address: "a1", model: "demo"}))
		w.transport.see("g")
		w.wantIDs("demo:offline")
		if err := w.dock.Adopt("demo"); err != nil || w.device("demo").Trust != ferrule.TrustAdopted {
			t.Errorf("got %v, %+v", err, w.device("demo"))
		}
		if _, m, _ := w.fleet.Lookup("demo"); m == nil || m.Tool("look") == nil {
			t.Error("what it can do was lost")
		}
		w.stop()
	})
}

func TestNames(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		one, two := &board{address: "a1", model: "Demo"}, &board{address: "a2", model: "Demo"}
		gateway := &board{address: "a3", model: "Gateway"}
		nameless := &board{address: "a4", model: "日本"}
		w := open(t, dir)
		w.transport.see("1", found(one))
		w.transport.see("2", found(two))
		w.transport.see("3", found(gateway))
		w.transport.see("4", found(nameless))
		w.wantIDs("demo:online demo-2c3a:online device:online gateway-f46d:online")
		w.stop()

		w = open(t, dir) // in the other order, after a restart
		w.transport.see("2", found(two))
		w.transport.see("1", found(one))
		if w.device("demo").Address != "a1" || w.device("demo-2c3a").Address != "a2" {
			t.Error("an ID has moved to another board")
		}
		w.stop()

		w = open(t, dir) // the owner gives a name
		w.transport.see("2", named(two, "robot"))
		w.wantIDs("demo:offline device:offline gateway-f46d:offline robot:online")
		w.stop()

		w = open(t, dir) // and gives it to another board
		w.transport.see("1", named(one, "robot"))
		w.wantIDs("device:offline gateway-f46d:offline robot:online")
		if w.device("robot").Address != "a1" {
			t.Error("the owner's name did not move")
		}
		w.transport.see("2", found(two))
		w.wantIDs("demo:online device:offline gateway-f46d:offline robot:online")
		w.stop()
	})
}

func TestConfiguredNameOfOnlineDevice(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		one, two := &board{address: "a1", model: "demo"}, &board{address: "a2", model: "demo"}
		w := open(t, dir)
		w.transport.see("1", found(one))
		w.wantIDs("demo:online")
		w.transport.see("2", named(two, "demo"))
		time.Sleep(time.Second)
		if w.device("demo").Address != "a2" {
			t.Errorf("demo is %+v", w.device("demo"))
		}
		w.wantIDs("demo:online demo-f55f:online")
	})
}

func TestReconnect(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", named(b, "robot"))
		time.Sleep(time.Hour)
		lost := time.Now()
		b.hangUp()
		synctest.Wait()
		if dev := w.device("robot"); dev.State != ferrule.StateOffline || !dev.Since.Equal(lost) || dev.Reason != "the board hung up" {
			t.Errorf("got %+v", dev)
		}
		if _, err := w.call(t.Context(), ferrule.Agent, "robot", "look"); ferrule.AsError(err).Code != ferrule.Offline {
			t.Errorf("got %v", err)
		}
		if _, m, _ := w.fleet.Lookup("robot"); m == nil {
			t.Error("what it can do was lost with it")
		}
		time.Sleep(250 * time.Millisecond)
		w.wantIDs("robot:online")
		if _, err := w.call(t.Context(), ferrule.Agent, "robot", "look"); err != nil {
			t.Errorf("got %v", err)
		}
	})
}

// TestPanic checks that a device that causes a panic affects no other.
func TestPanic(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		bad := &board{address: "a1", model: "bad", panics: true}
		w.transport.see("1", named(bad, "bad"))
		w.transport.see("2", named(&board{address: "a2", model: "good"}, "good"))
		w.wantIDs("bad:offline good:online")
		if reason := w.device("bad").Reason; reason != "internal error: a fault" {
			t.Errorf("the reason is %q", reason)
		}
		bad.set(func(b *board) { b.panics = false })
		time.Sleep(time.Second)
		w.wantIDs("bad:online good:online")
	})
}

// TestJitter checks that devices lost together do not reconnect together.
func TestJitter(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		var mu sync.Mutex
		second := make(map[time.Duration]int)
		for i := range 50 {
			b := &board{address: fmt.Sprint("a", i)}
			s := found(b)
			start := time.Now()
			opens := 0
			s.Open = func(context.Context) (transport.Link, error) {
				mu.Lock()
				defer mu.Unlock()
				if opens++; opens == 2 {
					second[time.Since(start)]++
				}
				return nil, errors.New("off")
			}
			w.transport.see(b.address, s)
		}
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		for after, n := range second {
			if after < 125*time.Millisecond || after > 250*time.Millisecond || n > 5 {
				t.Errorf("%d boards were tried again after %v", n, after)
			}
		}
		if len(second) < 40 {
			t.Errorf("50 boards were tried again at %d moments", len(second))
		}
	})
}

// TestMaxGreetings checks the maximum number of concurrent greetings.
func TestMaxGreetings(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir, func(p *dock.Parts) { p.Config.Greetings = 3 })
		var mu sync.Mutex
		now, most := 0, 0
		for i := range 10 {
			b := &board{address: fmt.Sprint("a", i), model: "demo"}
			s := found(b)
			s.Adopted = true
			s.Open = func(ctx context.Context) (transport.Link, error) {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				now--
				mu.Unlock()
				return b.open(ctx)
			}
			w.transport.see(b.address, s)
		}
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if most != 3 || len(w.fleet.Devices()) != 10 {
			t.Errorf("%d at once, %s", most, w.ids())
		}
	})
}

// TestOfflineSinceIsStored checks that a restart keeps the time.
func TestOfflineSinceIsStored(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", named(b, "robot"))
		b.set(func(b *board) { b.refuse = errors.New("off") })
		lost := time.Now()
		b.hangUp()
		time.Sleep(time.Hour)
		w.stop()
		w = open(t, dir)
		if dev := w.device("robot"); !dev.Since.Equal(lost) || dev.Reason != "off" {
			t.Errorf("offline since %v because of %q, want %v", dev.Since, dev.Reason, lost)
		}
	})
}

// TestFlapping checks that a short session does not reset the back-off.
func TestFlapping(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", named(b, "robot"))
		for range 3600 {
			if w.device("robot").State == ferrule.StateOnline {
				b.hangUp()
			}
			time.Sleep(100 * time.Millisecond)
		}
		if b.get(&b.opened) > 60 {
			t.Errorf("opened %d times in six minutes", b.get(&b.opened))
		}
	})
}

func TestChangedKind(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", named(b, "robot"))
		before := w.device("robot").Kind
		manifests := func() int {
			files, _ := filepath.Glob(filepath.Join(dir, "manifests", "*.json"))
			return len(files)
		}

		shorter := usual("demo")
		shorter.Tools = shorter.Tools[:2]
		b.set(func(b *board) { b.manifest = shorter })
		b.hangUp()
		time.Sleep(time.Second)
		dev := w.device("robot")
		if dev.Kind == before || dev.Previous != before || dev.Changed.IsZero() {
			t.Errorf("got %+v", dev)
		}
		if len(dev.Notes) != 1 || !strings.HasPrefix(dev.Notes[0], "the list shrank from 3 tools and 0 pins to 2 and 0") {
			t.Errorf("notes are %q", dev.Notes)
		}
		if n := manifests(); n != 3 {
			t.Errorf("%d manifests are kept, want those accepted, offered and in use", n)
		}

		newer := usual("demo")
		newer.Version = "2"
		b.set(func(b *board) { b.manifest = newer })
		b.hangUp()
		time.Sleep(time.Second)
		if dev := w.device("robot"); dev.Version != "2" || dev.Notes != nil {
			t.Errorf("got %+v", dev)
		}
	})
}

// TestManyKinds checks that manifests of a board are removed, except for what was accepted
// and what it offers now.
func TestManyKinds(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", named(b, "robot"))
		for i := range 50 {
			m := usual("demo")
			m.Version = fmt.Sprint(i)
			b.set(func(b *board) { b.manifest = m })
			b.hangUp()
			time.Sleep(time.Minute)
		}
		files, err := filepath.Glob(filepath.Join(dir, "manifests", "*"))
		if err != nil || len(files) != 2 || w.device("robot").Version != "49" {
			t.Errorf("%d manifests, %v, %+v", len(files), err, w.device("robot"))
		}
	})
}

func TestGoneAndBack(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		one, two := &board{address: "a1", model: "one"}, &board{address: "a2", model: "two"}
		w.transport.see("g", named(one, "one"), named(two, "two"))
		w.transport.see("other")
		w.wantIDs("one:online two:online")
		w.transport.see("g", named(two, "two"))
		w.wantIDs("one:offline two:online")
		if dev := w.device("one"); dev.Reason != "no longer in reach" {
			t.Errorf("got %+v", dev)
		}
		time.Sleep(time.Hour)
		if one.get(&one.opened) != 1 || one.get(&one.links) != 0 {
			t.Errorf("opened %d times, %d links are open", one.get(&one.opened), one.get(&one.links))
		}
		w.transport.see("g", named(one, "one"), named(two, "two"))
		w.wantIDs("one:online two:online")
		if two.get(&two.opened) != 1 {
			t.Errorf("a board that stayed was opened %d times", two.get(&two.opened))
		}
		w.transport.see("g")
		w.wantIDs("one:offline two:offline")
	})
}

func TestExpectedAndGone(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		w.transport.see("g", found(&board{address: "a1", refuse: errors.New("busy")}))
		w.wantIDs("a1:offline")
		w.transport.see("g")
		w.wantIDs("") // it was never reached, so it is not stored
	})
}

func TestReplugged(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		s := named(b, "robot")
		w.transport.see("g", s)
		for i := uint64(2); i < 20; i++ {
			s.Instance = i
			w.transport.see("g", s)
			w.wantIDs("robot:online")
			if b.get(&b.opened) != int(i) || b.get(&b.links) != 1 {
				t.Fatalf("opened %d times, %d links are open", b.get(&b.opened), b.get(&b.links))
			}
		}
	})
}

// TestRepluggedWhileWaiting checks that a new instance is connected at once,
// whatever the back-off.
func TestRepluggedWhileWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo", refuse: errors.New("no")}
		s := named(b, "robot")
		w.transport.see("g", s)
		time.Sleep(time.Hour)
		b.set(func(b *board) { b.refuse = nil })
		s.Instance = 2
		w.transport.see("g", s)
		w.wantIDs("robot:online")
	})
}

func TestForget(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", found(b))
		if err := w.dock.Adopt("demo"); err != nil {
			t.Fatal(err)
		}
		if err := w.dock.Forget("demo"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.wantIDs("demo:online") // it is in sight and treated as new
		if dev := w.device("demo"); dev.Trust != ferrule.TrustPending || dev.State != ferrule.StateOnline {
			t.Errorf("got %+v", dev)
		}
		w.transport.see("g")
		if err := w.dock.Forget("demo"); err != nil {
			t.Fatal(err)
		}
		w.wantIDs("")
		if err := w.dock.Forget("demo"); ferrule.AsError(err).Code != ferrule.NotFound {
			t.Errorf("got %v", err)
		}
		w.stop()
		w = open(t, dir)
		w.wantIDs("")
		w.stop()
	})
}

func TestForgetWhileWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", found(b))
		b.set(func(b *board) { b.refuse = errors.New("no") })
		b.hangUp()
		time.Sleep(time.Hour)
		b.set(func(b *board) { b.refuse = nil })
		if err := w.dock.Forget("demo"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.wantIDs("demo:online")
	})
}

// TestForgetWhileOffline checks that a forgotten offline device is published like a
// new one.
func TestForgetWhileOffline(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", named(b, "robot"))
		b.set(func(b *board) { b.refuse = errors.New("off") })
		b.hangUp()
		time.Sleep(time.Second)
		if err := w.dock.Forget("robot"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		w.wantIDs("robot:offline")
		if dev := w.device("robot"); dev.Kind != "" || dev.Reason != "off" {
			t.Errorf("got %+v", dev)
		}
	})
}

// TestConfiguredNameIsReserved checks that a configured name of an absent board is
// not given to another.
func TestConfiguredNameIsReserved(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		stranger := &board{address: "a2", model: "robot"}
		w.transport.see("2", found(stranger))
		w.wantIDs("robot:online")
		mine := &board{address: "a1", model: "demo", refuse: errors.New("no route")}
		w.transport.see("1", named(mine, "robot")) // the configuration counts at once
		time.Sleep(time.Second)
		w.wantIDs("robot:offline robot-2c3a:online")
		if w.device("robot").Address != "a1" {
			t.Errorf("robot is at %s", w.device("robot").Address)
		}
		w.transport.see("3", found(&board{address: "a3", model: "robot"}))
		w.wantIDs("robot:offline robot-2c3a:online robot-f46d:online")
		mine.set(func(b *board) { b.refuse = errors.New("another reason") })
		time.Sleep(time.Minute)
		w.transport.see("1") // gone and not stored
		w.wantIDs("robot-2c3a:online robot-f46d:online")
	})
}

func TestExchangedNames(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		one, two := &board{address: "a1", model: "one"}, &board{address: "a2", model: "two"}
		w := open(t, dir)
		w.transport.see("1", named(one, "alpha"))
		w.transport.see("2", named(two, "beta"))
		w.stop()
		w = open(t, dir)
		w.transport.see("1", named(one, "beta"))
		w.transport.see("2", named(two, "alpha"))
		time.Sleep(time.Minute)
		w.wantIDs("alpha:online beta:online")
		if w.device("alpha").Address != "a2" || w.device("beta").Address != "a1" {
			t.Errorf("alpha is at %s, beta at %s", w.device("alpha").Address, w.device("beta").Address)
		}
	})
}

// TestNamesOnFullDisk checks that two boards never share an ID, even if nothing can
// be written.
func TestNamesOnFullDisk(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		manifests := filepath.Join(dir, "manifests")
		if err := errors.Join(os.RemoveAll(manifests), os.WriteFile(manifests, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		w.transport.see("1", found(&board{address: "a1", model: "demo"}))
		w.transport.see("2", found(&board{address: "a2", model: "demo"}))
		w.wantIDs("demo:online demo-2c3a:online")
	})
}

// TestRandomChanges makes random changes to a few boards and checks that fleet and
// store agree with them afterwards.
func TestRandomChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for seed := range uint64(300) {
		bubble(t, func(t *testing.T, dir string) {
			w := open(t, dir)
			boards, instances := make([]*board, 4), make([]uint64, 4)
			for i := range boards {
				boards[i] = &board{address: fmt.Sprint("a", i), model: fmt.Sprint("m", i%2)}
			}
			sight := func(i int) {
				s := found(boards[i])
				s.Instance = instances[i]
				w.transport.updates <- func(update func(string, []transport.Sighting)) { update(s.Address, []transport.Sighting{s}) }
			}
			rng := rand.New(rand.NewPCG(seed, 1))
			for step := range 60 {
				i := rng.IntN(len(boards))
				shake(w, boards[i], rng, step, func() { sight(i) }, func() { instances[i]++ })
				if rng.IntN(3) == 0 {
					time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
				}
			}
			for i, b := range boards {
				b.set(func(b *board) { b.refuse = nil })
				sight(i)
			}
			time.Sleep(2 * time.Minute)
			at := make(map[string]bool)
			for _, dev := range w.fleet.Devices() {
				kept, ok := w.store.At(dev.Address)
				if at[dev.Address] || dev.State != ferrule.StateOnline || !ok || kept.ID != dev.ID || kept.Trust != dev.Trust {
					t.Errorf("seed %d: %+v, remembered as %+v", seed, dev, kept)
				}
				at[dev.Address] = true
				if _, err := w.call(t.Context(), ferrule.Agent, dev.ID, "look"); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
			if len(at) != len(boards) {
				t.Errorf("seed %d: there are %s", seed, w.ids())
			}
			w.stop()
			for _, b := range boards {
				if n := b.get(&b.links); n != 0 {
					t.Errorf("seed %d: %d links are left", seed, n)
				}
			}
		})
	}
}

// shake makes one random change.
func shake(w *world, b *board, rng *rand.Rand, step int, sight, replug func()) {
	switch rng.IntN(10) {
	case 0:
		sight()
	case 1:
		w.transport.updates <- func(update func(string, []transport.Sighting)) { update(b.address, nil) }
	case 2:
		replug()
		sight()
	case 3:
		b.set(func(b *board) {
			if b.cut != nil {
				b.cut()
			}
		})
	case 4:
		for _, d := range w.fleet.Devices() {
			if d.Address == b.address {
				go w.dock.Forget(d.ID)
			}
		}
	case 5:
		for _, d := range w.fleet.Devices() {
			go w.dock.Adopt(d.ID)
		}
	case 9:
		for _, d := range w.fleet.Devices() {
			if d.Address == b.address {
				go w.dock.Release(context.Background(), d.ID, time.Duration(rng.IntN(1000))*time.Millisecond)
			}
		}
	case 6:
		b.set(func(b *board) { b.refuse = fmt.Errorf("off %d", step) })
	case 7:
		b.set(func(b *board) { b.refuse = nil })
	case 8:
		m := usual(b.model)
		m.Version = fmt.Sprint(rng.IntN(3))
		b.set(func(b *board) { b.manifest = m })
	}
}

// TestSharedManifest checks that devices of one Kind share their effective manifest,
// unless one has an overlay of its own.
func TestSharedManifest(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		for i, name := range []string{"one", "two", "special"} {
			w.transport.see(name, named(&board{address: fmt.Sprint("a", i), model: "demo"}, name))
		}
		_, one, _ := w.fleet.Lookup("one")
		_, two, _ := w.fleet.Lookup("two")
		_, special, _ := w.fleet.Lookup("special")
		if one != two {
			t.Error("two devices of one Kind have two manifests")
		}
		if special == one || special.Tools[0].Text != "special" || one.Tools[0].Text != "" {
			t.Error("an overlay for one device applies to another")
		}
	})
}

func TestProtocolsInTurn(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		s := named(b, "robot")
		s.Protocols = []string{"unheard", "testProtocol"}
		w.transport.see("1", s)
		w.wantIDs("robot:online")

		other := &board{address: "a2", alien: fmt.Errorf("%w: really", protocol.ErrNotMine)}
		s = named(other, "other")
		s.Protocols = []string{"testProtocol", "testProtocol"}
		w.transport.see("2", s)
		if other.get(&other.greeted) != 2 {
			t.Errorf("greeted %d times, want once per protocol", other.get(&other.greeted))
		}
		broken := &board{address: "a3", alien: errors.New("the line broke")}
		s = named(broken, "broken")
		s.Protocols = []string{"testProtocol", "testProtocol"}
		w.transport.see("3", s)
		if broken.get(&broken.greeted) != 1 {
			t.Errorf("greeted %d times, want once: the error was not ErrNotMine", broken.get(&broken.greeted))
		}
	})
}

func TestTrace(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		links := make(chan *boardLink, 2)
		s := named(b, "robot")
		s.Open = func(ctx context.Context) (transport.Link, error) {
			l, err := b.open(ctx)
			links <- l.(*boardLink)
			return l, err
		}
		w.transport.see("g", s)
		if err := w.dock.Trace(t.Context(), "nonsense", nil); ferrule.AsError(err).Code != ferrule.NotFound {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var seen []string
		ended := make(chan error, 1)
		go func() {
			ended <- w.dock.Trace(ctx, "robot", func(tr ferrule.Trace) { seen = append(seen, tr.Direction+" "+tr.Data+tr.Note) })
		}()
		synctest.Wait()
		link := <-links
		link.Send(t.Context(), transport.Message{Data: []byte("over\x00")})
		b.hangUp()
		link = <-links // the next link is shown too
		synctest.Wait()
		link.Send(t.Context(), transport.Message{Data: []byte("and {\"out\"}")})
		transport.Note(link, "dropped")
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("got %v", err)
		}
		link.Send(t.Context(), transport.Message{Data: []byte("unseen")})
		if got := strings.Join(seen, "|"); got != `out over\x00|note disconnected: the board hung up|out and {"out"}|note dropped` {
			t.Errorf("seen %q", got)
		}
	})
}

func TestConnectorFails(t *testing.T) {
	dir := t.TempDir()
	store, err := dock.OpenStore(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	d := dock.New(dock.Parts{
		Config: dock.DefaultConfig(), Connectors: []transport.Connector{failing{}, testTransport{}}, Overlays: overlay.NewCache(plain{}),
		Fleet: fleet.New(nil), Store: store, Log: slog.New(slog.DiscardHandler),
	})
	if err := d.Run(t.Context()); err == nil || err.Error() != "the broker is gone" {
		t.Errorf("got %v", err)
	}
}

type failing struct{}

func (failing) Watch(context.Context, func(string, []transport.Sighting)) error {
	return errors.New("the broker is gone")
}

func TestStoreAfterCrash(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		w.transport.see("g", named(&board{address: "a1", model: "demo"}, "robot"))
		log, err := os.ReadFile(filepath.Join(dir, "devices.jsonl")) // as after a power failure
		if err != nil {
			t.Fatal(err)
		}
		w.stop()
		if err := os.WriteFile(filepath.Join(dir, "devices.jsonl"), append(log, `{"device":{"id":"tor`...), 0o600); err != nil {
			t.Fatal(err)
		}
		w = open(t, dir)
		w.wantIDs("robot:offline")
		if dev := w.device("robot"); dev.Reason != "the gateway stopped unexpectedly" || dev.Since.IsZero() {
			t.Errorf("got %+v", dev)
		}
		if _, m, _ := w.fleet.Lookup("robot"); m == nil || m.Tool("move") == nil {
			t.Error("its manifest was not remembered")
		}
	})
}

// TestStoreStaysSmall checks that a device that comes and goes does not fill the
// disk.
func TestStoreStaysSmall(t *testing.T) {
	dir := t.TempDir()
	store, err := dock.OpenStore(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for i := range 10000 {
		dev := &ferrule.Device{ID: fmt.Sprint("d", i%3), Address: fmt.Sprint("a", i%3), Kind: "0a", State: ferrule.StateOffline, Since: time.Unix(int64(i), 0)}
		if err := store.Keep(dev, usual("demo")); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "devices.jsonl"))
	if err != nil || info.Size() > 300<<10 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	if dev, ok := store.Get("d0"); !ok || dev.Since.Unix() != 9999 {
		t.Errorf("got %+v", dev)
	}
}

// TestAdoptFirst checks that a board that must not be opened unasked is listed, and opened
// when it is adopted.
func TestAdoptFirst(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		s := found(b)
		s.AdoptFirst = "opening it may restart it"
		w.transport.see("g", s)
		time.Sleep(time.Hour)
		w.wantIDs("a1:offline")
		if dev := w.device("a1"); dev.Trust != ferrule.TrustPending || dev.Reason != s.AdoptFirst+"; to connect it, run `ferrule adopt a1`" || b.get(&b.opened) != 0 {
			t.Errorf("got %+v, opened %d times", dev, b.get(&b.opened))
		}
		if err := w.dock.Adopt("a1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.wantIDs("demo:online")
		if dev := w.device("demo"); dev.Trust != ferrule.TrustAdopted || dev.Previous != "" {
			t.Errorf("got %+v", dev)
		}
		w.transport.see("g")
		synctest.Wait()
		w.wantIDs("demo:offline")
		w.stop()

		w = open(t, dir)
		w.transport.see("g", s)
		synctest.Wait()
		w.wantIDs("demo:online")
		if err := w.dock.Forget("demo"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.wantIDs("a1:offline")
	})
}

// TestAdoptBeforeConnect checks that a device can be adopted before it can be
// opened.
func TestAdoptBeforeConnect(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo", refuse: errors.New("in use")}
		s := found(b)
		s.AdoptFirst = "opening it may restart it"
		w.transport.see("g", s)
		if err := w.dock.Adopt("a1"); err != nil {
			t.Fatal(err)
		}
		w.stop()
		w = open(t, dir)
		w.wantIDs("a1:offline")
		b.set(func(b *board) { b.refuse = nil })
		w.transport.see("g", s)
		synctest.Wait()
		w.wantIDs("demo:online")
		if err := w.dock.Adopt("a1"); ferrule.AsError(err).Code != ferrule.NotFound {
			t.Errorf("got %v", err)
		}
	})
}

// TestRelease checks that a released device is left alone and reconnected in time,
// and that calls are refused meanwhile.
func TestRelease(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		s := named(b, "robot")
		w.transport.see("g", s)
		if err := w.dock.Release(t.Context(), "robot", 2*time.Minute); err != nil {
			t.Fatal(err)
		}
		if n := b.get(&b.links); n != 0 {
			t.Error("it is open still")
		}
		w.wantIDs("robot:released")
		opened := b.get(&b.opened)
		_, err := w.call(t.Context(), ferrule.Agent, "robot", "read")
		if e := ferrule.AsError(err); e.Code != ferrule.Busy || e.MayHaveRun() || !strings.Contains(e.Message, "robot is released for other programs until") {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Minute)
		w.transport.see("g")
		w.wantIDs("robot:offline")
		s.Instance++
		w.transport.see("g", s)
		w.wantIDs("robot:released")
		if b.get(&b.opened) != opened {
			t.Error("it was opened while it was released")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		w.wantIDs("robot:online")

		// The release can be ended early.
		if err := w.dock.Release(t.Context(), "robot", time.Hour); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.wantIDs("robot:released")
		if err := w.dock.Release(t.Context(), "robot", 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.wantIDs("robot:online")

		// Ending a release that does not exist has no effect.
		opened = b.get(&b.opened)
		if err := w.dock.Release(t.Context(), "robot", 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if b.get(&b.opened) != opened {
			t.Error("it was opened again")
		}

		if err := w.dock.Release(t.Context(), "nobody", time.Minute); ferrule.AsError(err).Code != ferrule.NotFound {
			t.Errorf("got %v", err)
		}
		w.transport.see("g")
		if err := w.dock.Release(t.Context(), "robot", time.Minute); ferrule.AsError(err).Code != ferrule.Offline {
			t.Errorf("got %v", err)
		}
	})
}

// TestNameMoves checks that a configured name moves to another board while both stay
// in sight.
func TestNameMoves(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		called := make(map[string]int)
		board := func(address, model string) *board {
			return &board{address: address, model: model, invoke: func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
				called[address]++
				return &ferrule.Result{}, nil
			}}
		}
		x, y := board("x", "mx"), board("y", "my")
		w.transport.see("g", named(x, "robot"), found(y))
		synctest.Wait()
		w.wantIDs("my:online robot:online")
		w.transport.see("g", found(x), named(y, "robot"))
		time.Sleep(time.Second)
		w.wantIDs("mx:online robot:online")
		if _, err := w.call(t.Context(), ferrule.Person, "robot", "look"); err != nil || called["y"] != 1 || called["x"] != 0 {
			t.Errorf("%v; called %v", err, called)
		}
		if dev := w.device("mx"); dev.Trust != ferrule.TrustPending {
			t.Errorf("got %+v", dev)
		}
	})
}

// TestAbsent checks that a configured device that is absent is listed under its
// name.
func TestAbsent(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "usb", model: "demo"}
		absent := transport.Sighting{Address: "/dev/port", Instance: 1, Name: "robot", Adopted: true, Absent: "there is no port"}
		w.transport.see("g", absent)
		time.Sleep(time.Hour)
		w.wantIDs("robot:offline")
		if e := w.device("robot").OfflineError(); e.Code != ferrule.Offline || !strings.Contains(e.Message, "there is no port") {
			t.Errorf("got %v", e)
		}
		w.transport.see("g", named(b, "robot"))
		synctest.Wait()
		w.wantIDs("robot:online")
		w.stop()

		w = open(t, dir)
		w.transport.see("g", absent)
		synctest.Wait()
		w.wantIDs("robot:offline")
		if dev := w.device("robot"); dev.Kind == "" || dev.Address != "usb" {
			t.Errorf("got %+v", dev)
		}
		w.transport.see("g", named(b, "robot"))
		synctest.Wait()
		w.wantIDs("robot:online")
	})
}

// TestReleasedPlace checks that a board that reappears with another address at a
// released place is left alone: it is being flashed.
func TestReleasedPlace(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		sketch, loader := &board{address: "sketch", model: "demo"}, &board{address: "loader", model: "boot"}
		at := func(b *board, name string) transport.Sighting {
			s := named(b, name)
			s.Location = "1-1"
			return s
		}
		w.transport.see("g", at(sketch, "robot"))
		if err := w.dock.Release(t.Context(), "robot", time.Minute); err != nil {
			t.Fatal(err)
		}
		w.transport.see("g", at(loader, ""))
		time.Sleep(30 * time.Second)
		w.wantIDs("loader:released robot:offline")
		if n := loader.get(&loader.opened); n != 0 {
			t.Errorf("it was opened %d times", n)
		}
		w.transport.see("g", at(sketch, "robot"))
		time.Sleep(31 * time.Second)
		w.wantIDs("robot:online")
	})
}

// TestSlowClose checks that a link that is slow to close does not block others.
func TestSlowClose(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		slow, quick := &board{address: "a1", model: "slow"}, &board{address: "a2", model: "quick"}
		slow.set(func(b *board) { b.closing = time.Minute })
		w.transport.see("g", found(slow))
		slow.hangUp()
		time.Sleep(time.Second)
		w.transport.see("g", found(slow), found(quick))
		synctest.Wait()
		if dev := w.device("quick"); dev.State != ferrule.StateOnline {
			t.Errorf("got %+v", dev)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.dock.Release(t.Context(), "slow", time.Hour) }()
		time.Sleep(30 * time.Second)
		select {
		case <-ended:
			t.Error("the port is not free yet")
		default:
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestUnknownTools checks the note about a tool that only an overlay knows.
func TestUnknownTools(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", named(b, "special"))
		b.hangUp()
		time.Sleep(time.Second)
		if notes := w.device("special").Notes; !slices.Equal(notes, []string{"it cannot fly"}) {
			t.Errorf("got %q", notes)
		}
	})
}

// TestEndReleaseByPlace checks that a release by place is ended by place.
func TestEndReleaseByPlace(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		one, two := &board{address: "a1", model: "one"}, &board{address: "a2", model: "two"}
		var all []transport.Sighting
		for _, b := range []*board{one, two} {
			s := found(b)
			s.Location = "1-1"
			all = append(all, s)
		}
		w.transport.see("g", all...)
		synctest.Wait()
		if err := w.dock.Release(t.Context(), "one", time.Hour); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.wantIDs("one:released two:released")
		if err := w.dock.Release(t.Context(), "two", 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.wantIDs("one:online two:online")
	})
}

// TestConfigurationChange checks that a changed configuration of a board in sight
// counts at once.
func TestConfigurationChange(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		s := found(b)
		w.transport.see("g", s)
		synctest.Wait()
		s.Adopted = true
		w.transport.see("g", s)
		synctest.Wait()
		if dev := w.device("demo"); dev.Trust != ferrule.TrustAdopted || dev.State != ferrule.StateOnline {
			t.Errorf("got %+v", dev)
		}
		b.set(func(b *board) { b.refuse = errors.New("in use") })
		b.hangUp()
		time.Sleep(time.Minute)
		s.Name = "robot"
		w.transport.see("g", s)
		synctest.Wait()
		w.wantIDs("robot:offline")
		if dev := w.device("robot"); dev.Kind == "" || dev.Trust != ferrule.TrustAdopted {
			t.Errorf("got %+v", dev)
		}
	})
}

// TestAbsentText checks that the reason for an absence may change.
func TestAbsentText(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		absent := transport.Sighting{Address: "/dev/port", Instance: 1, Name: "robot", Absent: "there is none"}
		w.transport.see("g", absent)
		synctest.Wait()
		absent.Absent = "there is another"
		w.transport.see("g", absent)
		synctest.Wait()
		if dev := w.device("robot"); dev.Reason != "there is another" {
			t.Errorf("got %+v", dev)
		}
		if err := w.dock.Release(t.Context(), "robot", time.Hour); ferrule.AsError(err).Code != ferrule.Offline {
			t.Errorf("got %v", err)
		}
		if err := w.dock.Adopt("robot"); ferrule.AsError(err).Code != ferrule.Offline {
			t.Errorf("got %v", err)
		}
	})
}

// TestNoLongerAdoptFirst checks that a waiting board is opened when it no longer needs
// adoption.
func TestNoLongerAdoptFirst(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		s := found(b)
		w.transport.see("g", s)
		if err := w.dock.Release(t.Context(), "demo", time.Minute); err != nil {
			t.Fatal(err)
		}
		s.AdoptFirst = "it may restart"
		w.transport.see("g", s)
		time.Sleep(2 * time.Minute)
		w.wantIDs("demo:offline")
		s.AdoptFirst = ""
		w.transport.see("g", s)
		synctest.Wait()
		w.wantIDs("demo:online")
	})
}

// TestLogged checks that a lost and a reconnected device are each logged once, with
// the reason.
func TestLogged(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", named(b, "robot"))
		synctest.Wait()
		b.hangUp()
		time.Sleep(time.Second)
		w.transport.see("g")
		synctest.Wait()
		for text, want := range map[string]int{"device online": 2, "device offline": 2, "the board hung up": 1, "no longer in reach": 1} {
			if n := w.logged.count(text); n != want {
				t.Errorf("%q was logged %d times, want %d", text, n, want)
			}
		}
	})
}
