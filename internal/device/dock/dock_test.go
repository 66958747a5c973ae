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
	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/fleet"
)

// board is a peer whose every move is the test's.
type board struct {
	address string
	model   string

	mu       sync.Mutex
	refuse   error             // Open fails with it
	alien    error             // Greet fails with it
	manifest *ferrule.Manifest // what it says; nil for a usual one
	links    int               // open links
	opened   int               // how often it was opened
	greeted  int
	closing  time.Duration          // how long a link takes to close
	panics   bool                   // whoever greets it
	lingers  bool                   // its session leaves the link to be closed by others
	ended    int                    // how many sessions have ended
	cut      func()                 // ends the running session
	renews   chan *ferrule.Manifest // what it says of itself from then on
	words    chan string            // what it says by itself
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
	go func() { // the far end reads, and is closed with the link
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

// tongue is the grammar of the boards of a test.
type tongue struct{}

func (tongue) Greet(_ context.Context, link transport.Link) (protocol.Session, *ferrule.Manifest, error) {
	b := link.(*boardLink).board
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

// Changed implements dialect.Changer.
func (s *session) Changed(fn func(*ferrule.Manifest)) { s.renew = fn }

// Notify implements dialect.Notifier.
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
		case params := <-s.board.words: // never, of most boards
			s.notify("state", json.RawMessage(params))
		case m := <-s.board.renews: // likewise
			s.renew(m)
		}
	}
}

// shore is a medium on which the test sees what it wants.
type shore struct {
	updates chan func(update func(string, []transport.Sighting))
}

func (s shore) Watch(ctx context.Context, update func(string, []transport.Sighting)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case do := <-s.updates:
			do(update)
		}
	}
}

func (s shore) see(group string, all ...transport.Sighting) {
	s.updates <- func(update func(string, []transport.Sighting)) { update(group, all) }
	synctest.Wait()
}

// plain lays nothing on but effects, and one thing on the device "special".
type plain struct{}

func (plain) Lay(_ string, _ ferrule.Kind, device string, m *ferrule.Manifest) *ferrule.Manifest {
	laid := *m
	laid.Tools = slices.Clone(m.Tools)
	for i := range laid.Tools {
		if laid.Tools[i].Effect == "" {
			laid.Tools[i].Effect = ferrule.Changes
		}
		if device == "special" {
			laid.Tools[i].Text = "special"
		}
	}
	return &laid
}

func (plain) Names(device string) bool { return device == "special" }

func (plain) Misses(_ string, _ ferrule.Kind, device string, m *ferrule.Manifest) []string {
	if device == "special" && m.Tool("fly") == nil {
		return []string{"it cannot fly"}
	}
	return nil
}

// world is a dock with all around it.
type world struct {
	t      *testing.T
	dir    string
	shore  shore
	fleet  *fleet.Fleet
	dock   *dock.Dock
	memory *dock.Memory
	logged *logged
	stop   func()
}

// logged is what was logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count tells how often something was logged.
func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// open makes a world on a data directory; it ends with the test, or by stop.
func open(t *testing.T, dir string, change ...func(*dock.Parts)) *world {
	t.Helper()
	logged := &logged{}
	log := slog.New(slog.NewTextHandler(logged, nil))
	memory, err := dock.OpenMemory(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, dir: dir, memory: memory, logged: logged, fleet: fleet.New(nil),
		shore: shore{make(chan func(func(string, []transport.Sighting)))},
	}
	parts := dock.Parts{
		Config: dock.DefaultConfig(), Connectors: []transport.Connector{w.shore}, Dialects: map[string]protocol.Protocol{"tongue": tongue{}},
		Overlays: plain{}, Fleet: w.fleet, Memory: memory, Log: log,
	}
	parts.Config.Waiting = 3
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
		if err := memory.Close(); err != nil {
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
	return transport.Sighting{Address: b.address, Instance: 1, Transport: "shore", Protocols: []string{"tongue"}, Open: b.open}
}

// device returns a device, which must be there.
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

// call calls a tool on the way that the fleet knows.
func (w *world) call(ctx context.Context, role ferrule.Role, id, tool string) (*ferrule.Result, error) {
	w.t.Helper()
	dev, m, _ := w.fleet.Lookup(id)
	return w.fleet.Handle(ctx, &ferrule.Call{
		Device: id, Tool: tool, Principal: ferrule.Principal{Role: role},
		Target: ferrule.Target{Device: dev, Tool: m.Tool(tool)},
	})
}

// bubble runs a test in one, with a data directory.
func bubble(t *testing.T, test func(t *testing.T, dir string)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { test(t, dir) })
}

