package limits

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func open(t *testing.T, path string) *Limits {
	t.Helper()
	l, err := Open(Parts{File: path, Node: "a", Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// toolWith returns a tool with limits in JSON and a lease that switches off with value 0 or
// false.
func toolWith(t *testing.T, limits string, by ...string) *ferrule.Tool {
	t.Helper()
	tool := &ferrule.Tool{Name: "write", Limits: &ferrule.Limits{}, Lease: &ferrule.Lease{Off: map[string]any{"value": false}}}
	if err := json.Unmarshal([]byte(limits), tool.Limits); err != nil {
		t.Fatal(err)
	}
	tool.Limits.By = by
	return tool
}

func callOf(t *testing.T, tool *ferrule.Tool, args string) *ferrule.Call {
	t.Helper()
	call := &ferrule.Call{Device: "robot", Tool: tool.Name, Target: ferrule.Target{Device: &ferrule.Device{ID: "robot"}, Tool: tool}}
	d := json.NewDecoder(strings.NewReader(args))
	d.UseNumber()
	if err := d.Decode(&call.DecodedArgs); err != nil {
		t.Fatal(err)
	}
	return call
}

var (
	notRun = ferrule.Errorf(ferrule.Offline, "offline")
	maybe  = ferrule.Errorf(ferrule.Unanswered, "unanswered")
)

// TestLimits runs sequences of calls. Each step waits, then makes a call that takes some
// time and has an outcome.
func TestLimits(t *testing.T) {
	const ok = ""
	type step struct {
		wait time.Duration
		args string
		err  error  // of the call
		want string // part of the refusal and its hint; empty if it is admitted
	}
	for name, test := range map[string]struct {
		limits string
		by     []string
		steps  []step
	}{
		"rate": {`{"rate":"2/m"}`, nil, []step{
			{0, `{}`, nil, ok}, {20 * time.Second, `{}`, nil, ok}, {0, `{}`, nil, "called 2 times in 1m0s, and was; try again in 40s"},
			{40*time.Second - 1, `{}`, nil, "try again in 1s"}, {1, `{}`, nil, ok}, {0, `{}`, nil, "try again in 20s"},
			{time.Hour, `{}`, nil, ok}, {0, `{}`, nil, ok}, {0, `{}`, nil, "try again in 1m0s"},
		}},
		"a call that did not run does not count": {`{"rate":"1/h","cooldown":"1h"}`, nil, []step{
			{0, `{}`, notRun, ok}, {0, `{}`, notRun, ok}, {0, `{}`, maybe, ok}, {0, `{}`, nil, "try again in 1h0m0s"},
		}},
		"cooldown": {`{"cooldown":"10s"}`, nil, []step{
			{0, `{}`, nil, ok}, {0, `{}`, nil, "10s after its last call; try again in 10s"}, {10*time.Second - 1, `{}`, nil, "try again in 1s"}, {1, `{}`, nil, ok},
		}},
		"each output by itself": {`{"rate":"1/h"}`, []string{"pin"}, []step{
			{0, `{"pin":1}`, nil, ok}, {0, `{"pin":2}`, nil, ok}, {0, `{"pin":1.0}`, nil, "try again"}, {0, `{"pin":10e-1,"x":1}`, nil, "try again"}, {0, `{"pin":"1"}`, nil, ok},
		}},
		"range": {`{"range":{"angle":{"min":-0.5,"max":1e2}}}`, nil, []step{
			{0, `{"angle":100}`, nil, ok}, {0, `{"angle":100.0000000000000000000000001}`, nil, "angle is outside its limits; use a value of angle from -0.5 to 100"},
			{0, `{"angle":1e2}`, nil, ok}, {0, `{"angle":1000e-1}`, nil, ok}, {0, `{"angle":-0.5}`, nil, ok}, {0, `{"angle":-0.51}`, nil, "outside"},
			{0, `{}`, nil, "angle must be given as a number"}, {0, `{"angle":"50"}`, nil, "must be given as a number"}, {0, `{"angle":null}`, nil, "must be given as a number"},
		}},
		"step": {`{"range":{"angle":{"min":0,"max":90,"step":5,"start":45}}}`, []string{"pin"}, []step{
			{0, `{"angle":51}`, nil, "by at most 5 in one call, and was 45; use a value of angle from 40 to 50"},
			{0, `{"angle":50}`, nil, ok}, {0, `{"angle":55.0}`, nil, ok}, {0, `{"angle":49}`, nil, "was 55.0; use a value of angle from 50 to 60"},
			{0, `{"angle":60}`, notRun, ok}, {0, `{"angle":65}`, nil, "was 55.0"},
			{0, `{"angle":60}`, maybe, ok}, {0, `{"angle":61}`, nil, "was 55.0 or 60; use a value of angle from 55 to 60"}, {0, `{"angle":58}`, nil, ok}, {0, `{"angle":63}`, nil, ok},
			{0, `{"pin":2,"angle":63}`, nil, "was 45"}, {0, `{"pin":2,"angle":40}`, nil, ok},
		}},
		"step in decimals": {`{"range":{"v":{"step":0.1,"start":0}}}`, nil, []step{
			{0, `{"v":0.1}`, nil, ok}, {0, `{"v":0.2}`, nil, ok}, {0, `{"v":0.3}`, nil, ok}, {0, `{"v":0.4000000000000000000001}`, nil, "was 0.3"}, {0, `{"v":0.2}`, nil, ok},
		}},
		"time on": {`{"on_time":{"per":"1h","max":"20m"}}`, nil, []step{
			{0, `{"value":true}`, nil, ok}, {10 * time.Minute, `{"value":false}`, nil, ok}, // on from 0:00 to 0:10
			{20 * time.Minute, `{"value":true}`, nil, ok}, {5 * time.Minute, `{"value":true}`, nil, ok}, {5 * time.Minute, `{"value":false}`, nil, ok}, // 0:30 to 0:40
			{0, `{"value":true}`, nil, "on for 20m0s in 1h0m0s, and was; try again in 20m1s"},
			{20 * time.Minute, `{"value":true}`, nil, "try again in 1s"}, {time.Second, `{"value":true}`, nil, ok},
		}},
		"an off call that is not certain": {`{"on_time":{"per":"1h","max":"20m"}}`, nil, []step{
			{0, `{"value":true}`, maybe, ok}, {time.Minute, `{"value":false}`, maybe, ok}, {18*time.Minute + 59*time.Second, `{"value":1}`, nil, ok}, {time.Minute, `{}`, nil, "on for 20m0s"},
			{0, `{"value":false}`, notRun, ok}, {0, `{"value":true}`, nil, "on for 20m0s"}, {0, `{"value":false}`, nil, ok}, {39 * time.Minute, `{"value":true}`, nil, "try again in 1m1s"}, {61 * time.Second, `{"value":true}`, nil, ok},
		}},
		"not switched on": {`{"on_time":{"per":"1h","max":"20m"}}`, nil, []step{
			{0, `{"value":true}`, notRun, ok}, {50 * time.Minute, `{"value":true}`, nil, ok},
		}},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprint(name, restart), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "limits")
					l := open(t, path)
					tool := toolWith(t, test.limits, test.by...)
					for i, s := range test.steps {
						time.Sleep(s.wait)
						if restart {
							l.Close()
							l = open(t, path)
						}
						pass, err := l.Enter(callOf(t, tool, s.args))
						got := ""
						if err != nil {
							e := ferrule.AsError(err)
							if got = e.Message + "; " + e.Hint; e.Code != ferrule.Limited || e.MayHaveRun() {
								t.Errorf("step %d: code %s", i, e.Code)
							}
						}
						if (got == "") != (s.want == "") || !strings.Contains(got, s.want) {
							t.Errorf("step %d, %s: got %q, want %q", i, s.args, got, s.want)
						}
						pass.Leave(s.err)
					}
				})
			})
		}
	}
}

