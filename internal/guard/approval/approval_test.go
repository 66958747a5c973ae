package approval_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/approval"
	"github.com/ferrulehq/ferrule/internal/guard/people"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

var (
	anna  = ferrule.Principal{Role: ferrule.Person, Name: "anna", Auth: ferrule.AuthSocket}
	ben   = ferrule.Principal{Role: ferrule.Person, Name: "ben", Auth: ferrule.AuthSocket}
	robby = ferrule.Principal{Role: ferrule.Agent, Name: "robby", Auth: ferrule.AuthToken}
)

// world is a gateway in miniature: a pipeline whose policy asks about everything, with one
// device that records what reaches it.
type world struct {
	t    *testing.T
	dir  string
	cfg  approval.Config
	node string
	page string // on which people answer

	mu      sync.Mutex
	kind    ferrule.Kind
	version string
	verdict ferrule.Ruling
	stopped string // why changes are; empty if they are not
	revoked string // why robby's token is not accepted; empty if it is
	ran     []string
	journal []ferrule.Entry
	events  []ferrule.Event
	full    error
	next    func() // happens after the version of the policy was read
	// recorded and executed are called at that moment, with mu held; each may be nil.
	recorded func(e ferrule.Entry)
	executed func(call *ferrule.Call)

	approvals *approval.Approvals
	handle    ferrule.Handler
	family    *people.People // see people
}

func newWorld(t *testing.T, change ...func(w *world)) *world {
	w := &world{t: t, dir: t.TempDir(), cfg: approval.DefaultConfig(), kind: "k1", version: "v1", verdict: ferrule.Ask}
	for _, c := range change {
		c(w)
	}
	w.open()
	return w
}

// open opens the approvals, as after a restart.
func (w *world) open() {
	a, err := approval.Open(approval.Parts{
		Config: w.cfg, Dir: w.dir, Node: w.node, Journal: w, Devices: w, Log: slog.New(slog.DiscardHandler),
		Version: w.policyVersion, Page: func() string { return w.page },
		Decide: w.decide,
		Revoked: func(who ferrule.Principal, _ string) string {
			w.mu.Lock()
			defer w.mu.Unlock()
			if who.TokenID != robby.TokenID {
				return ""
			}
			return w.revoked
		},
		Stopped: func(*ferrule.Device) string { w.mu.Lock(); defer w.mu.Unlock(); return w.stopped },
		Event:   func(e ferrule.Event) { w.mu.Lock(); defer w.mu.Unlock(); w.events = append(w.events, e) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.approvals = a
	w.handle = pipeline.New(pipeline.Parts{
		Config: pipeline.DefaultConfig(), Journal: w, Fleet: w, Policy: w.decide, Approvals: a, Log: slog.New(slog.DiscardHandler),
	}).Handle
}

func (w *world) policyVersion() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	version := w.version
	if w.next != nil {
		w.next()
		w.next = nil
	}
	return version
}

func (w *world) decide(*ferrule.Call) ferrule.Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	return ferrule.Verdict{Ruling: w.verdict, Reason: "it endangers", Rule: "house.cedar:12"}
}

func (w *world) Append(e ferrule.Entry, _ bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full != nil {
		return w.full
	}
	w.journal = append(w.journal, e)
	if w.recorded != nil {
		w.recorded(e)
	}
	return nil
}

func (w *world) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	dev := &ferrule.Device{
		ID: id, Kind: w.kind, Model: "uno", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted, Since: time.Now().Add(-time.Hour), Labels: map[string]string{"room": "lab"},
	}
	return dev, &ferrule.Manifest{Operations: []ferrule.Operation{ferrule.ReadResource}, Tools: []ferrule.Tool{
		{Name: "burn", Effect: ferrule.Endangers, Secrets: []string{"code"}, Text: "Burns <b>gently</b>."},
		{Name: "move", Effect: ferrule.Changes},
	}}, true
}