func TestNamed(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.shore.see("g", named(b, "robot"))
		dev := w.device("robot")
		if dev.State != ferrule.StateOnline || dev.Trust != ferrule.TrustAdopted || dev.Model != "demo" || dev.Kind == "" || dev.Protocol != "tongue" || dev.Transport != "shore" {
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
		w.shore.see("g", named(b, "robot"))
		anonymous := &board{address: "a2:1", alien: fmt.Errorf("%w: it printed", protocol.ErrNotMine)}
		w.shore.see("h", found(anonymous))
		w.wantIDs("a2:1:offline robot:offline")
		if dev := w.device("robot"); dev.Reason != "connection refused" || dev.Kind != "" {
			t.Errorf("got %+v", dev)
		}
		if dev := w.device("a2:1"); !strings.Contains(dev.Reason, "tongue: it does not speak this protocol: it printed") {
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

func TestHeldAndAdopted(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.shore.see("g", found(b))
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

		w = open(t, dir) // it is remembered
		w.wantIDs("demo:offline")
		w.shore.see("g", found(b))
		if dev := w.device("demo"); dev.Trust != ferrule.TrustAdopted || dev.State != ferrule.StateOnline {
			t.Errorf("got %+v", dev)
		}
		w.stop()
	})
}

func TestAdoptedWhileAway(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		w.shore.see("g", found(&board{address: "a1", model: "demo"}))
		w.shore.see("g")
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
		w.shore.see("1", found(one))
		w.shore.see("2", found(two))
		w.shore.see("3", found(gateway))
		w.shore.see("4", found(nameless))
		w.wantIDs("demo:online demo-2c3a:online device:online gateway-f46d:online")
		w.stop()

		w = open(t, dir) // in the other order, after a restart
		w.shore.see("2", found(two))
		w.shore.see("1", found(one))
		if w.device("demo").Address != "a1" || w.device("demo-2c3a").Address != "a2" {
			t.Error("an ID has moved to another board")
		}
		w.stop()

		w = open(t, dir) // the owner gives a name
		w.shore.see("2", named(two, "robot"))
		w.wantIDs("demo:offline device:offline gateway-f46d:offline robot:online")
		w.stop()

		w = open(t, dir) // and gives it to another board
		w.shore.see("1", named(one, "robot"))
		w.wantIDs("device:offline gateway-f46d:offline robot:online")
		if w.device("robot").Address != "a1" {
			t.Error("the owner's name did not move")
		}
		w.shore.see("2", found(two))
		w.wantIDs("demo:online device:offline gateway-f46d:offline robot:online")
		w.stop()
	})
}

func TestOwnerTakesANameThatIsOnline(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		one, two := &board{address: "a1", model: "demo"}, &board{address: "a2", model: "demo"}
		w := open(t, dir)
		w.shore.see("1", found(one))
		w.wantIDs("demo:online")
		w.shore.see("2", named(two, "demo"))
		time.Sleep(time.Second)
		if w.device("demo").Address != "a2" {
			t.Errorf("demo is %+v", w.device("demo"))
		}
		w.wantIDs("demo:online demo-f55f:online")
	})
}

func TestLostAndFound(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.shore.see("g", named(b, "robot"))
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

// TestAFaultOfOurs: a device that makes the gateway panic costs itself.
func TestAFaultOfOurs(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		bad := &board{address: "a1", model: "bad", panics: true}
		w.shore.see("1", named(bad, "bad"))
		w.shore.see("2", named(&board{address: "a2", model: "good"}, "good"))
		w.wantIDs("bad:offline good:online")
		if reason := w.device("bad").Reason; reason != "the gateway failed at it: a fault" {
			t.Errorf("the reason is %q", reason)
		}
		bad.set(func(b *board) { b.panics = false })
		time.Sleep(time.Second)
		w.wantIDs("bad:online good:online")
	})
}

