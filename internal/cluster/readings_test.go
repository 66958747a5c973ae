package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
)

// lightOf is what a device says when it is asked for the nth time.
func lightOf(device string, n int) ferrule.Reading {
	at := time.UnixMicro(1_700_000_000_000_000 + int64(n)*1000)
	return ferrule.Reading{Device: device, Poll: "light", Time: at, Batches: []ferrule.SampleBatch{
		{Signal: "light", Unit: "lx", Samples: []ferrule.Sample{{Time: at, Value: float64(n), Within: ferrule.Duration(time.Millisecond)}}},
		{Signal: "heat"},
	}}
}

// measures has a node measure something some times, as fast as it takes them in.
func (s *site) measures(device string, from, to int) {
	s.t.Helper()
	for n := from; n < to; n++ {
		for end := time.Now().Add(20 * time.Second); !s.bus.Measured(lightOf(device, n)); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				s.t.Fatalf("reading %d of %s is not taken", n, device)
			}
		}
	}
}

// reader reads what a node has kept.
type reader struct {
	t    *testing.T
	stop func()

	mu     sync.Mutex
	values []int
	at     []string
	lost   []int // before which some are lost
	again  int
	level  bool
}

// reads reads what is kept at a node, after a place.
func (s *site) reads(after string) *reader {
	s.t.Helper()
	r := &reader{t: s.t}
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.bus.Readings(ctx, after, r.take); err != nil {
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
	r.level = r.level || k.Remaining == 0
	if k.MayRepeat {
		r.again++
	}
	if k.Reading == nil {
		return nil
	}
	n := int(k.Reading.Batches[0].Samples[0].Value)
	if k.Lost {
		r.lost = append(r.lost, n)
	}
	r.values, r.at = append(r.values, n), append(r.at, k.Position)
	return nil
}

// last is where the last stands that was read.
func (r *reader) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[len(r.at)-1]
}

// has waits until so many were read, and looks whether they are those, in order.
func (r *reader) has(from, to int) {
	r.t.Helper()
	count := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.values)
	}
	for end := time.Now().Add(30 * time.Second); count() < to-from && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.values) != to-from {
		r.t.Fatalf("%d readings were read, want %d", len(r.values), to-from)
	}
	for i, n := range r.values {
		if n != from+i {
			r.t.Fatalf("reading %d is %d", from+i, n)
		}
	}
}

func (r *reader) caughtUp() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.level
}

// TestReadings: what is measured at a node by itself is kept, each once and in order, and
// is read from where a reader left off, also after the node was stopped.
func TestReadings(t *testing.T) {
	t.Parallel()
	const some = 5000
	dir, cfg := t.TempDir(), DefaultConfig()
	a := nodeWith(t, "a", cfg, noJournal{}, dir)
	r := a.reads("")
	eventually(t, 10*time.Second, "it is told that there are none", r.caughtUp)
	start := time.Now()
	a.measures("robot", 0, some)
	r.has(0, some)
	t.Logf("%d readings were kept and read in %v", some, time.Since(start))
	half := r.at[some/2-1]
	a.reads(half).has(some/2, some)
	if n := a.bus.State().Unkept; n != 0 {
		t.Errorf("%d are said to wait", n)
	}
	a.stop()

	again := nodeWith(t, "a", cfg, noJournal{}, dir)
	s := again.reads(r.last())
	eventually(t, 10*time.Second, "it is told that there are no more", s.caughtUp)
	again.measures("robot", some, some+100)
	s.has(some, some+100)
	all := again.reads("")
	all.has(0, some+100)
	for _, r := range []*reader{r, s, all} {
		if len(r.lost) > 0 || r.again > 0 {
			t.Errorf("some are said to be lost before %v, and %d to come again", r.lost, r.again)
		}
	}
}