func (w *world) Target(id string) (ferrule.Target, bool) {
	dev, m, ok := w.Lookup(id)
	return ferrule.Target{Device: dev, Manifest: m, Handler: func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ran = append(w.ran, fmt.Sprintf("%s %s %s %s", call.Principal, call.Device, call.Tool, call.Args))
		if w.executed != nil {
			w.executed(call)
		}
		return &ferrule.Result{Value: json.RawMessage(`"done"`)}, nil
	}}, ok
}

func (w *world) Own(id string) (ferrule.Target, bool) { return w.Target(id) }

// call starts a call, and returns its outcome when it has one.
func (w *world) call(ctx context.Context, c ferrule.Call) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := w.handle(ctx, &c)
		done <- err
	}()
	return done
}

func (w *world) runs() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ran)
}

func (w *world) steps() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.journal {
		if e.Phase == ferrule.ApprovalStep {
			_, step, _ := strings.Cut(e.Message, ": ")
			all = append(all, step)
		}
	}
	return all
}

// only returns the ID of the only request.
func (w *world) only() string {
	w.t.Helper()
	all := w.approvals.List()
	if len(all) != 1 {
		w.t.Fatalf("requests: %+v", all)
	}
	id, _ := approval.SplitID(all[0].ID)
	return id
}

func (w *world) answer(who ferrule.Principal, id string, a approval.Answer) {
	w.t.Helper()
	if _, err := w.approvals.Answer(who, id, a); err != nil {
		w.t.Fatal(err)
	}
}

func burn(who ferrule.Principal, args string) ferrule.Call {
	return ferrule.Call{Principal: who, Device: "oven", Tool: "burn", Args: json.RawMessage(args), Client: ferrule.Client{Name: "claude-code", Version: "2"}}
}

// isDenied checks that a call was denied, and why.
func isDenied(t *testing.T, err error, why string) {
	t.Helper()
	if err == nil || ferrule.AsError(err).Code != ferrule.Denied || !strings.Contains(err.Error(), why) {
		t.Errorf("error %v, want denied: %s", err, why)
	}
}

func TestAllowOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		call := burn(robby, `{"b":1.50,"a":"x"}`)
		var progress []string
		call.Progress = func(p ferrule.Progress) { progress = append(progress, p.Message) }
		done := w.call(t.Context(), call)
		time.Sleep(48 * time.Second)
		synctest.Wait()
		if w.runs() != nil {
			t.Fatal("it ran before it was approved")
		}
		if last := progress[len(progress)-1]; !strings.HasPrefix(last, "waiting for approval by a person, 4:1") || len(progress) < 8 {
			t.Errorf("progress %q", progress)
		}
		id := w.only()
		shown := w.approvals.List()[0]
		if shown.Calls != 1 || string(shown.Args) != `{"a":"x","b":1.50}` || shown.Effect != ferrule.Endangers || shown.Program != "claude-code 2" ||
			!strings.HasPrefix(shown.Now, "online since ") || shown.Rule != "house.cedar:12" || shown.Labels["room"] != "lab" || shown.DeviceText != "Burns <b>gently</b>." {
			t.Errorf("a person sees %+v", shown)
		}
		w.answer(anna, id, approval.Answer{Allow: true})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := w.runs(); !slices.Equal(got, []string{`agent:robby oven burn {"a":"x","b":1.50}`}) {
			t.Errorf("ran %q", got)
		}
		if got, want := w.steps(), []string{"requested", "allowed once by person:anna", "used; allowed once by person:anna"}; !slices.Equal(got, want) {
			t.Errorf("journal %q, want %q", got, want)
		}
		// The same call again needs another approval, in any order of members.
		again := w.call(t.Context(), burn(robby, `{"a":"x", "b":1.50}`))
		synctest.Wait()
		w.answer(ben, w.only(), approval.Answer{})
		isDenied(t, <-again, "burn of oven was denied by person:ben")
		if len(w.runs()) != 1 || len(w.events) != 5 {
			t.Errorf("ran %q, events %v", w.runs(), w.events)
		}
	})
}

