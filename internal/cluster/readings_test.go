package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var (
	readings = flag.Int("readings", 1000, "how many readings the tests store at a time")
	restarts = flag.Int("restarts", 1, "how often TestReadingsOnce restarts the server")
)

// lightOf returns the nth reading of a device.
func lightOf(device string, n int) ferrule.Reading {
	at := time.UnixMicro(1_700_000_000_000_000 + int64(n)*1000)
	return ferrule.Reading{Device: device, Poll: "light", Time: at, Batches: []ferrule.SampleBatch{
		{Signal: "light", Unit: "lx", Samples: []ferrule.Sample{{Time: at, Value: float64(n), Within: ferrule.Duration(time.Millisecond)}}},
		{Signal: "heat"},
	}}
}

// measure adds readings to a node, as fast as it accepts them.
func (s *testNode) measure(device string, from, to int) {
	s.t.Helper()
	for n := from; n < to; n++ {
		for end := time.Now().Add(wait.Ample); !s.cluster.Measured(lightOf(device, n)); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				s.t.Fatalf("reading %d of %s is not accepted", n, device)
			}
		}
	}
}

// probe is a device whose readings reader ignores.
const probe = "probe"

// probe waits until the servers pass readings on to a listener at another node. They then
// know its earlier subscriptions too. It returns how many readings were stored.
func (s *testNode) probe(to *testNode) (n int) {
	s.t.Helper()
	var passed atomic.Bool
	defer to.cluster.Samples(probe, "", func(ferrule.Reading) { passed.Store(true) })()
	wait.For(s.t, "readings are passed on", func() bool {
		s.measure(probe, n, n+1)
		n++
		return passed.Load()
	})
	return n
}

// reader records the stored readings of a node.
type reader struct {
	t    *testing.T
	stop func()

	mu     sync.Mutex
	values []int
	at     []string
	lost   []int // readings with Lost set
	repeat int   // number of readings with MayRepeat set
	end    bool  // the end was reported
}

// read reads the stored readings of a node after a position.
func (s *testNode) read(after string) *reader {
	s.t.Helper()
	r := &reader{t: s.t}
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.cluster.Readings(ctx, after, r.take); err != nil {
			s.t.Error(err)
		}
	}()
	r.stop = sync.OnceFunc(func() { cancel(); <-done })
	s.t.Cleanup(r.stop)
	return r
}

func (r *reader) take(k ferrule.StoredReading) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end = r.end || k.Remaining == 0
	if k.MayRepeat {
		r.repeat++
	}
	if k.Reading == nil || k.Reading.Device == probe {
		return nil
	}
	n := int(k.Reading.Batches[0].Samples[0].Value)
	if k.Lost {
		r.lost = append(r.lost, n)
	}
	r.values, r.at = append(r.values, n), append(r.at, k.Position)
	return nil
}

// last returns the position of the last reading.
func (r *reader) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[len(r.at)-1]
}

// expect waits for readings, and checks that they are in order.
func (r *reader) expect(from, to int) {
	r.t.Helper()
	count := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.values)
	}
	for end := time.Now().Add(wait.Ample); count() < to-from && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.values) != to-from {
		r.t.Fatalf("got %d readings, want %d", len(r.values), to-from)
	}
	for i, n := range r.values {
		if n != from+i {
			r.t.Fatalf("reading %d is %d", from+i, n)
		}
	}
}

func (r *reader) atEnd() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end
}

