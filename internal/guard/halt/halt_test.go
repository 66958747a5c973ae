package halt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// network is the shared records of several nodes. Messages arrive at once, or never.
type network struct {
	mu    sync.Mutex
	nodes map[string]*records
}

// records implements Records for one node.
type records struct {
	name   string
	net    *network
	mu     sync.Mutex
	put    map[string][]byte // the newest value of each key
	watch  func(key string, value []byte)
	synced func()
	serve  func(key string, value []byte, reply func(data []byte))
	cut    atomic.Bool
}

func newNetwork() *network {
	return &network{nodes: make(map[string]*records)}
}

func (n *network) join(name string) *records {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := &records{name: name, net: n, put: make(map[string][]byte)}
	n.nodes[name] = r
	return r
}

func (n *network) others(name string) (all []*records) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other, r := range n.nodes {
		if other != name && !r.cut.Load() {
			all = append(all, r)
		}
	}
	return all
}

func (r *records) Put(key string, value []byte) error {
	r.mu.Lock()
	r.put[key] = value
	r.mu.Unlock()
	r.watch(key, value)
	if r.cut.Load() {
		return errors.New("cut")
	}
	for _, other := range r.net.others(r.name) {
		other.watch(key, value)
	}
	return nil
}

func (r *records) Watch(fn func(key string, value []byte)) { r.watch = fn }
func (r *records) OnSync(fn func())                        { r.synced = fn }
func (r *records) Serve(fn func(key string, value []byte, reply func(data []byte))) {
	r.serve = fn
}

func (r *records) Announce(ctx context.Context, key string, value []byte, heard func(node string, data []byte)) error {
	if err := r.Put(key, value); err != nil {
		return err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, other := range r.net.others(r.name) {
		wg.Go(func() {
			other.serve(key, value, func(data []byte) {
				mu.Lock()
				defer mu.Unlock()
				heard(other.name, data)
			})
		})
	}
	wg.Wait()
	<-ctx.Done()
	return nil
}

// journal keeps what it is given, or fails.
type journal struct {
	mu      sync.Mutex
	entries []ferrule.Entry
	err     error
}

func (j *journal) Append(e ferrule.Entry, _ bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.entries = append(j.entries, e)
	}
	return j.err
}

// untimed runs a test in which the limits of a stop do not depend on how fast the disk and
// the machine are: time passes only when everything waits for it.
func untimed(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * (ackTime + toolTime)) // what is in the background ends
		test(t)
	})
}

var person = ferrule.Principal{Role: ferrule.Person, Name: "ann"}

func newStop(t *testing.T, change ...func(*Options)) *Stop {
	t.Helper()
	o := Options{
		Dir: t.TempDir(), Node: "north", Nodes: func() []string { return nil }, Targets: func() []ferrule.Target { return nil },
		Journal: &journal{}, Event: func(ferrule.Event) {}, Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&o)
	}
	if o.Records == nil {
		o.Records = newNetwork().join(o.Node)
	}
	s := Open(o)
	s.Connect()
	t.Cleanup(func() { s.Close() })
	return s
}

func pumpCall(device string, role ferrule.Role) *ferrule.Call {
	return &ferrule.Call{Device: device, Tool: "run", Principal: ferrule.Principal{Role: role, Name: "claude"},
		Target: ferrule.Target{Device: &ferrule.Device{ID: device}, Tool: &ferrule.Tool{Name: "run", Effect: ferrule.Changes}}}
}

func enters(s *Stop, device string) error {
	_, leave, err := s.Enter(context.Background(), pumpCall(device, ferrule.Agent))
	if err == nil {
		leave()
	}
	return err
}