// TestBinding calls with something different after an approval was given and before it was
// used.
func TestBinding(t *testing.T) {
	for name, change := range map[string]func(w *world, c *ferrule.Call){
		"other arguments":  func(_ *world, c *ferrule.Call) { c.Args = json.RawMessage(`{"a":2}`) },
		"other digits":     func(_ *world, c *ferrule.Call) { c.Args = json.RawMessage(`{"a":1.0}`) },
		"other principal":  func(_ *world, c *ferrule.Call) { c.Principal.Name = "bobby" },
		"other role":       func(_ *world, c *ferrule.Call) { c.Principal.Role = ferrule.Person },
		"other way in":     func(_ *world, c *ferrule.Call) { c.Principal.Auth = ferrule.AuthLoopback },
		"other token":      func(_ *world, c *ferrule.Call) { c.Principal.TokenID = "another" },
		"other user":       func(_ *world, c *ferrule.Call) { c.Principal.User = "mallory" },
		"other node":       func(_ *world, c *ferrule.Call) { c.Via = "kitchen" },
		"other device":     func(_ *world, c *ferrule.Call) { c.Device = "stove" },
		"other tool":       func(_ *world, c *ferrule.Call) { c.Tool = "move" },
		"other operation":  func(_ *world, c *ferrule.Call) { c.Operation = ferrule.ReadResource },
		"other Kind":       func(w *world, _ *ferrule.Call) { w.kind = "k2" },
		"other policy":     func(w *world, _ *ferrule.Call) { w.version = "v2" },
		"later":            func(w *world, _ *ferrule.Call) { time.Sleep(w.cfg.Keep) },
		"after its denial": func(w *world, _ *ferrule.Call) { w.answer(ben, w.only(), approval.Answer{}) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, length := range []time.Duration{0, time.Hour} {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					ctx, cancel := context.WithCancel(t.Context())
					args := map[bool]string{true: `{}`, false: `{"a":1}`}[name == "other operation"]
					left := w.call(ctx, burn(robby, args))
					synctest.Wait()
					cancel()
					if err := <-left; ferrule.AsError(err).Code != ferrule.Cancelled || ferrule.AsError(err).MayHaveRun() {
						t.Errorf("a caller that left gets %v", err)
					}
					w.answer(anna, w.only(), approval.Answer{Allow: true, For: length})
					c := burn(robby, args)
					change(w, &c)
					err := <-w.call(t.Context(), c)
					isDenied(t, err, "nobody approved it within 5m0s")
					if w.runs() != nil {
						t.Errorf("ran %q", w.runs())
					}
				})
			}
		})
	}
}

// TestChangedWhileWaiting changes something between the approval and its use.
func TestChangedWhileWaiting(t *testing.T) {
	for name, test := range map[string]struct {
		change func(w *world)
		why    string
	}{
		"Kind":    {func(w *world) { w.kind = "k2" }, "oven changed while the call waited"},
		"policy":  {func(w *world) { w.version = "v2" }, "the policy changed"},
		"verdict": {func(w *world) { w.verdict = ferrule.Forbid }, "is forbidden by now: it endangers"},
		"journal": {func(w *world) { w.full = errors.New("disk full") }, "cannot be stored: disk full"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				ctx, cancel := context.WithCancel(t.Context())
				left := w.call(ctx, burn(robby, `{}`))
				synctest.Wait()
				cancel()
				<-left
				w.answer(anna, w.only(), approval.Answer{Allow: true})
				w.mu.Lock()
				w.next = func() { test.change(w) } // when the call is bound to what it was
				w.mu.Unlock()
				isDenied(t, <-w.call(t.Context(), burn(robby, `{}`)), test.why)
				if w.runs() != nil {
					t.Errorf("ran %q", w.runs())
				}
			})
		})
	}
}

func TestAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := w.call(ctx, burn(robby, `{"a":1}`))
		synctest.Wait()
		id := w.only()
		cancel()
		<-done
		w.approvals.Close()
		w.open()
		if w.only() != id {
			t.Fatal("the request is not the same after a restart")
		}
		w.answer(anna, id, approval.Answer{Allow: true})
		w.approvals.Close()
		w.open()
		if err := <-w.call(t.Context(), burn(robby, `{"a":1}`)); err != nil {
			t.Fatal(err)
		}
		w.approvals.Close()
		w.open()
		isDenied(t, <-w.call(t.Context(), burn(robby, `{"a":1}`)), "nobody approved it")
		if len(w.runs()) != 1 {
			t.Errorf("ran %q", w.runs())
		}
	})
}

func TestAllowForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		done := w.call(t.Context(), burn(robby, `{}`))
		synctest.Wait()
		id := w.only()
		if _, err := w.approvals.Answer(anna, id, approval.Answer{Allow: true, For: 25 * time.Hour}); err == nil {
			t.Error("25 hours are accepted")
		}
		w.answer(anna, id, approval.Answer{Allow: true, For: 10 * time.Minute})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Minute)
		w.approvals.Close()
		w.open()
		if err := <-w.call(t.Context(), burn(robby, `{}`)); err != nil {
			t.Fatal(err)
		}
		if got := w.steps(); !slices.Equal(got[2:], []string{"used; allowed for a time by person:anna", "used; allowed for a time by person:anna"}) {
			t.Errorf("journal %q", got)
		}
		time.Sleep(time.Minute)
		isDenied(t, <-w.call(t.Context(), burn(robby, `{}`)), "nobody approved it")
		if len(w.runs()) != 2 {
			t.Errorf("ran %q", w.runs())
		}
	})
}

// TestOneApprovalOneCall approves once while three equal calls wait.
func TestOneApprovalOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var all []<-chan error
		for range 3 {
			all = append(all, w.call(t.Context(), burn(robby, `{}`)))
		}
		synctest.Wait()
		if n := w.approvals.List()[0].Calls; n != 3 {
			t.Errorf("%d calls wait, want 3", n)
		}
		for n := 1; n <= 3; n++ {
			w.answer(anna, w.only(), approval.Answer{Allow: true})
			synctest.Wait()
			if len(w.runs()) != n {
				t.Fatalf("after %d approvals %d calls ran", n, len(w.runs()))
			}
		}
		for _, done := range all {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestWhoMayAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		done := w.call(t.Context(), burn(anna, `{}`))
		synctest.Wait()
		id := w.only()
		for _, who := range []ferrule.Principal{
			robby, {Role: ferrule.Agent, Name: "anna"}, {Role: ferrule.Gateway}, {Role: ferrule.Unverified, Name: "ben"}, {Role: ferrule.Person},
			anna, {Role: ferrule.Person, Name: "anna", Auth: ferrule.AuthLink},
		} {
			if _, err := w.approvals.Answer(who, id, approval.Answer{Allow: true}); err == nil {
				t.Errorf("%+v can approve the call of anna", who)
			}
		}
		synctest.Wait()
		if w.runs() != nil {
			t.Fatal("it ran")
		}
		w.answer(ben, id, approval.Answer{Allow: true})
		if err := <-done; err != nil {
			t.Error(err)
		}
		_, err := w.approvals.Answer(ben, id, approval.Answer{})
		isDenied(t, err, "was already allowed by person:ben, and the call went on")
		if _, err := w.approvals.Answer(ben, "zzzzz", approval.Answer{}); ferrule.AsError(err).Code != ferrule.NotFound {
			t.Error(err)
		}
	})
}

