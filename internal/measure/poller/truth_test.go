package poller_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/mcpu"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	store "github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
	samples "github.com/ferrulehq/ferrule/internal/measure/ring"
)

// stream keeps readings for the history, as the cluster does.
type stream struct {
	mu   sync.Mutex
	all  []ferrule.Reading
	more chan struct{} // closed when readings are added
}

func (s *stream) add(r ferrule.Reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, r)
	close(s.more)
	s.more = make(chan struct{})
}

// Readings implements history.Source.
func (s *stream) Readings(ctx context.Context, after string, fn func(ferrule.StoredReading) error) error {
	next := 0
	fmt.Sscan(after, &next)
	for first := true; ; first = false {
		s.mu.Lock()
		fresh, more := s.all[next:], s.more
		s.mu.Unlock()
		for i := range fresh {
			next++
			if err := fn(ferrule.StoredReading{Reading: &fresh[i], Position: fmt.Sprint(next), Remaining: uint64(len(fresh) - 1 - i)}); err != nil {
				return err
			}
		}
		if first {
			if err := fn(ferrule.StoredReading{Position: fmt.Sprint(next)}); err != nil {
				return err
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
	}
}

// site is a board with a history, and what really happened to it.
type site struct {
	t        *testing.T
	file     string
	stream   *stream
	rnd      *rand.Rand
	manifest *ferrule.Manifest
	start    time.Time

	mu     sync.Mutex
	busy   time.Time              // until when a call of somebody else runs
	boots  []time.Time            // when the board started
	reads  map[string][]time.Time // answers that reached the poller, by tool
	failed map[string][]time.Time // polls without an answer
	kills  []time.Time            // when the gateway was killed

	store  *store.Store
	poller *poller.Poller
	end    func(kill bool)
}

const (
	siteEvery = 5 * time.Second // interval of the polled tool
	ringEvery = 500 * time.Millisecond
	ringSize  = 60
)

// begin starts a gateway.
func (s *site) begin() {
	cfg := store.DefaultConfig()
	cfg.Sync = time.Minute // fewer writes make the test faster
	kept, err := store.Open(s.file, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		s.t.Fatal(err)
	}
	var killed bool // guarded by mu
	p := poller.New(poller.Parts{
		Config: poller.DefaultConfig(), Handle: s.handle, History: kept, Node: "here", Log: slog.New(slog.DiscardHandler),
		Polls: map[string]func(*ferrule.Manifest) []ferrule.Poll{"d": mcpu.Polls},
		Publish: func(r ferrule.Reading) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !killed {
				s.stream.add(r)
			}
			return !killed
		},
	})
	ctx, cancel := context.WithCancel(s.t.Context())
	var polls, writes sync.WaitGroup
	polls.Go(func() { p.Run(ctx) })
	writing, stop := context.WithCancel(s.t.Context())
	writes.Go(func() { kept.Run(writing, s.stream) })
	s.store, s.poller = kept, p
	s.end = func(kill bool) {
		s.mu.Lock()
		if killed = kill; kill {
			s.kills = append(s.kills, time.Now())
		}
		s.mu.Unlock()
		cancel()
		polls.Wait()
		stop()
		writes.Wait()
		kept.Close()
	}
	p.Put(online("robot"), s.manifest)
}

// handle answers as the board does, after the calls before it.
func (s *site) handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	s.mu.Lock()
	busy := time.Until(s.busy)
	s.mu.Unlock()
	limit := time.Duration(call.Timeout)
	if limit == 0 {
		limit = time.Minute
	}
	select {
	case <-time.After(min(max(busy, 0), limit)):
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := call.Tool + string(call.Args)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if busy > limit {
		s.failed[key] = append(s.failed[key], time.Now())
		return nil, ferrule.Errorf(ferrule.Busy, "busy")
	}
	now := time.Now()
	s.reads[key] = append(s.reads[key], now)
	return &ferrule.Result{Value: []byte(s.answer(call, now)), Sent: now, Answered: now}, nil
}

// answer returns what the board says: a changing value, a state that changes every few
// minutes, and two rings, one of them flat.
func (s *site) answer(call *ferrule.Call, now time.Time) string {
	seconds := int(now.Sub(s.start).Seconds())
	switch {
	case call.Tool == "look":
		return fmt.Sprint(seconds)
	case call.Tool == "get_pin_events" && seconds/200%2 == 1:
		return `{"events":[{"type":"threshold_high"}]}`
	case call.Tool == "get_pin_events":
		return `{"events":[]}`
	}
	var values []string
	to := int(now.Sub(s.start) / ringEvery)
	from := max(to-ringSize+1, int(s.boots[len(s.boots)-1].Sub(s.start)/ringEvery)+1)
	for n := from; n <= to; n++ {
		v := 7
		if strings.Contains(string(call.Args), "35") {
			v = n
		}
		values = append(values, fmt.Sprint(v))
	}
	return fmt.Sprintf(`{"values":[%s]}`, strings.Join(values, ","))
}

func siteManifest() *ferrule.Manifest {
	sampling := &ferrule.Sampling{Interval: ferrule.Duration(ringEvery), Size: ringSize}
	return &ferrule.Manifest{
		Tools: []ferrule.Tool{
			{Name: "look", Effect: ferrule.Reads, Poll: ferrule.Duration(siteEvery)},
			{Name: "get_pin_buffer", Effect: ferrule.Reads}, {Name: "get_pin_events", Effect: ferrule.Reads},
		},
		Pins: []ferrule.Pin{
			{Number: 34, Name: "flat", Abilities: []string{"buffer"}, Sampling: sampling},
			{Number: 35, Name: "wave", Abilities: []string{"buffer"}, Sampling: sampling},
			{Number: 36, Name: "door", Abilities: []string{"events"}, Sampling: &ferrule.Sampling{Interval: ferrule.Duration(siteEvery)}},
		},
	}
}

// happen lets something happen to the board or the gateway.
func (s *site) happen() string {
	pause := time.Duration(s.rnd.Int64N(int64([]time.Duration{time.Second, 10 * time.Second, 2 * time.Minute}[s.rnd.IntN(3)])))
	what := []string{"nothing", "stop", "kill", "forget", "reconnect", "busy", "reboot", "firmware"}[s.rnd.IntN(8)]
	switch what {
	case "stop", "kill":
		s.end(what == "kill")
		time.Sleep(pause)
		s.begin()
	case "forget":
		s.poller.Remove("robot")
		time.Sleep(pause)
		s.poller.Put(online("robot"), s.manifest)
	case "reconnect":
		s.poller.Put(in(ferrule.StateOffline, "robot"), s.manifest)
		time.Sleep(pause)
		s.poller.Put(online("robot"), s.manifest)
	case "busy":
		s.mu.Lock()
		s.busy = time.Now().Add(pause)
		s.mu.Unlock()
	case "reboot":
		s.poller.Put(in(ferrule.StateOffline, "robot"), s.manifest)
		time.Sleep(pause)
		s.mu.Lock()
		s.boots = append(s.boots, time.Now())
		s.mu.Unlock()
		s.poller.Put(online("robot"), s.manifest)
	case "firmware":
		s.manifest = siteManifest()
		s.poller.Put(online("robot"), s.manifest)
	}
	return fmt.Sprintf("%s %v", what, pause)
}

var gapSeeds = flag.Uint64("gap-seeds", 1, "how many histories TestGapsAreTrue checks")

// TestGapsAreTrue checks the gaps of all sorts of signals against what happened: stops and
// kills of the gateway, forgotten and reconnected devices, busy and rebooted boards. Every
// stretch without values is a gap that starts at the last value seen, and nothing else is.
func TestGapsAreTrue(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	for seed := range *gapSeeds {
		synctest.Test(t, func(t *testing.T) {
			s := &site{
				t: t, file: filepath.Join(t.TempDir(), "history.db"), stream: &stream{more: make(chan struct{})}, rnd: rand.New(rand.NewPCG(seed, 16)),
				manifest: siteManifest(), start: time.Now(), reads: make(map[string][]time.Time), failed: make(map[string][]time.Time),
			}
			s.boots = []time.Time{s.start}
			s.begin()
			var events []string
			for range 40 {
				time.Sleep(time.Duration(s.rnd.Int64N(int64(3 * time.Minute))))
				at := time.Since(s.start)
				events = append(events, fmt.Sprintf("%v %s", at, s.happen()))
			}
			time.Sleep(3 * time.Minute)
			s.end(false)
			s.begin() // reads what was published last
			time.Sleep(time.Minute)
			all, err := s.store.Series(t.Context(), ferrule.HistoryQuery{Device: "robot", From: s.start, To: time.Now(), Points: store.MaxPoints, Resolution: ferrule.Raw})
			s.end(false)
			if err != nil || len(all) != 4 {
				t.Fatalf("%d series, %v", len(all), err)
			}
			for _, c := range all {
				switch c.Signal {
				case "look":
					s.checkPolled(c, "look", 0, 0)
				case "door_threshold":
					s.checkPolled(c, `get_pin_events{"pin":36}`, samples.MaxAge(siteEvery)/2, time.Minute+siteEvery)
				case "flat":
					s.checkRing(c, `get_pin_buffer{"pin":34,"limit":60}`)
				case "wave":
					s.checkRing(c, `get_pin_buffer{"pin":35,"limit":60}`)
				}
			}
			if t.Failed() {
				t.Logf("seed %d:\n%s", seed, strings.Join(events, "\n"))
			}
		})
	}
}

// checkPolled compares the gaps of a signal with the answers of its tool. Age is how much
// older than its answer a value is recorded, and early is how much too early a gap may start
// after the gateway was killed.
func (s *site) checkPolled(c ferrule.Series, tool string, age, early time.Duration) {
	s.t.Helper()
	const every, exact = siteEvery, 2 * time.Millisecond
	gaps := slices.Clone(c.Gaps)
	reads := s.reads[tool]
	for i, to := range reads[1:] {
		from := reads[i]
		within := func(all []time.Time) bool {
			return slices.ContainsFunc(all, func(at time.Time) bool { return !at.Before(from) && at.Before(to) })
		}
		at := slices.IndexFunc(gaps, func(g ferrule.Gap) bool { return g.To.Add(age).Sub(to).Abs() < exact })
		limit := exact
		if within(s.kills) {
			limit += early
		}
		switch away := to.Sub(from); {
		case at < 0 && (within(s.failed[tool]) && away > every*9/4 || away > every*5/2):
			s.t.Errorf("%s: no gap from %v to %v", c.Signal, from.Sub(s.start), to.Sub(s.start))
		case at >= 0 && limit == exact && !within(s.failed[tool]) && away < every*19/10:
			s.t.Errorf("%s: false gap between reads at %v and %v: %s", c.Signal, from.Sub(s.start), to.Sub(s.start), gaps[at].Reason)
		case at >= 0:
			if start := gaps[at].From.Add(age); from.Sub(start) > limit || start.Sub(from) > exact {
				s.t.Errorf("%s: gap starts at %v, but it was seen at %v", c.Signal, start.Sub(s.start), from.Sub(s.start))
			}
		}
		if at >= 0 {
			gaps = slices.Delete(gaps, at, at+1)
		}
	}
	for _, g := range gaps {
		s.t.Errorf("%s: gap from %v to %v without a read: %s", c.Signal, g.From.Sub(s.start), g.To.Sub(s.start), g.Reason)
	}
}

// checkRing compares the gaps of a ring with what the board sampled: a gap is where samples
// were overwritten, or lost in a reboot, before they were read.
func (s *site) checkRing(c ferrule.Series, tool string) {
	s.t.Helper()
	const slack, whole = 2 * ringEvery, ringSize * ringEvery
	gaps := slices.Clone(c.Gaps)
	reads := s.reads[tool]
	for i, to := range reads[1:] {
		from := reads[i]
		rebooted := func(after time.Time) bool {
			return slices.ContainsFunc(s.boots, func(at time.Time) bool { return at.After(after) && at.Before(to) })
		}
		at := slices.IndexFunc(gaps, func(g ferrule.Gap) bool { return g.To.After(from.Add(-slack)) && g.From.Before(to.Add(-slack)) })
		switch away := to.Sub(from); {
		case at < 0 && (away > whole+slack || rebooted(from.Add(slack))):
			s.t.Errorf("%s: no gap from %v to %v", c.Signal, from.Sub(s.start), to.Sub(s.start))
		case at >= 0 && away < whole*9/10 && !rebooted(from.Add(-whole)): // a ring that is still filling may be unclear
			s.t.Errorf("%s: false gap between reads at %v and %v: %+v", c.Signal, from.Sub(s.start), to.Sub(s.start), gaps[at])
		case at >= 0 && (gaps[at].From.Sub(from).Abs() > slack || gaps[at].To.After(to.Add(slack))):
			s.t.Errorf("%s: gap %+v between reads at %v and %v", c.Signal, gaps[at], from.Sub(s.start), to.Sub(s.start))
		}
		if at >= 0 {
			gaps = slices.Delete(gaps, at, at+1)
		}
	}
	for _, g := range gaps {
		s.t.Errorf("%s: gap from %v to %v without a read: %s", c.Signal, g.From.Sub(s.start), g.To.Sub(s.start), g.Reason)
	}
}
