package pipeline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// shop knows any number of devices with tools whose answers are cached or not.
type shop struct{ since atomic.Int64 }

func (s *shop) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	dev := &ferrule.Device{ID: id, Kind: "k", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted, Since: time.Unix(s.since.Load(), 0)}
	return dev, &ferrule.Manifest{Tools: []ferrule.Tool{
		{Name: "look", Effect: ferrule.Reads},
		{Name: "peek", Effect: ferrule.Reads, Cache: new(ferrule.Duration(5 * time.Second))},
		{Name: "watch", Effect: ferrule.Reads, Cache: new(ferrule.Duration(0))},
		{Name: "move", Effect: ferrule.Changes},
		{Name: "burn", Effect: ferrule.Endangers},
		{Name: "press", Effect: ferrule.Changes, Cache: new(ferrule.Duration(5 * time.Second))},
	}}, true
}

// counter counts what reaches the devices, and answers with the count.
type counter struct{ sent atomic.Int64 }

func (c *counter) handle(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	n := c.sent.Add(1)
	if strings.Contains(string(call.Args), "fail") {
		return nil, ferrule.Errorf(ferrule.Failed, "it failed")
	}
	if strings.Contains(string(call.Args), "panic") {
		panic("short circuit")
	}
	return &ferrule.Result{Value: json.RawMessage(strconv.FormatInt(n, 10))}, nil
}

func withCache(usual time.Duration, devices lookup, j pipeline.Journal, end ferrule.Handler) *pipeline.Pipeline {
	config := pipeline.DefaultConfig()
	config.Cache = usual
	return pipeline.New(pipeline.Parts{Config: config, Journal: j, Fleet: testFleet{devices, end}, Log: slog.New(slog.DiscardHandler)})
}

// TestCache makes calls in sequence and compares the answers: the number of calls
// that had reached a device by then.
func TestCache(t *testing.T) {
	type step struct {
		call string // device tool arguments
		want string // the answer and its age, or a code
	}
	const usual = 3 * time.Second
	for name, test := range map[string]struct {
		usual time.Duration
		steps []step
	}{
		"off":                          {0, []step{{"a look", "1"}, {"a look", "2"}}},
		"as usual":                     {usual, []step{{"a look", "1"}, {"wait 2s", ""}, {"a look", "1 2s"}, {"wait 1s", ""}, {"a look", "2"}}},
		"at once, and yet not new":     {usual, []step{{"a look", "1"}, {"a look", "1 1ms"}}},
		"as an overlay says":           {0, []step{{"a peek", "1"}, {"wait 4999ms", ""}, {"a peek", "1 4.999s"}, {"wait 1ms", ""}, {"a peek", "2"}}},
		"a hit makes nothing younger":  {0, []step{{"a peek", "1"}, {"wait 4s", ""}, {"a peek", "1 4s"}, {"wait 1s", ""}, {"a peek", "2"}}},
		"not at all, an overlay says":  {usual, []step{{"a watch", "1"}, {"a watch", "2"}}},
		"not what changes":             {usual, []step{{"a move", "1"}, {"a move", "2"}, {"a burn", "3"}, {"a burn", "4"}}},
		"unless an overlay says so":    {0, []step{{"a press", "1"}, {"wait 1s", ""}, {"a press", "1 1s"}, {"wait 4s", ""}, {"a press", "2"}}},
		"which another change ends":    {0, []step{{"a press", "1"}, {"a move", "2"}, {"a press", "3"}}},
		"or the same, otherwise":       {0, []step{{`a press {"on":true}`, "1"}, {`a press {"on":false}`, "2"}, {`a press {"on":true}`, "3"}}},
		"a kept change drops nothing":  {0, []step{{"a press", "1"}, {"a peek", "2"}, {"a press", "1 1ms"}, {"a peek", "2 1ms"}}},
		"a change drops":               {usual, []step{{"a look", "1"}, {"a peek", "2"}, {"a move", "3"}, {"a look", "4"}, {"a peek", "5"}}},
		"a change that fails drops":    {usual, []step{{"a look", "1"}, {`a move {"x":"fail"}`, "failed"}, {"a look", "3"}}},
		"a change that panics drops":   {usual, []step{{"a look", "1"}, {`a move {"x":"panic"}`, "internal"}, {"a look", "3"}, {"a look", "3 1ms"}}},
		"of its own device only":       {usual, []step{{"a look", "1"}, {"b look", "2"}, {"a move", "3"}, {"b look", "2 1ms"}, {"a look", "4"}}},
		"a call that is refused, not":  {usual, []step{{"a look", "1"}, {"a move [", "invalid"}, {"a look", "1 1ms"}}},
		"a reconnect forgets":          {usual, []step{{"a look", "1"}, {"reconnect", ""}, {"a look", "2"}, {"a look", "2 1ms"}}},
		"failures are not kept":        {usual, []step{{`a look {"x":"fail"}`, "failed"}, {`a look {"x":"fail"}`, "failed"}, {"a look", "3"}}},
		"nor panics":                   {usual, []step{{`a look {"x":"panic"}`, "internal"}, {`a look {"x":"panic"}`, "internal"}, {"a look", "3"}}},
		"other arguments":              {usual, []step{{`a look {"x":1}`, "1"}, {`a look {"x":2}`, "2"}, {`a look {"x":1}`, "1 1ms"}}},
		"the same, written otherwise":  {usual, []step{{`a look {"x":1,"y":"é"}`, "1"}, {`a look { "y" : "\u00e9", "x":1 }`, "1 1ms"}}},
		"none, written otherwise":      {usual, []step{{"a look", "1"}, {"a look {}", "1 1ms"}}},
		"numbers that no double holds": {usual, []step{{`a look {"x":9007199254740992}`, "1"}, {`a look {"x":9007199254740993}`, "2"}}},
		"another tool":                 {usual, []step{{"a look", "1"}, {"a peek", "2"}}},
		"the gateway knows who asks":   {usual, []step{{"gateway look", "1"}, {"gateway look", "2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var fleet shop
				p := withCache(test.usual, &fleet, &ledger{}, new(counter).handle)
				for i, step := range test.steps {
					words := strings.SplitN(step.call+"  ", " ", 3)
					switch words[0] {
					case "wait":
						d, err := time.ParseDuration(words[1])
						if err != nil {
							t.Fatal(err)
						}
						time.Sleep(d)
						continue
					case "reconnect":
						fleet.since.Add(1)
						continue
					}
					who := []ferrule.Principal{anna, robby}[i%2] // who asks plays no part
					result, err := p.Handle(t.Context(), &ferrule.Call{Principal: who, Device: words[0], Tool: words[1], Args: json.RawMessage(words[2])})
					got := ""
					switch {
					case err != nil:
						got = string(ferrule.AsError(err).Code)
					case result.Age > 0:
						got = fmt.Sprintf("%s %v", result.Value, result.Age)
					default:
						got = string(result.Value)
					}
					if got != step.want {
						t.Errorf("step %d, %s: got %q, want %q", i+1, step.call, got, step.want)
					}
				}
			})
		})
	}
}