// TestRevoked: when the token of a caller is revoked, its requests and approvals end, also if
// that happened while the gateway was off, and people are told why. The approval stays ended
// when a caller with the same name comes.
func TestRevoked(t *testing.T) {
	const why = "the token of agent:robby was revoked"
	for name, test := range map[string]struct{ allowed, restart bool }{
		"waiting": {false, false}, "allowed": {true, false}, "waiting, restarted": {false, true}, "allowed, restarted": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				ctx, cancel := context.WithCancel(t.Context())
				left := w.call(ctx, burn(robby, `{}`))
				synctest.Wait()
				id := w.only()
				cancel()
				<-left
				if test.allowed {
					w.answer(anna, id, approval.Answer{Allow: true, For: time.Hour})
				}
				w.mu.Lock()
				w.revoked = why
				w.mu.Unlock()
				if test.restart {
					w.approvals.Close()
					w.open()
				}
				_, err := w.approvals.Answer(anna, id, approval.Answer{Allow: true})
				isDenied(t, err, id+" has ended: "+why+"; your answer changed nothing")
				if steps := w.steps(); steps[len(steps)-1] != "ended: "+why || len(w.approvals.List()) != 0 {
					t.Errorf("journal %q, requests %+v", steps, w.approvals.List())
				}
				w.mu.Lock()
				w.revoked = ""
				w.mu.Unlock()
				w.approvals.Close()
				w.open()
				isDenied(t, <-w.call(t.Context(), burn(robby, `{}`)), "nobody approved it within 5m0s")
				if w.runs() != nil {
					t.Errorf("ran %q", w.runs())
				}
			})
		})
	}
}

// TestRevokedWhileWaiting: a call that waits ends when the token of its caller is revoked.
func TestRevokedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		running := make(chan error, 1)
		go func() { running <- w.approvals.Run(ctx) }()
		mallory := robby
		mallory.TokenID = "another"
		mine, other := w.call(t.Context(), burn(robby, `{}`)), w.call(t.Context(), burn(mallory, `{}`))
		synctest.Wait()
		w.mu.Lock()
		w.revoked = "the token of agent:robby was revoked"
		w.mu.Unlock()
		w.approvals.Recheck()
		synctest.Wait()
		select {
		case err := <-mine:
			isDenied(t, err, "burn of oven cannot be approved any more: the token of agent:robby was revoked")
		default:
			t.Error("the call still waits")
		}
		w.answer(anna, w.only(), approval.Answer{Allow: true})
		if err := <-other; err != nil {
			t.Error(err)
		}
		cancel()
		<-running
	})
}

func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.approvals.Run(ctx) })
		done := w.call(t.Context(), burn(robby, `{}`))
		synctest.Wait()
		id := w.only()
		isDenied(t, <-done, "nobody approved it within 5m0s")
		_, err := w.approvals.Answer(anna, id, approval.Answer{Allow: true})
		isDenied(t, err, "has expired; your answer changed nothing")
		if got := w.steps(); !slices.Equal(got, []string{"requested", "expired without an answer"}) {
			t.Errorf("journal %q", got)
		}
		cancel()
		running.Wait()
	})
}

// TestStopped: while changes are stopped, a call that was approved does not run, and its
// approval can be used afterwards, once.
func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := func(why string) { w.mu.Lock(); defer w.mu.Unlock(); w.stopped = why }
		done := w.call(t.Context(), burn(robby, `{}`))
		synctest.Wait()
		stop("stopped by person:ben at 12:00")
		if now := w.approvals.List()[0].Now; !strings.HasSuffix(now, "; changes are stopped by person:ben at 12:00") {
			t.Errorf("a person sees %q", now)
		}
		w.answer(anna, w.only(), approval.Answer{Allow: true})
		isDenied(t, <-done, "burn of oven was approved, but changes are stopped by person:ben at 12:00; nothing was sent")
		isDenied(t, <-w.call(t.Context(), burn(robby, `{}`)), "changes are stopped")
		w.approvals.Close()
		w.open() // the approval is on disk
		stop("")
		if err := <-w.call(t.Context(), burn(robby, `{}`)); err != nil || len(w.runs()) != 1 {
			t.Errorf("after the stop: %v, ran %q", err, w.runs())
		}
		if left := w.approvals.List(); len(left) != 0 {
			t.Errorf("left %+v", left)
		}
	})
}