// TestReadingsLost: who goes on after a reading that is no longer there is told so, and
// gets what is.
func TestReadingsLost(t *testing.T) {
	t.Parallel()
	a := node(t, "a", DefaultConfig())
	a.measures("robot", 0, 100)
	first := a.reads("")
	first.has(0, 100)
	stream := *a.bus.readings.Load()
	purge := func(seq uint64) {
		t.Helper()
		if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(seq)); err != nil {
			t.Fatal(err)
		}
	}
	told := func(r *reader, lost string, again int) {
		t.Helper()
		r.mu.Lock()
		defer r.mu.Unlock()
		if fmt.Sprint(r.lost) != lost || r.again != again {
			t.Errorf("some are said to be lost before %v, want %s, and %d to come again, want %d", r.lost, lost, r.again, again)
		}
	}
	purge(11) // up to the tenth
	next := a.reads(first.at[9])
	next.has(10, 100)
	told(next, "[]", 0)
	late := a.reads(first.at[4])
	late.has(10, 100)
	told(late, "[10]", 90)

	// The end is lost with the power, and numbers are given again.
	cut := a.reads(strings.Replace(first.at[99], "100 ", "1000 ", 1))
	cut.has(10, 100)
	told(cut, "[10]", 90)
	other := a.reads(strings.Replace(first.at[99], "100 ", "50 ", 1))
	other.has(10, 100)
	told(other, "[10]", 90)

	// The stream is made anew.
	if err := a.bus.engine.Load().home.DeleteStream(t.Context(), samplesStream); err != nil {
		t.Fatal(err)
	}
	a.measures("robot", 100, 103)
	anew := a.reads(first.at[99])
	anew.has(100, 103)
	told(anew, "[]", 0) // they are the next that were measured

	if err := a.bus.Readings(t.Context(), "yesterday", nil); err == nil {
		t.Error("a place that makes no sense is taken")
	}
	wrong := errors.New("enough")
	if err := a.bus.Readings(t.Context(), "", func(ferrule.StoredReading) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("a reader that has enough gets %v", err)
	}
}