// TestReadings checks that a single node stores its readings in order, each once, and that
// a reader continues where it stopped, also after a restart.
func TestReadings(t *testing.T) {
	t.Parallel()
	some := *readings
	dir, cfg := t.TempDir(), DefaultConfig()
	a := nodeWith(t, "a", cfg, noJournal{}, dir)
	r := a.read("")
	wait.For(t, "the end is reported", r.atEnd)
	start := time.Now()
	a.measure("robot", 0, some)
	r.expect(0, some)
	t.Logf("%d readings were stored and read in %v", some, time.Since(start))
	half := r.at[some/2-1]
	a.read(half).expect(some/2, some)
	if n := a.cluster.State().Unstored; n != 0 {
		t.Errorf("%d are waiting, want 0", n)
	}
	a.stop()

	again := nodeWith(t, "a", cfg, noJournal{}, dir)
	s := again.read(r.last())
	wait.For(t, "the end is reported", s.atEnd)
	again.measure("robot", some, some+100)
	s.expect(some, some+100)
	all := again.read("")
	all.expect(0, some+100)
	for _, r := range []*reader{r, s, all} {
		if len(r.lost) > 0 || r.repeat > 0 {
			t.Errorf("Lost at %v, MayRepeat %d times, want none", r.lost, r.repeat)
		}
	}
}

// TestReadingsLost checks that Lost is set for a reader whose position no longer exists,
// and that it gets all readings that exist.
func TestReadingsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	a := node(t, "a", DefaultConfig())
	a.measure("robot", 0, 100)
	first := a.read("")
	first.expect(0, 100)
	stream := a.cluster.streams.ReadingsStream()
	purge := func(seq uint64) {
		t.Helper()
		if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(seq)); err != nil {
			t.Fatal(err)
		}
	}
	flags := func(r *reader, lost string, repeat int) {
		t.Helper()
		r.mu.Lock()
		defer r.mu.Unlock()
		if fmt.Sprint(r.lost) != lost || r.repeat != repeat {
			t.Errorf("Lost at %v, want %s; MayRepeat %d times, want %d", r.lost, lost, r.repeat, repeat)
		}
	}
	purge(11) // the first ten
	next := a.read(first.at[9])
	next.expect(10, 100)
	flags(next, "[]", 0)
	late := a.read(first.at[4])
	late.expect(10, 100)
	flags(late, "[10]", 90)

	// The end was lost in a power failure, and sequences are reused.
	cut := a.read(strings.Replace(first.at[99], "100 ", "1000 ", 1))
	cut.expect(10, 100)
	flags(cut, "[10]", 90)
	other := a.read(strings.Replace(first.at[99], "100 ", "50 ", 1))
	other.expect(10, 100)
	flags(other, "[10]", 90)

	// The stream is created again.
	if err := a.cluster.engine.Load().Shared.DeleteStream(t.Context(), engine.SamplesStream); err != nil {
		t.Fatal(err)
	}
	a.measure("robot", 100, 103)
	renewed := a.read(first.at[99])
	renewed.expect(100, 103)
	flags(renewed, "[]", 0) // none is missing between

	if err := a.cluster.Readings(t.Context(), "yesterday", nil); err == nil {
		t.Error("an invalid position is accepted")
	}
	wrong := errors.New("enough")
	if err := a.cluster.Readings(t.Context(), "", func(ferrule.StoredReading) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("got %v, want the error of the reader", err)
	}
}