// TestInventedNames: an agent that changes the name it gave itself stays one caller.
func TestInventedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		local := func(n int) ferrule.Call {
			return burn(ferrule.Principal{Role: ferrule.Agent, Name: fmt.Sprintf("local/a%d", n), Auth: ferrule.AuthStdio, User: "anna"}, `{}`)
		}
		for n := range w.cfg.PerCaller {
			w.call(ctx, local(n))
		}
		synctest.Wait()
		if err := <-w.call(ctx, local(99)); err == nil || ferrule.AsError(err).Code != ferrule.Limited {
			t.Errorf("error %v", err)
		}
	})
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) { w.cfg.Total = 20 })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for n := range 20 {
			who := robby
			if n >= 16 {
				who.Name = "bobby"
			}
			w.call(ctx, burn(who, fmt.Sprintf(`{"n":%d}`, n)))
		}
		synctest.Wait()
		for _, who := range []string{"robby", "bobby"} {
			err := <-w.call(ctx, burn(ferrule.Principal{Role: ferrule.Agent, Name: who, Auth: ferrule.AuthToken}, `{}`))
			if err == nil || ferrule.AsError(err).Code != ferrule.Limited {
				t.Errorf("%s: %v", who, err)
			}
		}
		long := burn(robby, fmt.Sprintf(`{"a":%q}`, strings.Repeat("x", 17<<10)))
		isDenied(t, <-w.call(ctx, long), "too long for a person to read")
	})
}

// TestSentAsApproved sends arguments that decoders read differently: what the device gets
// is what the person saw.
func TestSentAsApproved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		done := w.call(t.Context(), burn(robby, "{\"a\": \"\xff\\ud800\", \"a\":1e2,\"b\":\"\\u202e\"}"))
		synctest.Wait()
		shown := w.approvals.List()[0]
		w.answer(anna, w.only(), approval.Answer{Allow: true})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := w.runs()[0]; !strings.HasSuffix(got, string(shown.Args)) || strings.Contains(shown.Summary(), "\u202e") || !strings.Contains(shown.Summary(), `\u202e`) {
			t.Errorf("ran %q, shown %s", got, shown.Args)
		}
	})
}

// TestSecretArguments checks that a person approves a call without seeing its secret, which
// is sent, and neither recorded nor stored.
func TestSecretArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		done := w.call(t.Context(), burn(robby, `{"code":"7391","hot":true}`))
		synctest.Wait()
		if shown := w.approvals.List()[0]; string(shown.Args) != `{"code":"…","hot":true}` {
			t.Errorf("shown %s", shown.Args)
		}
		w.answer(anna, w.only(), approval.Answer{Allow: true})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := w.runs()[0]; !strings.HasSuffix(got, `{"code":"7391","hot":true}`) {
			t.Errorf("ran %q", got)
		}
		for _, e := range w.journal {
			if text, err := json.Marshal(e); err != nil || strings.Contains(string(text), "7391") {
				t.Errorf("recorded %s, %v", text, err)
			}
		}
	})
}