// TestCrash checks that a call whose outcome was never recorded counts as run.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "limits")
		tool := toolWith(t, `{"rate":"1/m","cooldown":"30s","range":{"v":{"step":1,"start":0}},"on_time":{"per":"1h","max":"2m"}}`)
		l := open(t, path)
		if _, err := l.Enter(callOf(t, tool, `{"v":1}`)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Enter(callOf(t, tool, `{"v":1}`)); err == nil {
			t.Error("a call was admitted while one was running")
		}
		time.Sleep(time.Minute)
		l.Close()
		l = open(t, path)
		key := keyOf("robot", tool, nil)
		s := l.outputs[key].state
		now := time.Now()
		if len(s.Calls) != 1 || !s.Calls[0].Equal(now) || !s.Ended.Equal(now) || s.Running != 0 || !s.On.Equal(now.Add(-time.Minute)) || s.Values["v"] != (span{"0", "1"}) {
			t.Errorf("after a crash: %+v", s)
		}
		if _, err := l.Enter(callOf(t, tool, `{"v":1}`)); err == nil {
			t.Error("the call before the crash does not count")
		}
		time.Sleep(time.Minute + time.Second)
		if _, err := l.Enter(callOf(t, tool, `{"v":1}`)); err == nil || !strings.Contains(err.Error(), "on for 2m0s") {
			t.Errorf("the time on before the crash does not count: %v", err)
		}
		l.SwitchedOff(key)
		if s := l.outputs[key].state; !s.On.IsZero() || len(s.Used) != 1 {
			t.Errorf("after the end of its lease: %+v", s)
		}
	})
}