// TestForeignReadings checks that a reader skips messages that no node wrote, and can
// continue after one.
func TestForeignReadings(t *testing.T) {
	a := node(t, "a", clustertest.OneServer(t))
	a.measure("robot", 0, 1)
	a.read("").expect(0, 1)
	for n, data := range []string{`{}`, `{"device":"robot","node":"a","poll":"light","time":"2026-11-15T12:00:00Z","batches":[{"signal":"light","times":[1],"values":[1],"within":[1]}]}`} {
		if _, err := a.cluster.engine.Load().Shared.Publish(t.Context(), "ferrule.home.sample.a.robot.light", []byte(data)); err != nil {
			t.Fatal(err)
		}
		var position string
		enough := errors.New("enough")
		err := a.cluster.Readings(t.Context(), "", func(k ferrule.StoredReading) error {
			if position = k.Position; k.Remaining == 0 {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) {
			t.Fatal(err)
		}
		r := a.read(position)
		a.measure("robot", n+1, n+2)
		r.expect(n+1, n+2)
	}
}

// TestSlowReader checks that Lost is set for a reader that is too slow.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	a := node(t, "a", DefaultConfig())
	a.measure("robot", 0, 3000)
	release, seen := make(chan struct{}), make(chan ferrule.StoredReading, 10000)
	go a.cluster.Readings(t.Context(), "", func(k ferrule.StoredReading) error {
		seen <- k
		if len(seen) == 1 {
			<-release
		}
		return nil
	})
	wait.For(t, "one is read", func() bool { return len(seen) == 1 })
	wait.For(t, "all are stored", func() bool { return a.cluster.State().Unstored == 0 })
	if err := a.cluster.streams.ReadingsStream().Purge(t.Context(), jetstream.WithPurgeSequence(2990)); err != nil {
		t.Fatal(err)
	}
	close(release)
	a.measure("robot", 3000, 3010)
	lost := 0
	for k := range seen {
		if k.Lost {
			lost++
		}
		if k.Reading != nil && k.Reading.Batches[0].Samples[0].Value == 3009 {
			break
		}
	}
	if lost != 1 {
		t.Errorf("Lost is set %d times, want 1", lost)
	}
}

// TestBacklogLimit checks that readings wait for a server up to a limit, and that more are
// rejected and not passed on.
func TestBacklogLimit(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers = Join, []string{"nats://127.0.0.1:1"}
	a := node(t, "a", cfg)
	passed := 0
	defer a.cluster.Samples("robot", "", func(ferrule.Reading) { passed++ })()
	n := 0
	for a.cluster.Measured(lightOf("robot", n)) {
		n++
	}
	if n != 16384 || passed != n || a.cluster.State().Unstored != n {
		t.Errorf("%d were accepted, %d were passed on, and %d are waiting", n, passed, a.cluster.State().Unstored)
	}
	if a.cluster.Measured(ferrule.Reading{Device: "a b"}) {
		t.Error("an invalid reading is accepted")
	}
}

// TestReadingTooLong checks that a reading that is too long for the servers is rejected, or,
// if it was queued before the limit was known, does not block others.
func TestReadingTooLong(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	port := natscluster.Port(t)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Join, []string{fmt.Sprintf("nats://127.0.0.1:%d", port)}, 1, 1
	a := node(t, "a", cfg)
	long := lightOf("robot", 0)
	for n := 1; n < ferrule.MaxSamples; n++ {
		long.Batches[0].Samples = append(long.Batches[0].Samples, lightOf("robot", n).Batches[0].Samples[0])
	}
	a.measure("robot", 1, 2)
	if !a.cluster.Measured(long) {
		t.Error("rejected before the limit is known")
	}
	a.measure("robot", 2, 3)
	clustertest.StartServer(t, &server.Options{Port: port, StoreDir: t.TempDir(), MaxPayload: 16 << 10})
	r := a.read("")
	r.expect(1, 3)
	if a.cluster.Measured(long) {
		t.Error("a reading that is too long is accepted")
	}
	a.measure("robot", 3, 4)
	r.expect(1, 4)
	wait.For(t, "no reading is waiting", func() bool { return a.cluster.State().Unstored == 0 })
}

// TestReadingsOnce checks that each reading is stored once when the server restarts while
// readings are in flight.
func TestReadingsOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	dir, port := t.TempDir(), natscluster.Port(t)
	start := func() *server.Server {
		return hubServer(t, dir, port, natscluster.Port(t))
	}
	s := start()
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Join, []string{fmt.Sprintf("nats://127.0.0.1:%d", port)}, 1, 1
	a := node(t, "a", cfg)
	rounds, some := *restarts, 6000
	var wg sync.WaitGroup
	var measured atomic.Int64
	wg.Go(func() {
		for n := range rounds * some {
			a.measure("robot", n, n+1)
			measured.Store(int64(n + 1))
		}
	})
	for round := range rounds {
		wait.For(t, "some are stored", func() bool {
			waiting := a.cluster.State().Unstored
			return waiting > 0 && int(measured.Load())-waiting > round*some+100
		})
		s.Shutdown()
		s.WaitForShutdown()
		s = start()
	}
	wg.Wait()
	wait.For(t, "all are stored", func() bool { return a.cluster.State().Unstored == 0 })
	if n := stored(a); n != uint64(rounds*some) {
		t.Errorf("%d are stored, want %d", n, rounds*some)
	}
	a.read("").expect(0, rounds*some)
}