func halted(t *testing.T, s *Stop, reason string, devices ...string) Report {
	t.Helper()
	r, err := s.Halt(context.Background(), person, reason, devices)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func resumed(t *testing.T, s *Stop, devices ...string) []string {
	t.Helper()
	all, _, err := s.Resume(context.Background(), person, devices)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestDenied: a stop denies changes of its devices, says who did it and how to resume, and
// not the gateway's own calls and tools.
func TestDenied(t *testing.T) {
	s := newStop(t)
	if err := enters(s, "pump"); err != nil {
		t.Fatal(err)
	}
	halted(t, s, "hand in the machine", "pump")
	err := enters(s, "pump")
	if err == nil || ferrule.AsError(err).Code != ferrule.Denied || ferrule.AsError(err).MayHaveRun() {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"pump is stopped by person:ann at ", ": hand in the machine; nothing was sent"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if hint := ferrule.AsError(err).Hint; !strings.Contains(hint, "`ferrule resume pump`") {
		t.Errorf("hint %q", hint)
	}
	if err := enters(s, "fan"); err != nil {
		t.Errorf("fan: %v", err)
	}
	renamed := pumpCall("pump2", ferrule.Agent)
	renamed.Target.Device.Aliases = []string{"pump"}
	if _, _, err := s.Enter(t.Context(), renamed); err == nil {
		t.Error("a device that was renamed is not stopped any more")
	}
	halted(t, s, "")
	if err := enters(s, "fan"); err == nil || !strings.Contains(err.Error(), "everything is stopped by person:ann") {
		t.Errorf("fan: %v", err)
	}
	for _, free := range []*ferrule.Call{pumpCall("pump", ferrule.Gateway), pumpCall(ferrule.GatewayID, ferrule.Agent)} {
		if _, leave, err := s.Enter(t.Context(), free); err != nil {
			t.Errorf("%s of %s: %v", free.Principal, free.Device, err)
		} else {
			leave()
		}
	}
	if got := resumed(t, s, "pump"); len(got) != 1 || enters(s, "pump") == nil {
		t.Errorf("resumed %v; everything must still be stopped", got)
	}
	if got := resumed(t, s); len(got) != 1 || enters(s, "pump") != nil {
		t.Errorf("resumed %v", got)
	}
}

// TestNothingAfterAcknowledgment: whatever calls do at the time of a stop, none is sent
// after Halt has returned, and what was sent is reported.
func TestNothingAfterAcknowledgment(t *testing.T) {
	rounds, calls := 300, 32
	if testing.Short() {
		rounds = 50
	}
	s := newStop(t)
	for range rounds {
		var acknowledged atomic.Bool
		var late, sent, over atomic.Int32
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() {
				defer over.Add(1)
				for {
					ctx, leave, err := s.Enter(context.Background(), pumpCall("pump", ferrule.Agent))
					if err != nil {
						return
					}
					for range rand.N(50) { // the intent, the lane
						if ctx.Err() != nil {
							break
						}
					}
					if ferrule.MaySend(ctx) == nil && ctx.Err() == nil { // as transports do
						if acknowledged.Load() {
							late.Add(1)
						}
						sent.Add(1)
					}
					leave()
				}
			})
		}
		for sent.Load() < int32(rand.N(200)) {
		}
		halted(t, s, "")
		acknowledged.Store(true)
		wg.Wait()
		resumed(t, s)
		if late.Load() > 0 {
			t.Fatalf("%d changes were sent after the stop", late.Load())
		}
	}
}

// TestDrainIsBounded: a call that does not end is reported as one that may have run, and
// does not delay the stop.
func TestDrainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStop(t)
		var ctx [3]context.Context
		var leave [3]func()
		for i := range ctx {
			var err error
			if ctx[i], leave[i], err = s.Enter(t.Context(), pumpCall("pump", ferrule.Agent)); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range ctx[:2] {
			if err := ferrule.MaySend(c); err != nil {
				t.Fatal(err)
			}
		}
		go func() { // one ends at once, the second and the third never
			<-ctx[0].Done()
			leave[0]()
		}()
		began := time.Now()
		r := halted(t, s, "")
		if took := time.Since(began); took > time.Second || r.MayHaveRun != 2 || r.Ended != 1 {
			t.Errorf("after %v: %+v", took, r)
		}
		if err := ferrule.MaySend(ctx[2]); ferrule.AsError(err).Code != ferrule.Denied {
			t.Errorf("may be sent after the stop: %v", err)
		}
		if err := ferrule.MaySend(ctx[1]); err == nil {
			t.Error("may be sent a second time after the stop")
		}
		leave[1]()
		leave[2]()
		synctest.Wait()
		time.Sleep(2 * (ackTime + toolTime))
	})
}