// TestReadingsOfOthers: what somebody else has written as this node's stops no reader, and it
// goes on after that as after any.
func TestReadingsOfOthers(t *testing.T) {
	a := node(t, "a", oneServer(t))
	a.measures("robot", 0, 1)
	a.reads("").has(0, 1)
	for n, data := range []string{`{}`, `{"device":"robot","node":"a","poll":"light","time":"2026-11-15T12:00:00Z","batches":[{"signal":"light","times":[1],"values":[1],"within":[1]}]}`} {
		if _, err := a.bus.engine.Load().home.Publish(t.Context(), a.bus.names.sample("robot", "light", false), []byte(data)); err != nil {
			t.Fatal(err)
		}
		var place string
		enough := errors.New("enough")
		err := a.bus.Readings(t.Context(), "", func(k ferrule.StoredReading) error {
			if place = k.Position; k.Remaining == 0 {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) {
			t.Fatal(err)
		}
		r := a.reads(place)
		a.measures("robot", n+1, n+2)
		r.has(n+1, n+2)
	}
}

// TestReadingsOvertaken: a reader that is too slow is told that some are lost.
func TestReadingsOvertaken(t *testing.T) {
	t.Parallel()
	a := node(t, "a", DefaultConfig())
	a.measures("robot", 0, 3000)
	wait, seen := make(chan struct{}), make(chan ferrule.StoredReading, 10000)
	go a.bus.Readings(t.Context(), "", func(k ferrule.StoredReading) error {
		seen <- k
		if len(seen) == 1 {
			<-wait
		}
		return nil
	})
	eventually(t, 10*time.Second, "one is read", func() bool { return len(seen) == 1 })
	eventually(t, 10*time.Second, "all are kept", func() bool { return a.bus.State().Unkept == 0 })
	if err := (*a.bus.readings.Load()).Purge(t.Context(), jetstream.WithPurgeSequence(2990)); err != nil {
		t.Fatal(err)
	}
	close(wait)
	a.measures("robot", 3000, 3010)
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
		t.Errorf("it was told %d times that some are lost", lost)
	}
}

// TestBacklog: readings that cannot be kept wait, up to a bound; those beyond it are not
// taken, and nobody hears of them.
func TestBacklog(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers = Join, []string{"nats://127.0.0.1:1"}
	a := node(t, "a", cfg)
	heard := 0
	defer a.bus.Samples("robot", "", func(ferrule.Reading) { heard++ })()
	n := 0
	for a.bus.Measured(lightOf("robot", n)) {
		n++
	}
	if n != maxBacklog || heard != n || a.bus.State().Unkept != n {
		t.Errorf("%d were taken, %d were heard, and %d wait", n, heard, a.bus.State().Unkept)
	}
	if a.bus.Measured(ferrule.Reading{Device: "a b"}) {
		t.Error("what makes no sense is taken")
	}

	l := &backlog{name: "x"}
	for l.add("s", make([]byte, 1<<20)) {
	}
	if l.length() != maxBacklogBytes>>20 {
		t.Errorf("%d MiB wait", l.length())
	}
	for _, n := range []uint64{3, 1, 2, 2, 99} { // in any order
		l.forget(n)
	}
	if p, ok := l.next(0); !ok || p.last != 4 || l.bytes != maxBacklogBytes-3<<20 {
		t.Errorf("the first is %d, and %d bytes wait", p.last, l.bytes)
	}
	l.forget(6)
	if p, ok := l.next(5); !ok || p.last != 7 {
		t.Errorf("after the fifth comes %d", p.last)
	}
	if !l.add("s", nil) {
		t.Error("nothing more is taken")
	}
	l.end()
	if l.add("s", nil) {
		t.Error("something is taken after the end")
	}
}

// TestReadingTooLong: a reading that is longer than servers take is not taken, or if it was
// before they were asked, it does not keep others from being kept.
func TestReadingTooLong(t *testing.T) {
	t.Parallel()
	port := natscluster.Port(t)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Join, []string{fmt.Sprintf("nats://127.0.0.1:%d", port)}, 1, 1
	a := node(t, "a", cfg)
	long := lightOf("robot", 0)
	for n := 1; n < ferrule.MaxSamples; n++ {
		long.Batches[0].Samples = append(long.Batches[0].Samples, lightOf("robot", n).Batches[0].Samples[0])
	}
	a.measures("robot", 1, 2)
	if !a.bus.Measured(long) {
		t.Error("it is not known yet how long it may be")
	}
	a.measures("robot", 2, 3)
	startServer(t, &server.Options{Port: port, StoreDir: t.TempDir(), MaxPayload: 16 << 10})
	r := a.reads("")
	r.has(1, 3)
	if a.bus.Measured(long) {
		t.Error("it is taken")
	}
	a.measures("robot", 3, 4)
	r.has(1, 4)
	if n := a.bus.State().Unkept; n != 0 {
		t.Errorf("%d wait", n)
	}
}

// TestReadingsOnce: a server that ends and comes again while readings are on their way
// has each of them once.
func TestReadingsOnce(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), natscluster.Port(t)
	start := func() *server.Server {
		return hubServer(t, dir, port, natscluster.Port(t))
	}
	s := start()
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Join, []string{fmt.Sprintf("nats://127.0.0.1:%d", port)}, 1, 1
	a := node(t, "a", cfg)
	const rounds, some = 3, 6000
	var wg sync.WaitGroup
	wg.Go(func() { a.measures("robot", 0, rounds*some) })
	for round := range rounds {
		eventually(t, 30*time.Second, "some are kept", func() bool {
			p, ok := a.bus.carrier.backlog.next(0)
			return ok && p.last > uint64(round*some+100)
		})
		s.Shutdown()
		s.WaitForShutdown()
		s = start()
	}
	wg.Wait()
	eventually(t, 30*time.Second, "all are kept", func() bool { return a.bus.State().Unkept == 0 })
	info, err := (*a.bus.readings.Load()).Info(t.Context())
	if err != nil || info.State.Msgs != rounds*some {
		t.Errorf("%d are kept, %v", info.State.Msgs, err)
	}
	a.reads("").has(0, rounds*some)
}

// TestReadingsInCluster: the server that leads the stream is killed while readings are on
// their way, and each of them is kept once.
func TestReadingsInCluster(t *testing.T) {
	t.Parallel()
	servers := natscluster.Start(t, natscluster.Options{})
	cfg := DefaultConfig()
	cfg.Mode, cfg.Tenant, cfg.Shards, cfg.Servers = Join, "acme", 1, strings.Split(servers.URLs(), ",")
	a, b := node(t, "a", cfg), node(t, "b", cfg)
	eventually(t, 60*time.Second, "both keep readings", func() bool { return a.bus.readings.Load() != nil && b.bus.readings.Load() != nil })
	var hears atomic.Int64
	defer b.bus.Samples("robot", "light", func(ferrule.Reading) { hears.Add(1) })()
	time.Sleep(100 * time.Millisecond) // it takes servers a moment to know who listens
	const some = 4000
	start := time.Now()
	for n := range some {
		a.measures("robot", n, n+1)
		b.measures("lamp", n, n+1)
	}
	eventually(t, 30*time.Second, "all are kept", func() bool { return a.bus.State().Unkept+b.bus.State().Unkept == 0 })
	t.Logf("%d readings were kept on three servers in %v", 2*some, time.Since(start))
	info, err := (*a.bus.readings.Load()).Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers.Servers {
		if s.Name == info.Cluster.Leader {
			go func() { time.Sleep(50 * time.Millisecond); s.Kill() }()
		}
	}
	var wg sync.WaitGroup
	for device, s := range map[string]*site{"robot": a, "lamp": b} {
		wg.Go(func() { s.measures(device, some, 3*some) })
	}
	wg.Wait()
	eventually(t, 30*time.Second, "all are kept", func() bool { return a.bus.State().Unkept+b.bus.State().Unkept == 0 })
	t.Logf("the rest was kept %v after it began", time.Since(start))
	for _, s := range []*site{a, b} {
		r := s.reads("")
		eventually(t, 30*time.Second, "all are read", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.values) >= 3*some })
		time.Sleep(100 * time.Millisecond)
		r.mu.Lock()
		times := make(map[int]int)
		for _, n := range r.values {
			times[n]++
		}
		if len(times) != 3*some || len(r.values) != 3*some || len(r.lost) > 0 {
			t.Errorf("%d of %d readings are kept, in %d; some are said to be lost before %v", len(times), 3*some, len(r.values), r.lost)
		}
		r.mu.Unlock()
	}
	if n := hears.Load(); n < some {
		t.Errorf("%d were heard", n)
	}
}

