package dock_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// callAs resolves and sends a call.
func (w *world) callAs(call *ferrule.Call) (*ferrule.Result, error) {
	dev, m, _ := w.fleet.Lookup(call.Device)
	call.Target = ferrule.Target{Device: dev, Manifest: m, Tool: m.Tool(call.Tool)}
	return w.send(context.Background(), call)
}

// TestInputRequest checks that a device that requests input is called again with the
// answers; all questions are asked at once, and others may call it meanwhile.
func TestInputRequest(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		calls := 0
		state := "half"
		b := &board{address: "a", model: "toy"}
		b.invoke = func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			switch calls++; {
			case call.Tool == "look":
				return &ferrule.Result{Value: json.RawMessage(`"seen"`)}, nil
			case call.Inputs == nil:
				return &ferrule.Result{InputRequest: &ferrule.InputRequest{Questions: []ferrule.Question{{Name: "a"}, {Name: "b"}}, State: &state}}, nil
			}
			answer, _ := json.Marshal(call.Inputs)
			return &ferrule.Result{Value: answer}, nil
		}
		w.transport.see("g", named(b, "toy"))
		synctest.Wait()
		asked, go_ := make(chan string, 2), make(chan struct{})
		ask := func(_ context.Context, q ferrule.Question) (ferrule.Answer, error) {
			asked <- q.Name
			<-go_
			return ferrule.Answer{Given: true, Value: json.RawMessage(`"` + q.Name + `"`)}, nil
		}
		done := make(chan string)
		go func() {
			result, err := w.callAs(&ferrule.Call{Device: "toy", Tool: "move", Ask: ask})
			if err != nil {
				t.Error(err)
				done <- ""
				return
			}
			done <- string(result.Value)
		}()
		synctest.Wait()
		if len(asked) != 2 {
			t.Errorf("%d questions were asked", len(asked))
		}
		if result, err := w.callAs(&ferrule.Call{Device: "toy", Tool: "look"}); err != nil || string(result.Value) != `"seen"` {
			t.Errorf("another call meanwhile: %v, %v", result, err)
		}
		close(go_)
		const want = `{"Questions":[{"name":"a","text":""},{"name":"b","text":""}],"Answers":[{"given":true,"value":"a"},{"given":true,"value":"b"}],"State":"half"}`
		if got := <-done; got != want || calls != 3 {
			t.Errorf("after %d calls: %s", calls, got)
		}
		_, err := w.callAs(&ferrule.Call{Device: "toy", Tool: "move"})
		if e := ferrule.AsError(err); e.Code != ferrule.Failed || !e.MayHaveRun() || len(e.Needs) != 1 {
			t.Errorf("nobody can be asked: %+v", e)
		}
	})
}

// TestUpdateManifest checks that a device that changes its manifest stays connected.
func TestUpdateManifest(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a", model: "toy", renews: make(chan *ferrule.Manifest)}
		w.transport.see("g", named(b, "toy"))
		synctest.Wait()
		was := *w.device("toy")
		dev, m, _ := w.fleet.Lookup("toy")
		late := &ferrule.Call{Device: "toy", Tool: "move", Target: ferrule.Target{Device: dev, Manifest: m, Tool: m.Tool("move")}}
		b.renews <- usual("toy")
		synctest.Wait()
		if now := w.device("toy"); now.Kind != was.Kind || !now.Changed.IsZero() {
			t.Errorf("nothing is new: %+v", now)
		}
		b.renews <- &ferrule.Manifest{Model: "toy", Version: "1", Tools: []ferrule.Tool{{Name: "dance"}}}
		synctest.Wait()
		now := w.device("toy")
		if now.State != ferrule.StateOnline || now.Kind == was.Kind || now.Previous != was.Kind || !now.Since.Equal(was.Since) || b.greeted != 1 {
			t.Errorf("got %+v, greeted %d times", now, b.greeted)
		}
		if result, err := w.callAs(&ferrule.Call{Device: "toy", Tool: "dance"}); err != nil || string(result.Value) != `"dance"` {
			t.Errorf("%v, %v", result, err)
		}
		if _, err := w.send(context.Background(), late); ferrule.AsError(err).Code != ferrule.Invalid {
			t.Errorf("a call of before: %v", err)
		}
	})
}

// TestUnusableManifest: a device whose new manifest is unusable is no longer used as what it
// was, and returns when it says something usable.
func TestUnusableManifest(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		// JSON is read to this depth, and the list of tools is deeper.
		const depth = 10_000
		unusable := usual("toy")
		unusable.Tools[0].Input = json.RawMessage(strings.Repeat("[", depth) + strings.Repeat("]", depth))
		b := &board{address: "a", model: "toy", renews: make(chan *ferrule.Manifest)}
		w.transport.see("g", named(b, "toy"))
		synctest.Wait()
		b.set(func(b *board) { b.manifest = unusable })
		b.renews <- unusable
		synctest.Wait()
		if now := w.device("toy"); now.State != ferrule.StateOffline {
			t.Errorf("got %+v", now)
		}
		if _, err := w.callAs(&ferrule.Call{Device: "toy", Tool: "move"}); err == nil || ferrule.AsError(err).MayHaveRun() {
			t.Errorf("a call: %v", err)
		}
		b.set(func(b *board) { b.manifest = nil })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if now := w.device("toy"); now.State != ferrule.StateOnline {
			t.Errorf("afterwards: %+v", now)
		}
	})
}