// TestUrgent checks that a call that makes a device safe is admitted and counted, also on
// a full disk.
func TestUrgent(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "limits"))
	tool := toolWith(t, `{"cooldown":"1h","on_time":{"per":"1h","max":"2m"}}`)
	for i, args := range []string{`{"value":true}`, `{"value":false}`} {
		call := callOf(t, tool, args)
		call.Urgent = i > 0
		pass, err := l.Enter(call)
		if err != nil {
			t.Fatal(err)
		}
		pass.Leave(nil)
	}
	if s := l.outputs[keyOf("robot", tool, nil)].state; !s.On.IsZero() {
		t.Error("it still counts as on")
	}
	l.Close() // writes fail from now on
	call := callOf(t, toolWith(t, `{"rate":"100/s"}`), `{}`)
	if _, err := l.Enter(call); err == nil || ferrule.AsError(err).Code != ferrule.Denied {
		t.Errorf("a call that cannot be counted: %v", err)
	}
	if n := l.outputs[keyOf("robot", tool, nil)].Running; n != 0 {
		t.Errorf("%d calls are running", n)
	}
	call.Urgent = true
	if _, err := l.Enter(call); err != nil {
		t.Error(err)
	}
}

// TestRename checks that another name is not another device.
func TestRename(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "limits"))
	call := callOf(t, toolWith(t, `{"cooldown":"1h"}`), `{}`)
	pass, err := l.Enter(call)
	if err != nil {
		t.Fatal(err)
	}
	pass.Leave(nil)
	call.Target.Device = &ferrule.Device{ID: "arm", Aliases: []string{"robot"}}
	if _, err := l.Enter(call); err == nil {
		t.Error("a renamed device has no history")
	}
	for i := range maxOutputs + 1 {
		call := callOf(t, toolWith(t, `{"cooldown":"1h"}`, "n"), fmt.Sprintf(`{"n":%d}`, i))
		call.Tool, call.Target.Tool.Name = "other", "other"
		if _, o := l.find(call.Target.Device, call.Target.Tool, call.DecodedArgs); (o == nil) != (i == maxOutputs) {
			t.Fatalf("output %d: %v", i, o)
		}
	}
}

// TestRenameDuringCall checks that a call that runs during a rename ends under both names,
// that renames and calls at the same time do not block each other, and that the state
// under the new name survives a restart.
func TestRenameDuringCall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits")
	l := open(t, path)
	tool := toolWith(t, `{"rate":"2/h"}`)
	running, err := l.Enter(callOf(t, tool, `{}`))
	if err != nil {
		t.Fatal(err)
	}
	renamed := callOf(t, tool, `{}`)
	renamed.Target.Device = &ferrule.Device{ID: "arm", Aliases: []string{"robot"}}
	pass, err := l.Enter(renamed)
	if err != nil {
		t.Fatal(err)
	}
	pass.Leave(notRun)
	running.Leave(notRun)
	for range 2 { // both counted if they were still running
		if pass, err = l.Enter(renamed); err != nil {
			t.Fatal(err)
		}
		pass.Leave(nil)
	}
	for range 2 {
		if _, err := l.Enter(renamed); err == nil {
			t.Error("the calls do not count")
		}
		l.Close()
		l = open(t, path)
	}
	if all := l.file.All(); len(all) != 1 || all[keyOf("arm", tool, nil)] == nil {
		t.Errorf("%d outputs on disk", len(all))
	}

	var wg sync.WaitGroup
	often := toolWith(t, `{"rate":"1000/s"}`, "n")
	for name, aliases := range map[string][]string{"robot": nil, "arm": {"robot"}} {
		for range 2 {
			wg.Go(func() {
				for i := range 100 {
					call := callOf(t, often, fmt.Sprintf(`{"n":%d}`, i))
					call.Target.Device = &ferrule.Device{ID: name, Aliases: aliases}
					pass, err := l.Enter(call)
					if err != nil {
						t.Error(err)
						return
					}
					pass.Leave(nil)
				}
			})
		}
	}
	wg.Wait()
}