// TestReadingsAtSite: a leaf keeps what is measured there by itself, whether its hub is
// there or not, and the hub keeps none of it; who listens at the hub hears it.
func TestReadingsAtSite(t *testing.T) {
	t.Parallel()
	dir, client, leafPort := t.TempDir(), natscluster.Port(t), natscluster.Port(t)
	hub := hubServer(t, dir, client, leafPort)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Join, []string{fmt.Sprintf("nats://127.0.0.1:%d", client)}, 1, 1
	centre := node(t, "centre", cfg)
	cfg.Mode, cfg.Servers = Leaf, []string{fmt.Sprintf("nats://127.0.0.1:%d", leafPort)}
	one, two := node(t, "one", cfg), node(t, "two", cfg)
	eventually(t, 20*time.Second, "all take part", func() bool {
		return centre.bus.State().Working && one.bus.State().Working && two.bus.State().Working && centre.bus.readings.Load() != nil
	})
	atCentre, atTwo := make(chan int, 1000), make(chan int, 1000)
	listen := func(s *site, device string, heard chan int) func() {
		return s.bus.Samples(device, "light", func(r ferrule.Reading) {
			if len(r.Batches) != 1 || r.Node != "one" && r.Node != "centre" {
				t.Errorf("got %+v", r)
			}
			heard <- int(r.Batches[0].Samples[0].Value)
		})
	}
	defer listen(centre, "pump", atCentre)()
	defer listen(two, "lamp", atTwo)()
	time.Sleep(200 * time.Millisecond) // it takes servers a moment to know who listens
	one.measures("pump", 0, 100)
	centre.measures("lamp", 0, 100)
	for n := range 100 {
		if got := []int{next(t, atTwo), next(t, atCentre)}; got[0] != n || got[1] != n {
			t.Fatalf("heard %v, want %d", got, n)
		}
	}
	one.reads("").has(0, 100)
	centre.reads("").has(0, 100)
	if n := kept(t, centre); n != 100 {
		t.Errorf("%d are kept at the hub", n)
	}
	if n := kept(t, two); n != 0 {
		t.Errorf("%d are kept at the other site", n)
	}

	hub.Shutdown()
	hub.WaitForShutdown()
	one.measures("pump", 100, 200)
	one.reads("").has(0, 200)
	hubServer(t, dir, client, leafPort)
	eventually(t, 20*time.Second, "the centre hears it again", func() bool {
		one.measures("pump", 200, 201)
		return len(atCentre) > 0
	})
	if n := kept(t, centre); n != 100 {
		t.Errorf("%d are kept at the hub", n)
	}
}

// next is the next that is heard.
func next[T any](t *testing.T, heard chan T) (got T) {
	t.Helper()
	select {
	case got = <-heard:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing is heard")
	}
	return got
}

// kept is how many readings there are in the stream that a node keeps them in.
func kept(t *testing.T, s *site) (n uint64) {
	t.Helper()
	eventually(t, 10*time.Second, "the stream can be asked", func() bool {
		stream := s.bus.readings.Load()
		if stream == nil {
			return false
		}
		info, err := (*stream).Info(t.Context())
		if err == nil {
			n = info.State.Msgs
		}
		return err == nil
	})
	return n
}