// TestJitter: devices that were lost together do not come back together.
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
			w.shore.see(b.address, s)
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

// TestGreetingsAreBounded: of many devices that come at once, so many are greeted
// as may be.
func TestGreetingsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir, func(p *dock.Parts) { p.Config.Greetings = 3 })
		var mu sync.Mutex
		now, most := 0, 0
		for i := range 10 {
			b := &board{address: fmt.Sprint("a", i), model: "demo"}
			s := found(b)
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
			w.shore.see(b.address, s)
		}
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if most != 3 || len(w.fleet.Devices()) != 10 {
			t.Errorf("%d at once, %s", most, w.ids())
		}
	})
}

// TestOfflineSinceIsRemembered: across a restart.
func TestOfflineSinceIsRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.shore.see("g", named(b, "robot"))
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

// TestFlapping: a session that does not last does not reset the wait.
func TestFlapping(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.shore.see("g", named(b, "robot"))
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

func TestAnotherKind(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.shore.see("g", named(b, "robot"))
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
		if len(dev.Notes) != 1 || !strings.HasPrefix(dev.Notes[0], "its list has shrunk from 3 tools and 0 pins to 2 and 0") {
			t.Errorf("notes are %q", dev.Notes)
		}
		if n := manifests(); n != 1 {
			t.Errorf("%d manifests are kept, and one is in use", n)
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

// TestManyKinds: a board that is another firmware each time leaves no more
// behind than one that is not.
func TestManyKinds(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.shore.see("g", named(b, "robot"))
		for i := range 50 {
			m := usual("demo")
			m.Version = fmt.Sprint(i)
			b.set(func(b *board) { b.manifest = m })
			b.hangUp()
			time.Sleep(time.Minute)
		}
		files, err := filepath.Glob(filepath.Join(dir, "manifests", "*"))
		if err != nil || len(files) != 1 || w.device("robot").Version != "49" {
			t.Errorf("%d manifests, %v, %+v", len(files), err, w.device("robot"))
		}
	})
}

func TestGoneAndBack(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		one, two := &board{address: "a1", model: "one"}, &board{address: "a2", model: "two"}
		w.shore.see("g", named(one, "one"), named(two, "two"))
		w.shore.see("other")
		w.wantIDs("one:online two:online")
		w.shore.see("g", named(two, "two"))
		w.wantIDs("one:offline two:online")
		if dev := w.device("one"); dev.Reason != "it is no longer in reach" {
			t.Errorf("got %+v", dev)
		}
		time.Sleep(time.Hour)
		if one.get(&one.opened) != 1 || one.get(&one.links) != 0 {
			t.Errorf("opened %d times, %d links are open", one.get(&one.opened), one.get(&one.links))
		}
		w.shore.see("g", named(one, "one"), named(two, "two"))
		w.wantIDs("one:online two:online")
		if two.get(&two.opened) != 1 {
			t.Errorf("a board that stayed was opened %d times", two.get(&two.opened))
		}
		w.shore.see("g")
		w.wantIDs("one:offline two:offline")
	})
}

func TestExpectedAndGone(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		w.shore.see("g", found(&board{address: "a1", refuse: errors.New("busy")}))
		w.wantIDs("a1:offline")
		w.shore.see("g")
		w.wantIDs("") // nothing is known of it that is worth keeping
	})
}

func TestReplugged(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		s := named(b, "robot")
		w.shore.see("g", s)
		for i := uint64(2); i < 20; i++ {
			s.Instance = i
			w.shore.see("g", s)
			w.wantIDs("robot:online")
			if b.get(&b.opened) != int(i) || b.get(&b.links) != 1 {
				t.Fatalf("opened %d times, %d links are open", b.get(&b.opened), b.get(&b.links))
			}
		}
	})
}

// TestRepluggedWhileWaiting: a new instance is tried at once, however long the
// wait would be.
func TestRepluggedWhileWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo", refuse: errors.New("no")}
		s := named(b, "robot")
		w.shore.see("g", s)
		time.Sleep(time.Hour)
		b.set(func(b *board) { b.refuse = nil })
		s.Instance = 2
		w.shore.see("g", s)
		w.wantIDs("robot:online")
	})
}