// TestManyOutputs checks that a refused call uses no output, and that a call that makes a
// device safe is admitted even if there are too many.
func TestManyOutputs(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "limits"))
	tool := toolWith(t, `{"range":{"v":{"max":1}}}`, "n")
	for i := range maxOutputs + 1 {
		if _, err := l.Enter(callOf(t, tool, fmt.Sprintf(`{"n":%d,"v":2}`, i))); err == nil {
			t.Fatal("it was admitted")
		}
	}
	if len(l.outputs) != 0 || l.counts[toolOf(keyOf("robot", tool, nil))] != 0 {
		t.Fatalf("refused calls have %d outputs", len(l.outputs))
	}
	for i := range maxOutputs {
		l.find(&ferrule.Device{ID: "robot"}, tool, callOf(t, tool, fmt.Sprintf(`{"n":%d}`, i)).DecodedArgs)
	}
	call := callOf(t, tool, `{"n":-1,"v":1}`)
	if _, err := l.Enter(call); err == nil || !strings.Contains(err.Error(), "1024 outputs") {
		t.Errorf("one too many: %v", err)
	}
	call.Urgent = true
	pass, err := l.Enter(call)
	if err != nil {
		t.Errorf("a call that makes the device safe was refused: %v", err)
	}
	pass.Leave(nil)
}

// TestCondense checks that any state can be shared, and that it allows no more than before.
func TestCondense(t *testing.T) {
	now := time.Now()
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, maxShared, maxShared + 1, maxStretches, ferrule.MaxRate} {
		var s state
		for i := range n {
			at := now.Add(time.Duration(i-n) * time.Minute)
			s.Calls = append(s.Calls, at)
			if i < maxStretches {
				s.Used = append(s.Used, stretch{at, at.Add(time.Duration(random.IntN(60)) * time.Second)})
			}
		}
		condensed, calls := condense(s)
		text, err := json.Marshal(sharedState{"node", strings.Repeat("k", maxOutput), condensed, calls})
		if err != nil || len(text) > 4096 {
			t.Errorf("%d calls take %d bytes, %v", n, len(text), err)
		}
		var got sharedState
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		all := got.expand()
		if len(all.Calls) != n || len(s.Calls) != n {
			t.Errorf("%d of %d calls are left", len(all.Calls), n)
		}
		for i := range min(n, len(all.Calls)) {
			if all.Calls[i].Before(s.Calls[i]) {
				t.Fatalf("call %d of %d counts as earlier", i, n)
			}
		}
		for _, u := range s.Used {
			covered := false
			for _, v := range all.Used {
				covered = covered || !v.From.After(u.From) && !v.Until.Before(u.Until)
			}
			if !covered {
				t.Fatalf("of %d stretches, one is missing", n)
			}
		}
	}
	long := toolWith(t, `{}`, "n")
	a, b := map[string]any{"n": strings.Repeat("x", 9999)}, map[string]any{"n": strings.Repeat("x", 9998)}
	if k := keyOf("robot", long, a); len(k) > 2*maxOutput || k == keyOf("robot", long, b) {
		t.Errorf("long arguments have the key %q", k)
	}
}

// node is a Shared that passes everything to another node.
type node struct {
	other func(key string, value []byte)
}

func (n *node) Put(key string, value []byte) error {
	n.other(key, value)
	return nil
}
func (n *node) Delete(key string) error              { return n.Put(key, nil) }
func (n *node) Watch(func(key string, value []byte)) {}

// TestMove checks that a device that moves to another node takes its history along.
func TestMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make(map[string]*Limits)
		for name, other := range map[string]string{"a": "b", "b": "a"} {
			l, err := Open(Parts{File: filepath.Join(t.TempDir(), name), Node: name, Log: quiet, Shared: &node{func(key string, value []byte) { all[other].heard(key, value) }}})
			if err != nil {
				t.Fatal(err)
			}
			all[name] = l
			defer l.Close()
			go l.Run(t.Context())
		}
		tool := toolWith(t, `{"rate":"3/h","range":{"v":{"step":1,"start":0}}}`)
		enter := func(at string, v int) (*Pass, error) {
			time.Sleep(time.Second)
			synctest.Wait()
			return all[at].Enter(callOf(t, tool, fmt.Sprintf(`{"v":%d}`, v)))
		}
		for i, at := range []string{"a", "b"} {
			pass, err := enter(at, i+1)
			if err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
			pass.Leave(nil)
		}
		if _, err := enter("a", 3); err != nil { // and a dies
			t.Fatal(err)
		}
		if _, err := enter("b", 3); err == nil || !strings.Contains(err.Error(), "3 times") {
			t.Errorf("the calls at the other node do not count: %v", err)
		}
		for _, junk := range []string{"", "{}", `{"node":"a","key":"x"}`, "null"} {
			all["b"].heard(prefix+"x", []byte(junk))
		}
		if n := len(all["b"].foreign); n != 0 {
			t.Errorf("%d states of junk", n)
		}
	})
}