// TestReadingsInCluster checks that each reading is stored once when the leader of the
// stream is killed while readings are in flight.
func TestReadingsInCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	servers := natscluster.Start(t, natscluster.Options{})
	cfg := DefaultConfig()
	cfg.Mode, cfg.Tenant, cfg.Shards, cfg.Servers = Join, "acme", 1, strings.Split(servers.URLs(), ",")
	a, b := node(t, "a", cfg), node(t, "b", cfg)
	wait.For(t, "both store readings", func() bool {
		return a.cluster.streams.ReadingsStream() != nil && b.cluster.streams.ReadingsStream() != nil
	})
	var passed atomic.Int64
	defer b.cluster.Samples("robot", "light", func(ferrule.Reading) { passed.Add(1) })()
	a.probe(b)
	some := *readings
	start := time.Now()
	for n := range some {
		a.measure("robot", n, n+1)
		b.measure("lamp", n, n+1)
	}
	wait.For(t, "all are stored", func() bool { return a.cluster.State().Unstored+b.cluster.State().Unstored == 0 })
	t.Logf("%d readings were stored on three servers in %v", 2*some, time.Since(start))
	info, err := a.cluster.streams.ReadingsStream().Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers.Servers {
		if s.Name == info.Cluster.Leader {
			go func() { time.Sleep(50 * time.Millisecond); s.Kill() }()
		}
	}
	var wg sync.WaitGroup
	for device, s := range map[string]*testNode{"robot": a, "lamp": b} {
		wg.Go(func() { s.measure(device, some, 3*some) })
	}
	wg.Wait()
	wait.For(t, "all are stored", func() bool { return a.cluster.State().Unstored+b.cluster.State().Unstored == 0 })
	t.Logf("the rest was stored after %v", time.Since(start))
	for _, s := range []*testNode{a, b} {
		r := s.read("")
		wait.For(t, "all are read", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.values) >= 3*some })
		time.Sleep(100 * time.Millisecond)
		r.mu.Lock()
		times := make(map[int]int)
		for _, n := range r.values {
			times[n]++
		}
		if len(times) != 3*some || len(r.values) != 3*some || len(r.lost) > 0 {
			t.Errorf("got %d of %d readings, %d in all; Lost at %v", len(times), 3*some, len(r.values), r.lost)
		}
		r.mu.Unlock()
	}
	if n := int(passed.Load()); n < some {
		t.Errorf("%d were passed on, want at least %d", n, some)
	}
}