// TestCacheRecords checks that a cached answer has an outcome and no intent, even
// for a tool that changes something.
func TestCacheRecords(t *testing.T) {
	var l ledger
	p := withCache(time.Minute, &shop{}, &l, new(counter).handle)
	for _, tool := range []string{"press", "press", "look", "look", "look", "watch"} {
		if _, err := p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "a", Tool: tool}); err != nil {
			t.Fatal(err)
		}
	}
	want := "intent a press {} durable, outcome a press {} durable, outcome a press {}, " +
		"outcome a look {}, outcome a look {}, outcome a look {}, outcome a watch {}"
	if got := strings.Join(l.entries, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	s := p.Stats()
	if s.CacheHits != 3 || s.CacheMisses != 2 || s.CacheEntries != 2 || s.CacheBytes < 2 || s.Limited != 0 {
		t.Errorf("got %+v", s)
	}
}

// TestCacheDenies checks that a cached answer is not given to a caller who is
// forbidden it.
func TestCacheDenies(t *testing.T) {
	config := pipeline.DefaultConfig()
	config.Cache = time.Minute
	p := pipeline.New(pipeline.Parts{
		Config: config, Journal: &ledger{}, Fleet: testFleet{&shop{}, new(counter).handle}, Log: slog.New(slog.DiscardHandler),
		Policy: func(call *ferrule.Call) ferrule.Verdict {
			if call.Principal == anna {
				return ferrule.Verdict{Ruling: ferrule.Permit}
			}
			return ferrule.Verdict{Ruling: ferrule.Forbid, Reason: "not for agents"}
		},
	})
	for who, code := range map[ferrule.Principal]ferrule.Code{anna: "", robby: ferrule.Denied} {
		for range 2 {
			_, err := p.Handle(t.Context(), &ferrule.Call{Principal: who, Device: "a", Tool: "look"})
			if (err != nil) != (code != "") || err != nil && ferrule.AsError(err).Code != code {
				t.Errorf("%s: %v", who, err)
			}
		}
	}
}