// TestAgentsUser asks the user of the agent, if the owner wants that.
func TestAgentsUser(t *testing.T) {
	for name, test := range map[string]struct {
		configured bool
		answer     ferrule.Answer
		err        error
		why        string
	}{
		"yes":            {true, ferrule.Answer{Given: true, Value: json.RawMessage(`{"allow":true}`)}, nil, ""},
		"no":             {true, ferrule.Answer{Given: true, Value: json.RawMessage(`{"allow":false}`)}, nil, "denied by the user of agent:robby"},
		"declined":       {true, ferrule.Answer{}, nil, "denied by the user of agent:robby"},
		"dismissed":      {true, ferrule.Answer{Dismissed: true}, nil, "nobody approved it"},
		"nonsense":       {true, ferrule.Answer{Given: true, Value: json.RawMessage(`{"allow":"true"}`)}, nil, "nobody approved it"},
		"empty":          {true, ferrule.Answer{Given: true, Value: json.RawMessage(`{}`)}, nil, "nobody approved it"},
		"failed":         {true, ferrule.Answer{Given: true, Value: json.RawMessage(`{"allow":true}`)}, errors.New("gone"), "nobody approved it"},
		"not configured": {false, ferrule.Answer{Given: true, Value: json.RawMessage(`{"allow":true}`)}, nil, "nobody approved it"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(w *world) {
					if w.cfg.AskAgentsUser = []string{"bobby"}; test.configured {
						w.cfg.AskAgentsUser = []string{"bobby", "robby"}
					}
				})
				c := burn(robby, `{"a":1}`)
				c.Askable = []ferrule.AskTarget{ferrule.User}
				asked := 0
				c.Ask = func(_ context.Context, q ferrule.Question) (ferrule.Answer, error) {
					asked++
					if !strings.Contains(q.Text, `agent:robby wants to call burn on oven with {"a":1}`) || !strings.Contains(q.Text, `The device says about the tool: "Burns <b>gently</b>."`) {
						t.Errorf("question %q", q.Text)
					}
					return test.answer, test.err
				}
				err := <-w.call(t.Context(), c)
				if test.why != "" {
					isDenied(t, err, test.why)
				} else if err != nil {
					t.Error(err)
				}
				if (len(w.runs()) == 1) != (test.why == "") || (asked == 1) != test.configured {
					t.Errorf("ran %q, asked %d times", w.runs(), asked)
				}
			})
		})
	}
}

// TestAgentsUserPage asks the user of the agent to open the page, if the agent can do that. To
// open it approves nothing, whatever comes with it; to decline denies.
func TestAgentsUserPage(t *testing.T) {
	both := []ferrule.AskTarget{ferrule.User, ferrule.Page}
	for name, test := range map[string]struct {
		page    string
		can     []ferrule.AskTarget
		answer  ferrule.Answer
		onPage  bool // a person answers on the page
		byPage  bool // the question has the page
		skipped bool // nobody is asked
		why     string
	}{
		"opened, answered": {"https://ferrule.example.com/approvals", both, ferrule.Answer{Given: true}, true, true, false, ""},
		"opened only":      {"https://ferrule.example.com/approvals", both, ferrule.Answer{Given: true, Value: json.RawMessage(`{"allow":true}`)}, false, true, false, "nobody approved it"},
		"declined":         {"https://ferrule.example.com/approvals", both[1:], ferrule.Answer{}, false, true, false, "denied by the user of agent:robby"},
		"dismissed":        {"https://ferrule.example.com/approvals", both, ferrule.Answer{Dismissed: true}, false, true, false, "nobody approved it"},
		"no page":          {"", both, ferrule.Answer{Given: true, Value: json.RawMessage(`{"allow":true}`)}, false, false, false, ""},
		"only a page":      {"", both[1:], ferrule.Answer{Given: true, Value: json.RawMessage(`{"allow":true}`)}, false, false, true, "nobody approved it"},
		"only a form":      {"https://ferrule.example.com/approvals", both[:1], ferrule.Answer{Given: true, Value: json.RawMessage(`{"allow":true}`)}, false, false, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(w *world) {
					w.cfg.AskAgentsUser, w.page = []string{"robby"}, test.page
				})
				c := burn(robby, `{"a":1}`)
				c.Askable = test.can
				asked := 0
				c.Ask = func(_ context.Context, q ferrule.Question) (ferrule.Answer, error) {
					asked++
					if (q.URL == test.page && q.Needs() == ferrule.Page && q.Schema == nil) != test.byPage || !strings.Contains(q.Text, "agent:robby wants to call burn on oven") {
						t.Errorf("question %+v", q)
					}
					return test.answer, nil
				}
				done := w.call(t.Context(), c)
				synctest.Wait()
				if test.onPage {
					w.answer(anna, w.only(), approval.Answer{Allow: true})
				}
				err := <-done
				if test.why != "" {
					isDenied(t, err, test.why)
				} else if err != nil {
					t.Error(err)
				}
				if (len(w.runs()) == 1) != (test.why == "") || (asked == 1) == test.skipped {
					t.Errorf("ran %q, asked %d times", w.runs(), asked)
				}
			})
		})
	}
}