// TestSamples: who listens to a device hears it, wherever it is, and nothing else; when
// nobody does, nothing is subscribed to.
func TestSamples(t *testing.T) {
	cfg := oneServer(t)
	a, b := node(t, "a", cfg), node(t, "b", cfg)
	eventually(t, 10*time.Second, "both keep readings", func() bool { return a.bus.readings.Load() != nil && b.bus.readings.Load() != nil })
	a.measures("other", 0, 1)
	eventually(t, 10*time.Second, "it is kept", func() bool { return a.bus.State().Unkept == 0 })
	conn := a.bus.engine.Load().conn
	before := conn.NumSubscriptions()
	heard := make(chan string, 100)
	listen := func(device, signal string) func() {
		return a.bus.Samples(device, signal, func(r ferrule.Reading) {
			for _, s := range r.Batches {
				heard <- fmt.Sprint(r.Node, ".", r.Device, ".", s.Signal, ".", len(s.Samples))
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
	for _, of := range []*site{a, b} {
		of.measures("robot", 0, 1)
		of.measures("other", 0, 1)
		for _, want := range []string{".robot.light.1", ".robot.light.1", ".robot.heat.0"} {
			if got := next(t, heard); got != of.bus.cfg.Node+want {
				t.Errorf("heard %s, want %s", got, want)
			}
		}
	}
	b.measures("lamp", 0, 1)
	if got := next(t, heard); got != "b.lamp.heat.0" {
		t.Errorf("heard %s", got)
	}
	for _, stop := range stops {
		stop()
		stop()
	}
	if n := conn.NumSubscriptions() - before; n != 0 {
		t.Errorf("%d subscriptions for nobody", n)
	}
	b.measures("robot", 1, 2)
	a.measures("robot", 1, 2)
	time.Sleep(50 * time.Millisecond)
	if len(heard) > 0 {
		t.Errorf("heard %s after it was enough", <-heard)
	}
}

// TestSamplesOnce: what another node sends again is heard once.
func TestSamplesOnce(t *testing.T) {
	var tuner tuner
	n := 0
	tuner.join("robot", &hearer{"", func(ferrule.Reading) { n++ }})
	for _, m := range []mark{{"x", 1}, {"x", 2}, {"x", 2}, {"x", 1}, {"y", 1}, {}, {}} {
		tuner.tellOnce(ferrule.Reading{Device: "robot", Node: "b"}, m)
	}
	if n != 5 {
		t.Errorf("%d were heard", n)
	}
}

// FuzzReading: whatever is sent as a reading, what is made of it is well, and can be sent
// on as the same.
func FuzzReading(f *testing.F) {
	n := names{"acme", "a"}
	f.Add("ferrule.acme.sample.b.toy.light", []byte(`{"device":"toy","node":"b","poll":"light","time":"2026-11-15T12:00:00Z","batches":[{"signal":"light","times":[1700000000000000,500000],"values":[1,2],"within":[250000,-3]}]}`), "k-b-7")
	f.Add("ferrule.acme.sample.b.toy.light.site", []byte(`{"device":"toy","node":"b","poll":"light","time":"2026-11-15T12:00:00Z","batches":[{"signal":"light","gaps":[{"from":"2026-11-15T12:00:00Z","to":"2026-11-15T12:00:00Z","reason":"lost"}]}]}`), "")
	f.Add("ferrule.acme.sample.b.toy.heat", []byte(`{"device":"toy","node":"c","poll":"light"}`), "-")
	f.Fuzz(func(t *testing.T, subject string, data []byte, id string) {
		msg := nats.NewMsg(subject)
		msg.Header.Set(jetstream.MsgIDHeader, id)
		place := keptAt{1, idOf(msg.Header)}
		if again, err := parsePlace(place.String()); err != nil || again != place {
			t.Errorf("%v is written as %q: %v", place.id, place, err)
		}
		r, err := n.parseReading(subject, data)
		if err != nil {
			return
		}
		if r.Check() != nil || !strings.HasPrefix(subject, names{"acme", r.Node}.sample(r.Device, r.Poll, false)) {
			t.Errorf("%q was taken for %+v", subject, r)
		}
		again, err := encodeReading(&r)
		if err != nil {
			return // a moment that cannot be written
		}
		if same, err := n.parseReading(subject, again); err != nil || same.Device != r.Device || len(same.Batches) != len(r.Batches) {
			t.Errorf("%+v was sent on as %s: %v", r, again, err)
		}
	})
}
