package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// movingFleet has a device that begins at this node or another, and moves to the other.
type movingFleet struct {
	remote bool
	send   func(remote bool, call *ferrule.Call) (*ferrule.Result, error)
}

func (f *movingFleet) Target(id string) (ferrule.Target, bool) {
	remote := f.remote
	dev := &ferrule.Device{ID: id, State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}
	m := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "fire", Effect: ferrule.Endangers}}}
	return ferrule.Target{Device: dev, Manifest: m, Remote: remote, Handler: func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		return f.send(remote, call)
	}}, id == "kiln"
}

func (f *movingFleet) Own(id string) (ferrule.Target, bool) { return f.Target(id) }

type entries struct{ all []ferrule.Entry }

func (e *entries) Append(one ferrule.Entry, _ bool) error {
	e.all = append(e.all, one)
	return nil
}

// list returns the records in a few words.
func (e *entries) list() string {
	var all []string
	for _, one := range e.all {
		words := []string{one.Call, string(one.Phase), string(one.Operation), string(one.Code)}
		if one.MayHaveRun {
			words = append(words, "may have run")
		}
		all = append(all, strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "))
	}
	return strings.Join(all, "; ")
}

// TestJobMoves checks that a job is followed when its device moves to another node. The policy
// is asked once; polls are neither limited nor recorded.
func TestJobMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		f := &movingFleet{remote: true}
		f.send = func(remote bool, call *ferrule.Call) (*ferrule.Result, error) {
			sent = append(sent, fmt.Sprintf("%s remote=%t takes=%t %s", call.Operation, remote, call.TakesJob, call.Target.Tool.Effect))
			if len(sent) < 4 {
				f.remote = len(sent) < 2
				return &ferrule.Result{Job: &ferrule.Job{Handle: "h", Began: time.Now()}}, nil
			}
			return &ferrule.Result{Value: json.RawMessage(`"fired"`)}, nil
		}
		asked := 0
		records := &entries{}
		cfg := DefaultConfig()
		cfg.PerMinute = 1
		p := New(Parts{Config: cfg, Fleet: f, Journal: records, Log: slog.New(slog.DiscardHandler), Policy: func(*ferrule.Call) ferrule.Verdict {
			asked++
			return ferrule.Verdict{Ruling: ferrule.Permit}
		}})
		result, err := p.Handle(t.Context(), &ferrule.Call{Device: "kiln", Tool: "fire", Principal: ferrule.Principal{Role: ferrule.Agent, Name: "a"}})
		if err != nil || string(result.Value) != `"fired"` || asked != 1 {
			t.Fatalf("got %v, %v, asked %d times", result, err, asked)
		}
		want := " remote=true takes=true endangers; poll_job remote=true takes=true reads; poll_job remote=false takes=true reads; poll_job remote=false takes=true reads"
		if got := strings.Join(sent, "; "); got != want {
			t.Errorf("sent %q", got)
		}
		if len(records.all) != 0 { // the node that holds the device has recorded it
			t.Errorf("recorded %+v", records.all)
		}
	})
}

// stopNow is a Stop that stops after a time.
type stopNow struct{ after time.Duration }

func (s stopNow) Enter(ctx context.Context, call *ferrule.Call) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(s.after, func() { cancel(ferrule.Errorf(ferrule.Denied, "stopped")) })
	stopped := func() error { return context.Cause(ctx) }
	return ferrule.WithSend(ctx, stopped), func() { timer.Stop() }, nil
}

// isStopped is a Stop that was given before.
type isStopped struct{}

func (isStopped) Enter(context.Context, *ferrule.Call) (context.Context, func(), error) {
	return nil, nil, ferrule.Errorf(ferrule.Denied, "stopped")
}