// TestCacheDuringChange checks that an answer is not cached if a change was in
// flight at the same time.
func TestCacheDuringChange(t *testing.T) {
	for name, test := range map[string]struct {
		order string // r and w begin a read and a change, R and W end them
		kept  bool
	}{
		"alone":                         {"rR", true},
		"a change before":               {"wWrR", true},
		"a change after":                {"rRwW", false},
		"a change within the read":      {"rwWR", false},
		"the read within a change":      {"wrRW", false},
		"the change begins in the read": {"rwRW", false},
		"the change ends in the read":   {"wrWR", false},
		"the change has not ended":      {"rwR", false},
		"nor where it began before":     {"wrR", false},
		"nor where it began after":      {"rRw", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gates := map[string]chan struct{}{"look": make(chan struct{}), "move": make(chan struct{})}
				var sent atomic.Int64
				p := withCache(time.Minute, &shop{}, nowhere{}, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
					sent.Add(1)
					<-gates[call.Tool]
					return &ferrule.Result{Value: json.RawMessage("1")}, nil
				})
				call := func(tool string) {
					if _, err := p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "a", Tool: tool}); err != nil {
						t.Error(err)
					}
				}
				for _, c := range test.order {
					switch c {
					case 'r':
						go call("look")
					case 'w':
						go call("move")
					case 'R':
						gates["look"] <- struct{}{}
					case 'W':
						gates["move"] <- struct{}{}
					}
					synctest.Wait()
				}
				before := sent.Load()
				close(gates["look"])
				call("look")
				if kept := sent.Load() == before; kept != test.kept {
					t.Errorf("kept: %t", kept)
				}
				close(gates["move"])
			})
		})
	}
}

// nowhere is a journal that keeps nothing.
type nowhere struct{}

func (nowhere) Append(ferrule.Entry, bool) error { return nil }

// TestCacheUnderChange checks that once a change has returned, nobody reads an older
// answer.
func TestCacheUnderChange(t *testing.T) {
	const devices, readers, changes = 3, 4, 300
	var values, told [devices]atomic.Int64 // what is so, and what a change has returned
	index := func(device string) int { return int(device[0] - 'a') }
	p := withCache(time.Minute, &shop{}, nowhere{}, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		v := &values[index(call.Device)]
		if call.Tool == "move" {
			return &ferrule.Result{Value: json.RawMessage(strconv.FormatInt(v.Add(1), 10))}, nil
		}
		seen := v.Load()
		time.Sleep(10 * time.Microsecond) // the answer is on its way
		return &ferrule.Result{Value: json.RawMessage(strconv.FormatInt(seen, 10))}, nil
	})
	call := func(device, tool string) int64 {
		result, err := p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: device, Tool: tool})
		if err != nil {
			t.Error(err)
			return 0
		}
		n, err := strconv.ParseInt(string(result.Value), 10, 64)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	var reading, changing sync.WaitGroup
	done := make(chan struct{})
	for d := range devices {
		device := string(rune('a' + d))
		changing.Go(func() {
			for range changes {
				told[d].Store(call(device, "move"))
				time.Sleep(50 * time.Microsecond)
			}
		})
		for range readers {
			reading.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					least := told[d].Load()
					if got := call(device, "look"); got < least {
						t.Errorf("%s: read %d after %d was told", device, got, least)
					}
				}
			})
		}
	}
	changing.Wait()
	close(done)
	reading.Wait()
	if s := p.Stats(); s.CacheHits == 0 || s.CacheMisses == 0 {
		t.Errorf("it tested nothing: %+v", s)
	}
}

// TestCacheCopies checks that cached answers do not share memory with callers or
// devices.
func TestCacheCopies(t *testing.T) {
	given := json.RawMessage(`"as it is"`)
	p := withCache(time.Minute, &shop{}, nowhere{}, func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		return &ferrule.Result{Value: given}, nil
	})
	look := func() *ferrule.Result {
		result, err := p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "a", Tool: "look"})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	look()
	copy(given, "overwritten")
	look().Value = nil
	look().Age = 0
	if got := look(); string(got.Value) != `"as it is"` || got.Age == 0 {
		t.Errorf("got %s, %v", got.Value, got.Age)
	}
}

// TestCacheKeepsAge checks that an answer that arrives with an age keeps it.
func TestCacheKeepsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		aged := ferrule.Duration(2 * time.Second)
		p := withCache(3*time.Second, &shop{}, nowhere{}, func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			return &ferrule.Result{Value: json.RawMessage("1"), Age: aged}, nil
		})
		for _, want := range []time.Duration{2 * time.Second, 2500 * time.Millisecond, 2 * time.Second} {
			result, err := p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "a", Tool: "look"})
			if err != nil || time.Duration(result.Age) != want {
				t.Errorf("got %+v, %v, want %v", result, err, want)
			}
			time.Sleep(500 * time.Millisecond)
		}
	})
}