func TestForget(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.shore.see("g", found(b))
		if err := w.dock.Adopt("demo"); err != nil {
			t.Fatal(err)
		}
		if err := w.dock.Forget("demo"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.wantIDs("demo:online") // it is in sight, and is met as if it were new
		if dev := w.device("demo"); dev.Trust != ferrule.TrustPending || dev.State != ferrule.StateOnline {
			t.Errorf("got %+v", dev)
		}
		w.shore.see("g")
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
		w.shore.see("g", found(b))
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

// TestForgetWhileOff: a device that is forgotten while it is off is expected, as
// anything is that was named.
func TestForgetWhileOff(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.shore.see("g", named(b, "robot"))
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

// TestOwnersNameIsNotTaken: a name that the owner gave to a board which is off is
// not given to one that calls itself so.
func TestOwnersNameIsNotTaken(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		stranger := &board{address: "a2", model: "robot"}
		w.shore.see("2", found(stranger))
		w.wantIDs("robot:online")
		mine := &board{address: "a1", model: "demo", refuse: errors.New("no route")}
		w.shore.see("1", named(mine, "robot")) // the owner's word counts at once
		time.Sleep(time.Second)
		w.wantIDs("robot:offline robot-2c3a:online")
		if w.device("robot").Address != "a1" {
			t.Errorf("robot is at %s", w.device("robot").Address)
		}
		w.shore.see("3", found(&board{address: "a3", model: "robot"}))
		w.wantIDs("robot:offline robot-2c3a:online robot-f46d:online")
		mine.set(func(b *board) { b.refuse = errors.New("another reason") })
		time.Sleep(time.Minute)
		w.shore.see("1") // out of sight, nothing is left of it
		w.wantIDs("robot-2c3a:online robot-f46d:online")
	})
}

func TestNamesAreExchanged(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		one, two := &board{address: "a1", model: "one"}, &board{address: "a2", model: "two"}
		w := open(t, dir)
		w.shore.see("1", named(one, "alpha"))
		w.shore.see("2", named(two, "beta"))
		w.stop()
		w = open(t, dir)
		w.shore.see("1", named(one, "beta"))
		w.shore.see("2", named(two, "alpha"))
		time.Sleep(time.Minute)
		w.wantIDs("alpha:online beta:online")
		if w.device("alpha").Address != "a2" || w.device("beta").Address != "a1" {
			t.Errorf("alpha is at %s, beta at %s", w.device("alpha").Address, w.device("beta").Address)
		}
	})
}

// TestNamesAreFreeOfTheDisk: two boards never share an ID, even if nothing can be
// written.
func TestNamesAreFreeOfTheDisk(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		manifests := filepath.Join(dir, "manifests")
		if err := errors.Join(os.RemoveAll(manifests), os.WriteFile(manifests, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		w.shore.see("1", found(&board{address: "a1", model: "demo"}))
		w.shore.see("2", found(&board{address: "a2", model: "demo"}))
		w.wantIDs("demo:online demo-2c3a:online")
	})
}

// TestEverythingAtOnce makes random moves on a few boards. Afterwards what the
// fleet shows is true: every board is there once, online, remembered under its
// ID, and answers.
func TestEverythingAtOnce(t *testing.T) {
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
				w.shore.updates <- func(update func(string, []transport.Sighting)) { update(s.Address, []transport.Sighting{s}) }
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
				kept, ok := w.memory.At(dev.Address)
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

// shake makes one random move.
func shake(w *world, b *board, rng *rand.Rand, step int, sight, replug func()) {
	switch rng.IntN(10) {
	case 0:
		sight()
	case 1:
		w.shore.updates <- func(update func(string, []transport.Sighting)) { update(b.address, nil) }
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

// TestOneManifestAKind: devices of one Kind share it, unless something is laid
// on one of them alone.
func TestOneManifestAKind(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		for i, name := range []string{"one", "two", "special"} {
			w.shore.see(name, named(&board{address: fmt.Sprint("a", i), model: "demo"}, name))
		}
		_, one, _ := w.fleet.Lookup("one")
		_, two, _ := w.fleet.Lookup("two")
		_, special, _ := w.fleet.Lookup("special")
		if one != two {
			t.Error("two devices of one Kind have two manifests")
		}
		if special == one || special.Tools[0].Text != "special" || one.Tools[0].Text != "" {
			t.Error("what is laid on one device is not its alone")
		}
	})
}

func TestDialectsInTurn(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		s := named(b, "robot")
		s.Protocols = []string{"unheard", "tongue"}
		w.shore.see("1", s)
		w.wantIDs("robot:online")

		other := &board{address: "a2", alien: fmt.Errorf("%w: really", protocol.ErrNotMine)}
		s = named(other, "other")
		s.Protocols = []string{"tongue", "tongue"}
		w.shore.see("2", s)
		if other.get(&other.greeted) != 2 {
			t.Errorf("greeted %d times, want once a dialect", other.get(&other.greeted))
		}
		broken := &board{address: "a3", alien: errors.New("the line broke")}
		s = named(broken, "broken")
		s.Protocols = []string{"tongue", "tongue"}
		w.shore.see("3", s)
		if broken.get(&broken.greeted) != 1 {
			t.Errorf("greeted %d times, want once: that was no question of dialect", broken.get(&broken.greeted))
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
		w.shore.see("g", s)
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
		if got := strings.Join(seen, "|"); got != `out over\x00|note not connected: the board hung up|out and {"out"}|note dropped` {
			t.Errorf("seen %q", got)
		}
	})
}