// TestManyInFlight: a stop ends 256 calls in flight within a second.
func TestManyInFlight(t *testing.T) {
	s := newStop(t)
	var wg sync.WaitGroup
	for range 256 {
		ctx, leave, err := s.Enter(context.Background(), pumpCall("pump", ferrule.Agent))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			<-ctx.Done()
			if !strings.Contains(context.Cause(ctx).Error(), "stopped by") {
				t.Error(context.Cause(ctx))
			}
			leave()
		})
	}
	if r := halted(t, s, ""); r.Ended != 256 || r.MayHaveRun != 0 {
		t.Errorf("got %+v", r)
	}
	wg.Wait()
}

// TestSurvivesRestart: what is stopped and what is resumed is the same after a restart.
func TestSurvivesRestart(t *testing.T) { untimed(t, testSurvivesRestart) }

func testSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	again := func() *Stop { return newStop(t, func(o *Options) { o.Dir = dir }) }
	s := again()
	halted(t, s, "why", "pump", "fan")
	s = again()
	if enters(s, "pump") == nil || enters(s, "fan") == nil || enters(s, "lamp") != nil {
		t.Errorf("after a restart: %v", s.Stopped())
	}
	if got := s.Stopped().String(); got != "2 devices are stopped: fan, pump. To resume, run `ferrule resume`." {
		t.Error(got)
	}
	resumed(t, s, "pump")
	s = again()
	if enters(s, "pump") != nil || enters(s, "fan") == nil {
		t.Errorf("after a restart: %v", s.Stopped())
	}
	halted(t, s, "")
	if s = again(); enters(s, "lamp") == nil {
		t.Error("not stopped after a restart")
	}
	resumed(t, s)
	if s = again(); enters(s, "lamp") != nil || enters(s, "fan") != nil {
		t.Error("stopped after resume and a restart")
	}
}

// TestTornWrite: a write that is cut short leaves what was written before, and a file
// without any valid part means that everything is stopped.
func TestTornWrite(t *testing.T) { untimed(t, testTornWrite) }

func testTornWrite(t *testing.T) {
	dir := t.TempDir()
	s := newStop(t, func(o *Options) { o.Dir = dir })
	halted(t, s, "", "pump")
	halted(t, s, "", "fan") // in the other slot
	newest := int(s.file.counter % slots)
	path := filepath.Join(dir, fileName)
	damage := func(slot int) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		f.WriteAt([]byte("torn"), int64(slot*slotSize+headerSize+3))
	}
	damage(newest)
	s = newStop(t, func(o *Options) { o.Dir = dir })
	if enters(s, "pump") == nil || enters(s, "fan") != nil {
		t.Errorf("got %v", s.Stopped())
	}
	damage(1 - newest)
	s = newStop(t, func(o *Options) { o.Dir = dir })
	if err := enters(s, "lamp"); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("got %v", err)
	}
	resumed(t, s)
	s = newStop(t, func(o *Options) { o.Dir = dir })
	if err := enters(s, "lamp"); err != nil {
		t.Errorf("after resume: %v", err)
	}
}

// TestNoDisk: without a file and a journal, a stop is in force and says that it will not
// survive a restart.
func TestNoDisk(t *testing.T) {
	s := newStop(t, func(o *Options) {
		o.Dir = filepath.Join(o.Dir, "missing")
		o.Journal = &journal{err: errors.New("full")}
	})
	r := halted(t, s, "")
	if r.NotSaved == "" || enters(s, "pump") == nil {
		t.Errorf("got %+v", r)
	}
	resumed(t, s)
	if err := enters(s, "pump"); err != nil {
		t.Error(err)
	}
}