// device executes calls at some moment between Enter and Leave, and checks by simple means
// that no limit was exceeded.
type device struct {
	cooldown time.Duration

	mu    sync.Mutex
	calls []time.Time
	value int
	wrong []string
}

func (d *device) run(value int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.calls = append(d.calls, now)
	if n := len(d.calls); n > 3 && now.Sub(d.calls[n-4]) < time.Minute {
		d.wrong = append(d.wrong, fmt.Sprintf("4 calls in %v", now.Sub(d.calls[n-4])))
	}
	if n := len(d.calls); n > 1 && now.Sub(d.calls[n-2]) < d.cooldown {
		d.wrong = append(d.wrong, fmt.Sprintf("2 calls in %v", now.Sub(d.calls[n-2])))
	}
	if change := max(value-d.value, d.value-value); change > 5 || value < 0 || value > 20 {
		d.wrong = append(d.wrong, fmt.Sprintf("from %d to %d", d.value, value))
	}
	d.value = value
}

// TestConcurrentCallers checks with random callers, delays, outcomes and restarts that a
// device never sees more than its limits.
func TestConcurrentCallers(t *testing.T) {
	for round := range 40 {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, uint64(round)))
			path := filepath.Join(t.TempDir(), "limits")
			l := open(t, path)
			tool, d := toolWith(t, `{"rate":"3/m","range":{"v":{"min":0,"max":20,"step":5,"start":0}}}`), &device{}
			if round%2 == 0 { // without it, calls overlap
				d.cooldown = 2 * time.Second
				tool.Limits.Cooldown = ferrule.Duration(d.cooldown)
			}
			for range 4 {
				var wg sync.WaitGroup
				for range 4 {
					n, seed := random.IntN(6)+1, random.Uint64()
					wg.Go(func() {
						own := rand.New(rand.NewPCG(2, seed))
						for range n {
							time.Sleep(time.Duration(own.IntN(40000)) * time.Millisecond)
							v := own.IntN(25) - 2
							pass, err := l.Enter(callOf(t, tool, fmt.Sprintf(`{"v":%d}`, v)))
							if err != nil {
								continue
							}
							time.Sleep(time.Duration(own.IntN(8000)) * time.Millisecond)
							outcome := []error{nil, nil, nil, maybe, notRun, errors.New("bug")}[own.IntN(6)]
							if outcome == nil || outcome != error(notRun) && own.IntN(2) == 0 {
								d.run(v)
							}
							time.Sleep(time.Duration(own.IntN(8000)) * time.Millisecond)
							if own.IntN(20) > 0 { // else the gateway was killed
								pass.Leave(outcome)
							}
						}
					})
				}
				wg.Wait()
				l.Close()
				l = open(t, path)
			}
			if len(d.wrong) > 0 || len(d.calls) == 0 {
				t.Fatalf("round %d: %d calls, %v", round, len(d.calls), d.wrong)
			}
		})
	}
}

// FuzzState checks that any state can be read and used.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"calls":["2026-01-01T00:00:00Z"],"ended":"2099-01-01T00:00:00Z","running":99999999,"values":{"v":{"low":"1","high":"0x"}},"on":"2026-01-01T00:00:00Z","used":[{"from":"2026-01-01T00:00:00Z","until":"2025-01-01T00:00:00Z"}]}`), `{"v":1,"value":true}`)
	f.Add([]byte(`{"running":-5,"values":{"v":{"low":"1e400","high":"1e-400"}}}`), `{"v":1e400}`)
	f.Fuzz(func(t *testing.T, data []byte, args string) {
		var s state
		if json.Unmarshal(data, &s) != nil {
			return
		}
		now := time.Now()
		s.restart(now)
		tool := toolWith(t, `{"rate":"2/m","cooldown":"10s","range":{"v":{"min":0,"max":10,"step":1,"start":0}},"on_time":{"per":"1h","max":"20m"}}`)
		call := &ferrule.Call{}
		d := json.NewDecoder(strings.NewReader(args))
		d.UseNumber()
		if d.Decode(&call.DecodedArgs) != nil {
			return
		}
		values, _ := s.check(tool, call.DecodedArgs, false, now)
		next := s.clone()
		next.enter(tool, values, false, now)
		next.leave(tool.Limits, now, true)
		next.switchOff(now)
		if next.Running != 0 || s.budget(tool.Limits.OnTime, now) > 20*time.Minute {
			t.Errorf("%+v", next)
		}
	})
}