func TestMediumFails(t *testing.T) {
	dir := t.TempDir()
	memory, err := dock.OpenMemory(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	d := dock.New(dock.Parts{
		Config: dock.DefaultConfig(), Connectors: []transport.Connector{failing{}, shore{}}, Overlays: plain{},
		Fleet: fleet.New(nil), Memory: memory, Log: slog.New(slog.DiscardHandler),
	})
	if err := d.Run(t.Context()); err == nil || err.Error() != "the broker is gone" {
		t.Errorf("got %v", err)
	}
}

type failing struct{}

func (failing) Watch(context.Context, func(string, []transport.Sighting)) error {
	return errors.New("the broker is gone")
}

func TestMemoryOfACrash(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		w.shore.see("g", named(&board{address: "a1", model: "demo"}, "robot"))
		log, err := os.ReadFile(filepath.Join(dir, "devices.jsonl")) // as it stands when power fails
		if err != nil {
			t.Fatal(err)
		}
		w.stop()
		if err := os.WriteFile(filepath.Join(dir, "devices.jsonl"), append(log, `{"device":{"id":"tor`...), 0o600); err != nil {
			t.Fatal(err)
		}
		w = open(t, dir)
		w.wantIDs("robot:offline")
		if dev := w.device("robot"); dev.Reason != "the gateway ended" || dev.Since.IsZero() {
			t.Errorf("got %+v", dev)
		}
		if _, m, _ := w.fleet.Lookup("robot"); m == nil || m.Tool("move") == nil {
			t.Error("its manifest was not remembered")
		}
	})
}

// TestMemoryStaysSmall: a device that comes and goes does not fill the disk.
func TestMemoryStaysSmall(t *testing.T) {
	dir := t.TempDir()
	memory, err := dock.OpenMemory(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	for i := range 10000 {
		dev := &ferrule.Device{ID: fmt.Sprint("d", i%3), Address: fmt.Sprint("a", i%3), Kind: "0a", State: ferrule.StateOffline, Since: time.Unix(int64(i), 0)}
		if err := memory.Keep(dev, usual("demo")); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "devices.jsonl"))
	if err != nil || info.Size() > 300<<10 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	if dev, ok := memory.Get("d0"); !ok || dev.Since.Unix() != 9999 {
		t.Errorf("got %+v", dev)
	}
}

// TestShy: what must not be opened unasked is shown, and opened when it is
// adopted; that is remembered.
func TestShy(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		s := found(b)
		s.Shy = "opening it may restart it"
		w.shore.see("g", s)
		time.Sleep(time.Hour)
		w.wantIDs("a1:offline")
		if dev := w.device("a1"); dev.Trust != ferrule.TrustPending || dev.Reason != s.Shy+"; `ferrule adopt a1` opens it" || b.get(&b.opened) != 0 {
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
		w.shore.see("g")
		synctest.Wait()
		w.wantIDs("demo:offline")
		w.stop()

		w = open(t, dir)
		w.shore.see("g", s)
		synctest.Wait()
		w.wantIDs("demo:online")
		if err := w.dock.Forget("demo"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.wantIDs("a1:offline")
	})
}