// TestNotSavedElsewhere: a node acknowledges a stop when it has saved it, and says so if it
// cannot.
func TestNotSavedElsewhere(t *testing.T) { untimed(t, testNotSavedElsewhere) }

func testNotSavedElsewhere(t *testing.T) {
	net := newNetwork()
	node := func(name, other string) *Stop {
		return newStop(t, func(o *Options) {
			o.Node, o.Records, o.Nodes = name, net.join(name), func() []string { return []string{other} }
		})
	}
	north, south := node("north", "south"), node("south", "north")
	for _, broken := range []bool{false, true} {
		if broken {
			south.file.f.Close()
		}
		r := halted(t, north, "")
		if len(r.Nodes) != 1 || !r.Nodes[0].Acknowledged || (r.Nodes[0].NotSaved != "") != broken || r.NotSaved != "" {
			t.Errorf("broken %v: %+v", broken, r)
		}
		if !broken && newStop(t, func(o *Options) { o.Dir = south.options.Dir }).Stopped().String() == "" {
			t.Error("acknowledged before it was saved")
		}
	}
}

// TestResumeMustBeSaved: if resuming cannot be saved, changes stay stopped.
func TestResumeMustBeSaved(t *testing.T) { untimed(t, testResumeMustBeSaved) }

func testResumeMustBeSaved(t *testing.T) {
	s := newStop(t)
	halted(t, s, "")
	s.file.f.Close()
	if _, _, err := s.Resume(t.Context(), person, nil); err == nil || enters(s, "pump") == nil {
		t.Errorf("got %v", err)
	}
	if r := halted(t, s, ""); r.NotSaved == "" || enters(s, "pump") == nil {
		t.Errorf("got %+v", r)
	}
}

// TestStopTools: each device's stop tool is called once for each stop, as the gateway,
// urgently, and its result is reported.
func TestStopTools(t *testing.T) { untimed(t, testStopTools) }

func testStopTools(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	target := func(id string, stop *ferrule.Action) ferrule.Target {
		return ferrule.Target{Device: &ferrule.Device{ID: id}, Manifest: &ferrule.Manifest{Stop: stop}}
	}
	net := newNetwork()
	node := func(name string) *Stop {
		return newStop(t, func(o *Options) {
			o.Node, o.Records = name, net.join(name)
			o.Nodes = func() []string {
				return map[string][]string{"north": {"south"}, "south": {"north"}}[name]
			}
			o.Targets = func() []ferrule.Target {
				return []ferrule.Target{target(name+"-pump", &ferrule.Action{Tool: "off", Args: []byte(`{"now":true}`)}), target(name+"-lamp", nil), target(name+"-arm", &ferrule.Action{Tool: "freeze"})}
			}
			o.Handle = func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, fmt.Sprintf("%s %s %s %s %v", call.Principal, call.Device, call.Tool, call.Args, call.Urgent))
				if call.Tool == "freeze" {
					return nil, ferrule.Errorf(ferrule.Offline, "unplugged")
				}
				return &ferrule.Result{}, nil
			}
		})
	}
	north, south := node("north"), node("south")
	r := halted(t, north, "")
	if len(r.Tools) != 2 || r.Tools[0] != (ToolResult{Device: "north-arm", Tool: "freeze", Error: "unplugged"}) || r.Tools[1].Error != "" {
		t.Errorf("got %+v", r.Tools)
	}
	if len(r.Nodes) != 1 || !r.Nodes[0].Acknowledged || len(r.Nodes[0].Tools) != 2 || r.Nodes[0].Tools[0].Error != "unplugged" {
		t.Errorf("got %+v", r.Nodes)
	}
	if enters(south, "lamp") == nil {
		t.Error("the other node is not stopped")
	}
	north.options.Records.(*records).synced() // records are seen again
	south.options.Records.(*records).synced()
	mu.Lock()
	if len(calls) != 4 || !strings.Contains(strings.Join(calls, "\n"), `gateway:stop south-pump off {"now":true} true`) {
		t.Errorf("calls %q", calls)
	}
	calls = nil
	mu.Unlock()
	halted(t, south, "again", "south-pump")
	mu.Lock()
	defer mu.Unlock()
	if len(calls) != 1 {
		t.Errorf("calls %q", calls)
	}
}