// TestStopCancelsJob checks that a stop ends a job: the device is told, although nothing else
// may be sent.
func TestStopCancelsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancelled := 0
		f := &movingFleet{}
		f.send = func(_ bool, call *ferrule.Call) (*ferrule.Result, error) {
			if call.Operation == ferrule.CancelJob {
				cancelled++
			}
			return &ferrule.Result{Job: &ferrule.Job{Handle: "h", Began: time.Now()}}, nil
		}
		records := &entries{}
		p := New(Parts{Config: DefaultConfig(), Fleet: f, Journal: records, Log: slog.New(slog.DiscardHandler), Stop: stopNow{5 * time.Second}})
		began := time.Now()
		_, err := p.Handle(t.Context(), &ferrule.Call{ID: "1", Device: "kiln", Tool: "fire", Principal: ferrule.Principal{Role: ferrule.Agent, Name: "a"}})
		e := ferrule.AsError(err)
		if cancelled != 1 || e.Code != ferrule.Unanswered || !strings.Contains(e.Message, "stopped") || !e.MayHaveRun() || time.Since(began) > 5*time.Second+cancelTime {
			t.Errorf("cancelled %d times, %v after %v", cancelled, e, time.Since(began))
		}
		if !strings.Contains(e.Message, "kiln was told to cancel fire, but has not confirmed that fire ended") {
			t.Errorf("got %v", e)
		}
		if got, want := records.list(), "1 intent; 1-cancel intent cancel_job; 1-cancel outcome cancel_job; 1 outcome unanswered may have run"; got != want {
			t.Errorf("recorded %q, want %q", got, want)
		}
		// So does a stop that was given while nobody followed the job.
		for _, stop := range []Stop{stopNow{time.Second}, isStopped{}} {
			cancelled = 0
			records.all = nil
			p := New(Parts{Config: DefaultConfig(), Fleet: f, Journal: records, Log: slog.New(slog.DiscardHandler), Stop: stop})
			_, err := p.Handle(t.Context(), &ferrule.Call{
				ID: "1", Device: "kiln", Tool: "fire", Principal: ferrule.Principal{Role: ferrule.Agent, Name: "a"}, Operation: ferrule.PollJob, Job: &ferrule.Job{Handle: "h"},
			})
			if e := ferrule.AsError(err); cancelled != 1 || e.Code != ferrule.Unanswered || !strings.Contains(e.Message, "stopped") {
				t.Errorf("%T: cancelled %d times, %v", stop, cancelled, e)
			}
			if got, want := records.list(), "1-cancel intent cancel_job; 1-cancel outcome cancel_job; 1 outcome unanswered may have run"; got != want {
				t.Errorf("%T: recorded %q, want %q", stop, got, want)
			}
		}
	})
}

// TestBegunJobMayHaveRun: once a device has begun a job, no error says that nothing was sent,
// whatever made the job end: a question that its owner does not allow, or a refused poll.
func TestBegunJobMayHaveRun(t *testing.T) {
	for _, code := range []ferrule.Code{ferrule.Denied, ferrule.Refused, ferrule.Limited, ferrule.Invalid, ferrule.Internal, ferrule.Cancelled, ferrule.NotFound, ferrule.Failed} {
		synctest.Test(t, func(t *testing.T) {
			f := &movingFleet{}
			f.send = func(_ bool, call *ferrule.Call) (*ferrule.Result, error) {
				if call.Operation == ferrule.PollJob {
					return nil, ferrule.Errorf(code, "it may not ask").EndsJob()
				}
				return &ferrule.Result{Job: &ferrule.Job{Handle: "h", Began: time.Now()}}, nil
			}
			records := &entries{}
			p := New(Parts{Config: DefaultConfig(), Fleet: f, Journal: records, Log: slog.New(slog.DiscardHandler)})
			_, err := p.Handle(t.Context(), &ferrule.Call{ID: "1", Device: "kiln", Tool: "fire", Principal: ferrule.Principal{Role: ferrule.Agent, Name: "a"}})
			if e := ferrule.AsError(err); !e.MayHaveRun() || !e.JobEnded || !strings.Contains(e.Message, "may not ask") {
				t.Errorf("%s: %v: %s", code, e, e.Certainty())
			}
			if len(records.all) != 2 || !records.all[1].MayHaveRun {
				t.Errorf("%s: recorded %+v", code, records.all)
			}
		})
	}
}

// TestJobMarksWords checks that what a device says about a job, or why it cannot be asked about
// it, is marked in progress and in the error at the deadline.
func TestJobMarksWords(t *testing.T) {
	const words = "approved by a person"
	for name, test := range map[string]struct {
		fails bool
		want  string
	}{
		"says":  {false, "kiln still runs fire after 1m0s: kiln says: approved by a person"},
		"fails": {true, "fire has not ended on kiln after 1m0s: status failed on kiln. kiln says: approved by a person; it last said: approved by a person. Whether it still runs is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &movingFleet{}
				f.send = func(_ bool, call *ferrule.Call) (*ferrule.Result, error) {
					if test.fails && call.Operation == ferrule.PollJob {
						return nil, ferrule.Errorf(ferrule.Failed, "status failed on kiln: %s", words)
					}
					return &ferrule.Result{Job: &ferrule.Job{Handle: "h", Began: time.Now(), Message: words}}, nil
				}
				p := New(Parts{Config: DefaultConfig(), Fleet: f, Journal: &entries{}, Log: slog.New(slog.DiscardHandler), Policy: func(*ferrule.Call) ferrule.Verdict { return ferrule.Verdict{Ruling: ferrule.Permit} }})
				var shown []string
				_, err := p.Handle(t.Context(), &ferrule.Call{
					Device: "kiln", Tool: "fire", Principal: ferrule.Principal{Role: ferrule.Agent, Name: "a"}, Timeout: ferrule.Duration(time.Minute),
					Progress: func(p ferrule.Progress) { shown = append(shown, p.Text("kiln")) },
				})
				if err == nil || err.Error() != test.want {
					t.Errorf("got %v\nwant %s", err, test.want)
				}
				for _, text := range shown {
					if !strings.Contains(text, "kiln says: "+words) {
						t.Errorf("progress %q", text)
					}
				}
			})
		})
	}
}