// TestAdoptedBeforeItWasMet: an owner may adopt what cannot be opened yet.
func TestAdoptedBeforeItWasMet(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo", refuse: errors.New("in use")}
		s := found(b)
		s.Shy = "opening it may restart it"
		w.shore.see("g", s)
		if err := w.dock.Adopt("a1"); err != nil {
			t.Fatal(err)
		}
		w.stop()
		w = open(t, dir)
		w.wantIDs("a1:offline")
		b.set(func(b *board) { b.refuse = nil })
		w.shore.see("g", s)
		synctest.Wait()
		w.wantIDs("demo:online")
		if err := w.dock.Adopt("a1"); ferrule.AsError(err).Code != ferrule.NotFound {
			t.Errorf("got %v", err)
		}
	})
}

// TestRelease: a device that is released is left alone, and taken back in time;
// that it goes and comes meanwhile changes nothing.
func TestRelease(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		s := named(b, "robot")
		w.shore.see("g", s)
		if err := w.dock.Release(t.Context(), "robot", 2*time.Minute); err != nil {
			t.Fatal(err)
		}
		if n := b.get(&b.links); n != 0 {
			t.Error("it is open still")
		}
		w.wantIDs("robot:released")
		opened := b.get(&b.opened)
		_, err := w.call(t.Context(), ferrule.Agent, "robot", "read")
		if e := ferrule.AsError(err); e.Code != ferrule.Busy || e.MayHaveRun() || !strings.Contains(e.Message, "robot was released for other programs until") {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Minute)
		w.shore.see("g")
		w.wantIDs("robot:offline")
		s.Instance++
		w.shore.see("g", s)
		w.wantIDs("robot:released")
		if b.get(&b.opened) != opened {
			t.Error("it was opened while it was released")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		w.wantIDs("robot:online")

		// It can be taken back early.
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

		// What was not released is left as it is.
		opened = b.get(&b.opened)
		if err := w.dock.Release(t.Context(), "robot", 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if b.get(&b.opened) != opened {
			t.Error("it was opened anew")
		}

		if err := w.dock.Release(t.Context(), "nobody", time.Minute); ferrule.AsError(err).Code != ferrule.NotFound {
			t.Errorf("got %v", err)
		}
		w.shore.see("g")
		if err := w.dock.Release(t.Context(), "robot", time.Minute); ferrule.AsError(err).Code != ferrule.Offline {
			t.Errorf("got %v", err)
		}
	})
}

// TestNameMoves: the owner's name goes to another board while both stay in sight,
// and a board gets one that it did not have.
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
		w.shore.see("g", named(x, "robot"), found(y))
		synctest.Wait()
		w.wantIDs("my:online robot:online")
		w.shore.see("g", found(x), named(y, "robot"))
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

// TestAbsent: what the owner asked for and is not there is expected under its
// name, unless that is remembered.
func TestAbsent(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "usb", model: "demo"}
		absent := transport.Sighting{Address: "/dev/port", Instance: 1, Name: "robot", Adopted: true, Absent: "there is no port"}
		w.shore.see("g", absent)
		time.Sleep(time.Hour)
		w.wantIDs("robot:offline")
		if e := w.device("robot").OfflineError(); e.Code != ferrule.Offline || !strings.Contains(e.Message, "there is no port") {
			t.Errorf("got %v", e)
		}
		w.shore.see("g", named(b, "robot"))
		synctest.Wait()
		w.wantIDs("robot:online")
		w.stop()

		w = open(t, dir)
		w.shore.see("g", absent)
		synctest.Wait()
		w.wantIDs("robot:offline")
		if dev := w.device("robot"); dev.Kind == "" || dev.Address != "usb" {
			t.Errorf("got %+v", dev)
		}
		w.shore.see("g", named(b, "robot"))
		synctest.Wait()
		w.wantIDs("robot:online")
	})
}