// TestUnreachable: a node that does not answer is reported; it stops when it hears of it,
// and a stop that was made meanwhile is not undone by an earlier resume.
func TestUnreachable(t *testing.T) { untimed(t, testUnreachable) }

func testUnreachable(t *testing.T) {
	net := newNetwork()
	others := func() []string { return []string{"south"} }
	north := newStop(t, func(o *Options) { o.Node, o.Records, o.Nodes = "north", net.join("north"), others })
	south := newStop(t, func(o *Options) {
		o.Node, o.Records, o.Nodes = "south", net.join("south"), func() []string { return []string{"north"} }
	})
	net.nodes["south"].cut.Store(true)
	began := time.Now()
	r := halted(t, north, "")
	if took := time.Since(began); took > ackTime || len(r.Nodes) != 1 || r.Nodes[0].Acknowledged {
		t.Errorf("after %v: %+v", took, r.Nodes)
	}
	if enters(south, "pump") != nil {
		t.Error("stopped without hearing of it")
	}
	halted(t, south, "own") // cut off
	net.nodes["south"].cut.Store(false)
	net.sync()
	if len(north.Stopped().Orders) != 2 || len(south.Stopped().Orders) != 2 {
		t.Errorf("north %v, south %v", north.Stopped(), south.Stopped())
	}
	net.nodes["south"].cut.Store(true)
	resumed(t, north)
	if enters(north, "pump") != nil || enters(south, "pump") == nil {
		t.Error("resume is not local while the other node is cut off")
	}
	halted(t, south, "once more")
	net.nodes["south"].cut.Store(false)
	net.sync()
	if enters(north, "pump") == nil || enters(south, "pump") == nil {
		t.Error("a stop was undone by a resume that did not know it")
	}
	resumed(t, south)
	if enters(north, "pump") != nil || enters(south, "pump") != nil {
		t.Errorf("north %v, south %v", north.Stopped(), south.Stopped())
	}
}

// sync delivers what was written while nodes were cut off.
func (n *network) sync() {
	for name, r := range n.nodes {
		r.mu.Lock()
		all := maps.Clone(r.put)
		r.mu.Unlock()
		for key, value := range all {
			for _, other := range n.others(name) {
				other.watch(key, value)
			}
		}
	}
	for _, r := range n.nodes {
		r.synced()
	}
}

// TestMerge: nodes that stop and resume in any order, and receive each other's orders in
// any order, some twice and some old, agree in the end; a stop that no resume has seen
// stays in force, and one that a resume has seen does not.
func TestMerge(t *testing.T) {
	type node map[place]Order
	receive := func(n node, o Order) {
		if known, ok := n[o.place()]; ok {
			o = merge(known, o)
		}
		n[o.place()] = o
	}
	for round := range 20_000 {
		nodes := []node{{}, {}, {}}
		var messages []Order
		seq := uint64(0)
		seen := make(map[uint64]bool) // orders that a resume has seen
		made := make(map[uint64]place)
		for range 12 {
			at := rand.N(len(nodes))
			n := nodes[at]
			switch rand.N(4) {
			case 0:
				seq++
				o := Order{Node: fmt.Sprint("n", at), Device: []string{"", "pump"}[rand.N(2)], Seq: seq}
				receive(n, o)
				made[seq] = o.place()
				messages = append(messages, n[o.place()])
			case 1:
				for at, o := range n {
					if o.active() {
						for s, p := range made { // earlier ones of the same place are over, too
							if p == at && s <= o.Seq {
								seen[s] = true
							}
						}
						o.Resumed = o.Seq
						n[at] = o
						messages = append(messages, o)
					}
				}
			default:
				if len(messages) > 0 {
					receive(n, messages[rand.N(len(messages))])
				}
			}
		}
		for _, n := range nodes { // each hears all, in some order
			for _, i := range rand.Perm(len(messages)) {
				receive(n, messages[i])
			}
		}
		want := make(map[place]bool)
		for s, p := range made {
			want[p] = want[p] || !seen[s]
		}
		for _, n := range nodes {
			for p, active := range want {
				if n[p] != nodes[0][p] || n[p].active() != active {
					t.Fatalf("round %d: %v: got %+v, want active %v; messages %v", round, p, n[p], active, messages)
				}
			}
		}
	}
}