// TestReadingsAtLeaf checks that a leaf stores its own readings, whether or not its hub is
// up, that the hub does not, and that listeners at the hub get them.
func TestReadingsAtLeaf(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	dir, client, leafPort := t.TempDir(), natscluster.Port(t), natscluster.Port(t)
	hub := hubServer(t, dir, client, leafPort)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Join, []string{fmt.Sprintf("nats://127.0.0.1:%d", client)}, 1, 1
	center := node(t, "center", cfg)
	cfg.Mode, cfg.Servers = Leaf, []string{fmt.Sprintf("nats://127.0.0.1:%d", leafPort)}
	one, two := node(t, "one", cfg), node(t, "two", cfg)
	wait.For(t, "all have joined", func() bool {
		return center.cluster.State().Working && one.cluster.State().Working && two.cluster.State().Working && center.cluster.streams.ReadingsStream() != nil
	})
	atCenter, atTwo := make(chan int, 1000), make(chan int, 1000)
	listen := func(s *testNode, device string, got chan int) func() {
		return s.cluster.Samples(device, "light", func(r ferrule.Reading) {
			if len(r.Batches) != 1 || r.Node != "one" && r.Node != "center" {
				t.Errorf("got %+v", r)
			}
			got <- int(r.Batches[0].Samples[0].Value)
		})
	}
	defer listen(center, "pump", atCenter)()
	defer listen(two, "lamp", atTwo)()
	one.probe(center)
	probes := uint64(center.probe(two))
	one.measure("pump", 0, 100)
	center.measure("lamp", 0, 100)
	for n := range 100 {
		if got := []int{next(t, atTwo), next(t, atCenter)}; got[0] != n || got[1] != n {
			t.Fatalf("got %v, want %d", got, n)
		}
	}
	one.read("").expect(0, 100)
	center.read("").expect(0, 100)
	if n := stored(center); n != 100+probes {
		t.Errorf("%d are stored at the hub, want %d", n, 100+probes)
	}
	if n := stored(two); n != 0 {
		t.Errorf("%d are stored at the other leaf, want 0", n)
	}

	hub.Shutdown()
	hub.WaitForShutdown()
	one.measure("pump", 100, 200)
	one.read("").expect(0, 200)
	hubServer(t, dir, client, leafPort)
	wait.For(t, "the center gets readings again", func() bool {
		one.measure("pump", 200, 201)
		return len(atCenter) > 0
	})
	if n := stored(center); n != 100+probes {
		t.Errorf("%d are stored at the hub, want %d", n, 100+probes)
	}
}

// next returns the next value from a channel.
func next[T any](t *testing.T, from chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(wait.Ample):
		t.Fatal("no value arrived")
	}
	return got
}

// stored returns how many readings are in the stream of a node.
func stored(s *testNode) (n uint64) {
	s.t.Helper()
	wait.For(s.t, "the stream answers", func() bool {
		stream := s.cluster.streams.ReadingsStream()
		if stream == nil {
			return false
		}
		info, err := stream.Info(s.t.Context())
		if err == nil {
			n = info.State.Msgs
		}
		return err == nil
	})
	return n
}

// TestSamples checks that a listener gets the readings of its device from all nodes, and no
// others, and that nothing is subscribed without a listener.
func TestSamples(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a, b := node(t, "a", cfg), node(t, "b", cfg)
	wait.For(t, "both store readings", func() bool {
		return a.cluster.streams.ReadingsStream() != nil && b.cluster.streams.ReadingsStream() != nil
	})
	a.measure("other", 0, 1)
	wait.For(t, "it is stored", func() bool { return a.cluster.State().Unstored == 0 })
	conn := a.cluster.engine.Load().Conn
	before := conn.NumSubscriptions()
	received := make(chan string, 100)
	listen := func(device, signal string) func() {
		return a.cluster.Samples(device, signal, func(r ferrule.Reading) {
			for _, s := range r.Batches {
				received <- fmt.Sprint(r.Node, ".", r.Device, ".", s.Signal, ".", len(s.Samples))
			}
		})
	}
	stops := []func(){listen("robot", "light"), listen("robot", ""), listen("robot", "none"), listen("lamp", "heat")}
	if n := conn.NumSubscriptions() - before; n != 2 {
		t.Errorf("%d subscriptions for two devices", n)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, of := range []*testNode{a, b} {
		of.measure("robot", 0, 1)
		of.measure("other", 0, 1)
		for _, want := range []string{".robot.light.1", ".robot.light.1", ".robot.heat.0"} {
			if got := next(t, received); got != of.cluster.cfg.Node+want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}
	b.measure("lamp", 0, 1)
	if got := next(t, received); got != "b.lamp.heat.0" {
		t.Errorf("got %s", got)
	}
	for _, stop := range stops {
		stop()
		stop()
	}
	if n := conn.NumSubscriptions() - before; n != 0 {
		t.Errorf("%d subscriptions without a listener", n)
	}
	b.measure("robot", 1, 2)
	a.measure("robot", 1, 2)
	time.Sleep(50 * time.Millisecond)
	if len(received) > 0 {
		t.Errorf("got %s after stop", <-received)
	}
}