// TestFullDisk makes the file unwritable at each step.
func TestFullDisk(t *testing.T) {
	t.Run("request", func(t *testing.T) {
		w := newWorld(t)
		approval.FailWrites(w.approvals)
		err := <-w.call(t.Context(), burn(robby, `{}`))
		isDenied(t, err, "the request cannot be stored")
	})
	t.Run("answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			done := w.call(t.Context(), burn(robby, `{}`))
			synctest.Wait()
			empty := approval.FailWrites(w.approvals)
			_, err := w.approvals.Answer(anna, w.only(), approval.Answer{Allow: true})
			isDenied(t, err, "is not approved, because the approval cannot be stored")
			empty()
			w.answer(anna, w.only(), approval.Answer{Allow: true})
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("use", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			ctx, cancel := context.WithCancel(t.Context())
			done := w.call(ctx, burn(robby, `{}`))
			synctest.Wait()
			cancel()
			<-done
			w.answer(anna, w.only(), approval.Answer{Allow: true})
			empty := approval.FailWrites(w.approvals)
			isDenied(t, <-w.call(t.Context(), burn(robby, `{}`)), "cannot be stored")
			if w.runs() != nil {
				t.Fatal("it ran")
			}
			empty()
			if err := <-w.call(t.Context(), burn(robby, `{}`)); err != nil || len(w.runs()) != 1 {
				t.Errorf("%v, ran %q", err, w.runs())
			}
		})
	})
}

// TestStoredFile looks at what is on disk.
func TestStoredFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) {
			w.cfg.Webhook = approval.Webhook{URL: "https://hook.example.com", Secret: "0123456789abcdef", Link: "https://ferrule.example.com"}
		})
		path := filepath.Join(w.dir, "approvals.jsonl")
		ctx, cancel := context.WithCancel(t.Context())
		done := w.call(ctx, burn(robby, `{}`))
		synctest.Wait()
		cancel()
		<-done
		before, err := os.ReadFile(path)
		if info, serr := os.Stat(path); err != nil || serr != nil || info.Mode().Perm() != 0o600 || !bytes.HasSuffix(before, []byte("\n")) {
			t.Fatal(err, serr, string(before))
		}
		w.answer(anna, w.only(), approval.Answer{Allow: true})
		whole, _ := os.ReadFile(path)
		// Power fails while the approval is written: there is none.
		for n := len(before); n < len(whole); n += 11 {
			w.approvals.Close()
			os.WriteFile(path, whole[:n], 0o600)
			w.open()
			if s := w.approvals.List()[0].State; s != ferrule.ApprovalWaiting {
				t.Fatalf("%d bytes of the approval: %s", n-len(before), s)
			}
		}
		// A damaged line may be the end of an approval: nothing is left.
		w.approvals.Close()
		os.WriteFile(path, append(bytes.Clone(whole), "{\"end\":\x00}\n"...), 0o600)
		w.open()
		if all := w.approvals.List(); len(all) != 0 {
			t.Errorf("from a damaged file: %+v", all)
		}
	})
}