// TestLimit: there is a limit of devices that are stopped one by one, and it does not keep
// anybody from stopping everything.
func TestLimit(t *testing.T) { untimed(t, testLimit) }

func testLimit(t *testing.T) {
	s := newStop(t)
	for i := range MaxOrders + 50 { // those that were resumed are forgotten
		s.apply(Order{Node: "south", Device: fmt.Sprint("old", i), Seq: uint64(i + 1), Resumed: uint64(i + 1)})
	}
	var ids []string
	for i := range MaxOrders - 1 {
		ids = append(ids, fmt.Sprint("d", i))
	}
	halted(t, s, strings.Repeat("\"<", 200), ids...)
	if _, err := s.Halt(t.Context(), person, "", []string{"more"}); ferrule.AsError(err).Code != ferrule.Limited {
		t.Errorf("got %v", err)
	}
	if r := halted(t, s, ""); r.NotSaved != "" {
		t.Error(r.NotSaved)
	}
	if enters(s, "lamp") == nil {
		t.Error("everything is not stopped")
	}
	again := newStop(t, func(o *Options) { o.Dir = s.options.Dir })
	if len(again.Stopped().Orders) != MaxOrders {
		t.Errorf("%d orders after a restart", len(again.Stopped().Orders))
	}
}

// TestFollow: a stop covers a device that is renamed again and again, also after a restart.
func TestFollow(t *testing.T) { untimed(t, testFollow) }

func testFollow(t *testing.T) {
	s := newStop(t)
	halted(t, s, "why", "pump")
	dev := ferrule.Device{ID: "pump"}
	for i := range 3 * ferrule.MaxAliases {
		dev.Aliases = append([]string{dev.ID}, dev.Aliases...)
		dev.Aliases = dev.Aliases[:min(len(dev.Aliases), ferrule.MaxAliases)]
		dev.ID = fmt.Sprint("pump", i)
		s.Follow(&dev)
	}
	if why := s.Stopped().For(&dev); !strings.Contains(why, "stopped by person:ann") || !strings.Contains(why, "why") {
		t.Errorf("got %q", why)
	}
	other := ferrule.Device{ID: "lamp"}
	if s.Follow(&other); s.Stopped().For(&other) != "" {
		t.Error("another device is stopped")
	}
	if err := s.save(); err != nil {
		t.Fatal(err)
	}
	if newStop(t, func(o *Options) { o.Dir = s.options.Dir }).Stopped().For(&dev) == "" {
		t.Error("not stopped after a restart")
	}
}

// TestHangingTool: a stop tool that never returns, as with a disk that does not answer,
// delays the stop for a bounded time only, on this node and on another one.
func TestHangingTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		hang := make(chan struct{})
		targets := func() (all []ferrule.Target) {
			for i := range maxTools + 2 {
				all = append(all, ferrule.Target{Device: &ferrule.Device{ID: fmt.Sprintf("d%03d", i)}, Manifest: &ferrule.Manifest{Stop: &ferrule.Action{Tool: "off"}}})
			}
			return all
		}
		var called atomic.Int32
		handle := func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			called.Add(1)
			<-hang
			return nil, nil
		}
		s := newStop(t, func(o *Options) {
			o.Records, o.Nodes, o.Targets, o.Handle = net.join("north"), func() []string { return []string{"south"} }, targets, handle
		})
		newStop(t, func(o *Options) { o.Node, o.Records, o.Targets, o.Handle = "south", net.join("south"), targets, handle })
		began := time.Now()
		r := halted(t, s, "")
		if took := time.Since(began); took > ackTime+toolTime {
			t.Errorf("took %v", took)
		}
		if len(r.Tools) != maxTools+2 || r.Tools[0].Error != "the stop tool did not answer; it may have run" {
			t.Errorf("got %+v", r.Tools)
		}
		if len(r.Nodes) != 1 || !r.Nodes[0].Acknowledged || len(r.Nodes[0].Tools) == 0 {
			t.Errorf("got %+v", r.Nodes)
		}
		time.Sleep(toolTime)
		if n := called.Load(); n != 2*(maxTools+2) { // they do not wait for those that hang
			t.Errorf("%d were called", n)
		}
		close(hang)
	})
}