// TestReleasedPlace: a board that is being flashed may come back under another
// address at its place, and is left alone there, too.
func TestReleasedPlace(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		sketch, loader := &board{address: "sketch", model: "demo"}, &board{address: "loader", model: "boot"}
		at := func(b *board, name string) transport.Sighting {
			s := named(b, name)
			s.Place = "1-1"
			return s
		}
		w.shore.see("g", at(sketch, "robot"))
		if err := w.dock.Release(t.Context(), "robot", time.Minute); err != nil {
			t.Fatal(err)
		}
		w.shore.see("g", at(loader, ""))
		time.Sleep(30 * time.Second)
		w.wantIDs("loader:released robot:offline")
		if n := loader.get(&loader.opened); n != 0 {
			t.Errorf("it was opened %d times", n)
		}
		w.shore.see("g", at(sketch, "robot"))
		time.Sleep(31 * time.Second)
		w.wantIDs("robot:online")
	})
}

// TestSlowClose: a link that takes long to close holds up nobody else.
func TestSlowClose(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		slow, quick := &board{address: "a1", model: "slow"}, &board{address: "a2", model: "quick"}
		slow.set(func(b *board) { b.closing = time.Minute })
		w.shore.see("g", found(slow))
		slow.hangUp()
		time.Sleep(time.Second)
		w.shore.see("g", found(slow), found(quick))
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

// TestMisses: what an overlay says of a tool that is not there is a note on the
// device, once.
func TestMisses(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.shore.see("g", named(b, "special"))
		b.hangUp()
		time.Sleep(time.Second)
		if notes := w.device("special").Notes; !slices.Equal(notes, []string{"it cannot fly"}) {
			t.Errorf("got %q", notes)
		}
	})
}

// TestTakenBackByPlace: what was released by its place is taken back by it.
func TestTakenBackByPlace(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		one, two := &board{address: "a1", model: "one"}, &board{address: "a2", model: "two"}
		var all []transport.Sighting
		for _, b := range []*board{one, two} {
			s := found(b)
			s.Place = "1-1"
			all = append(all, s)
		}
		w.shore.see("g", all...)
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

// TestOwnerDecides: what an owner says of a board that is in sight counts at once,
// and takes nothing from it.
func TestOwnerDecides(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		s := found(b)
		w.shore.see("g", s)
		synctest.Wait()
		s.Adopted = true
		w.shore.see("g", s)
		synctest.Wait()
		if dev := w.device("demo"); dev.Trust != ferrule.TrustAdopted || dev.State != ferrule.StateOnline {
			t.Errorf("got %+v", dev)
		}
		b.set(func(b *board) { b.refuse = errors.New("in use") })
		b.hangUp()
		time.Sleep(time.Minute)
		s.Name = "robot"
		w.shore.see("g", s)
		synctest.Wait()
		w.wantIDs("robot:offline")
		if dev := w.device("robot"); dev.Kind == "" || dev.Trust != ferrule.TrustAdopted {
			t.Errorf("got %+v", dev)
		}
	})
}

// TestAbsentText: what is said of a port that is not there may change, and there
// is nothing of it to release or to adopt.
func TestAbsentText(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		absent := transport.Sighting{Address: "/dev/port", Instance: 1, Name: "robot", Absent: "there is none"}
		w.shore.see("g", absent)
		synctest.Wait()
		absent.Absent = "there is another"
		w.shore.see("g", absent)
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

// TestNoLongerShy: a board that waited to be adopted is opened when it need not
// wait any more.
func TestNoLongerShy(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		s := found(b)
		w.shore.see("g", s)
		if err := w.dock.Release(t.Context(), "demo", time.Minute); err != nil {
			t.Fatal(err)
		}
		s.Shy = "it may restart"
		w.shore.see("g", s)
		time.Sleep(2 * time.Minute)
		w.wantIDs("demo:offline")
		s.Shy = ""
		w.shore.see("g", s)
		synctest.Wait()
		w.wantIDs("demo:online")
	})
}

// TestLogged: that a device was lost is logged once, with the reason; so is that
// it is back.
func TestLogged(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.shore.see("g", named(b, "robot"))
		synctest.Wait()
		b.hangUp()
		time.Sleep(time.Second)
		w.shore.see("g")
		synctest.Wait()
		for text, want := range map[string]int{"device online": 2, "device offline": 2, "the board hung up": 1, "no longer in reach": 1} {
			if n := w.logged.count(text); n != want {
				t.Errorf("%q was logged %d times, want %d", text, n, want)
			}
		}
	})
}