// TestLimitOfAll: the limit counts the orders of all nodes in force, and does not keep
// anybody from stopping everything.
func TestLimitOfAll(t *testing.T) { untimed(t, testLimitOfAll) }

func testLimitOfAll(t *testing.T) {
	s := newStop(t)
	halted(t, s, "", "pump")
	resumed(t, s, "pump")
	for i := range MaxOrders + 10 {
		s.apply(Order{Node: "south", Device: fmt.Sprint("d", i), Seq: 1})
	}
	for _, id := range []string{"lamp", "pump"} { // pump is known, but its order is over
		if _, err := s.Halt(t.Context(), person, "", []string{id}); ferrule.AsError(err).Code != ferrule.Limited {
			t.Errorf("%s: got %v", id, err)
		}
	}
	if r := halted(t, s, ""); r.NotSaved != "" {
		t.Error(r.NotSaved)
	}
	if enters(s, "lamp") == nil {
		t.Error("everything is not stopped")
	}
	again := newStop(t, func(o *Options) { o.Dir = s.options.Dir })
	if !again.Stopped().Everything() || len(again.Stopped().Orders) != MaxOrders+11 {
		t.Errorf("%d orders after a restart", len(again.Stopped().Orders))
	}
}

// TestJournal: stops and resumes are recorded on the node where they were made and on
// those that heard of them.
func TestJournal(t *testing.T) { untimed(t, testJournal) }

func testJournal(t *testing.T) {
	net := newNetwork()
	var journals [2]journal
	nodes := make([]*Stop, 2)
	for i, name := range []string{"north", "south"} {
		nodes[i] = newStop(t, func(o *Options) { o.Node, o.Records, o.Journal = name, net.join(name), &journals[i] })
	}
	halted(t, nodes[0], "why", "pump")
	synctest.Wait() // both have heard of it
	resumed(t, nodes[1], "pump")
	synctest.Wait()
	for i := range journals {
		var phases string
		journals[i].mu.Lock()
		for _, e := range journals[i].entries {
			phases += string(e.Phase) + " " + e.Device + "; "
		}
		journals[i].mu.Unlock()
		if !strings.Contains(phases, "stop pump; ") || !strings.Contains(phases, "resume pump; ") {
			t.Errorf("journal %d: %s", i, phases)
		}
	}
}

func FuzzOrder(f *testing.F) {
	f.Add("stop.north", Order{Node: "north", Seq: 7, By: "person:ann", Time: time.Unix(1, 0)}.encode())
	f.Add("stop.north.pump", Order{Node: "north", Device: "pump", Seq: 7}.encode())
	f.Add("stop.north", []byte(`{"node":"north","seq":7,"time":"9999-12-31T23:59:59-01:00"}`))
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		o, err := decodeOrder(key, data)
		if err != nil {
			return
		}
		again, err := decodeOrder(key, o.encode())
		if o.key() != key || len(o.Reason) > maxReason || err != nil || again != o {
			t.Errorf("%+v, %+v, %v", o, again, err)
		}
	})
}

func FuzzSlot(f *testing.F) {
	text, _ := encodeSlot(3, []Order{{Node: "north", Seq: 7}})
	f.Add(text)
	f.Add(text[:20])
	f.Fuzz(func(t *testing.T, data []byte) {
		for i := range slots {
			if _, orders, err := readSlot(data, i); err == nil {
				for _, o := range orders {
					if o.check() != nil {
						t.Errorf("accepted %+v", o)
					}
				}
			}
		}
	})
}
