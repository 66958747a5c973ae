package dock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

const kilnOverlay = `{"tools":{"start_kiln":{"job":{"poll":"kiln_status","id":"job","done":{"state":"done"},"failed":{"state":"stopped"},"message":"{left} s left","cancel":"stop_kiln"}},"kiln_status":{"effect":"reads"}}}`

// kiln is a board with a job, whose state the test controls.
type kiln struct {
	*board
	world *world
	pipe  *pipeline.Pipeline

	mu      sync.Mutex
	job     int // the current one; 0 after a restart
	starts  int
	state   string
	ends    time.Time
	polls   []time.Time
	stops   int
	records []ferrule.Entry
}

// Append implements pipeline.Journal.
func (k *kiln) Append(e ferrule.Entry, _ bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.records = append(k.records, e)
	return nil
}

// recorded lists what the journal has about calls of start_kiln.
func (k *kiln) recorded() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []string
	for _, e := range k.records {
		if e.Tool == "start_kiln" {
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", e.Call, e.Phase, e.Operation, e.Code)))
		}
	}
	return strings.Join(all, "; ")
}

func (k *kiln) Invoke(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if call.Operation != ferrule.CallTool {
		panic("the board has tools only")
	}
	if k.state == "firing" && !time.Now().Before(k.ends) {
		k.state = "done"
	}
	switch call.Tool {
	case "start_kiln":
		var args struct{ Seconds int }
		if err := json.Unmarshal(call.Args, &args); err != nil {
			return nil, ferrule.Errorf(ferrule.Refused, "bad arguments")
		}
		k.starts++
		k.job, k.state, k.ends = k.starts, "firing", time.Now().Add(time.Duration(args.Seconds)*time.Second)
	case "kiln_status":
		k.polls = append(k.polls, time.Now())
	case "stop_kiln":
		k.stops++
		k.state = "stopped"
	}
	return &ferrule.Result{Value: json.RawMessage(fmt.Sprintf(`{"job":%d,"state":%q,"left":%d}`, k.job, k.state, max(0, int(time.Until(k.ends).Seconds()))))}, nil
}

func (k *kiln) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

func newKiln(t *testing.T, dir string) *kiln { return newKilnWith(t, dir, kilnOverlay) }

func newKilnWith(t *testing.T, dir, text string) *kiln {
	t.Helper()
	file, err := overlay.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	k := &kiln{board: &board{address: "a", model: "kiln"}, state: "idle"}
	k.board.invoke = k.Invoke
	k.board.manifest = &ferrule.Manifest{Model: "kiln", Version: "1", Tools: []ferrule.Tool{{Name: "start_kiln"}, {Name: "kiln_status"}, {Name: "stop_kiln"}, {Name: "look", Effect: ferrule.Reads}}}
	k.world = open(t, dir, func(p *dock.Parts) { p.Overlays = overlay.NewCache(overlay.NewSet(file)) })
	k.pipe = pipeline.New(pipeline.Parts{Config: pipeline.DefaultConfig(), Journal: k, Fleet: k.world.fleet, Log: slog.New(slog.DiscardHandler)})
	k.world.transport.see("g", named(k.board, "kiln"))
	return k
}

var maria = ferrule.Principal{Role: ferrule.Agent, Name: "maria"}

func firing(seconds int) *ferrule.Call {
	return &ferrule.Call{ID: "1", Device: "kiln", Tool: "start_kiln", Principal: maria, Args: json.RawMessage(fmt.Sprintf(`{"seconds":%d}`, seconds))}
}

// TestJob checks that a caller gets the outcome of a job, that the board is free meanwhile, and
// that the journal has one outcome.
func TestJob(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		k := newKiln(t, dir)
		var said []string
		call := firing(10)
		call.Progress = func(p ferrule.Progress) { said = append(said, p.Message) }
		ended := make(chan string, 1)
		go func() {
			result, err := k.pipe.Handle(t.Context(), call)
			ended <- fmt.Sprint(string(result.Value), err)
		}()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if _, err := k.pipe.Handle(t.Context(), &ferrule.Call{Device: "kiln", Tool: "look", Principal: maria}); err != nil {
			t.Errorf("meanwhile: %v", err)
		}
		if got := <-ended; got != `{"job":1,"state":"done","left":0}<nil>` {
			t.Errorf("got %s", got)
		}
		if want := "running 9 s left 8 s left"; !strings.HasPrefix(strings.Join(said, " "), want) {
			t.Errorf("progress is %q", said)
		}
		for i := range k.polls[1:] {
			if gap := k.polls[i+1].Sub(k.polls[i]); gap < ferrule.MinJobPoll {
				t.Errorf("polls %v apart", gap)
			}
		}
		if got, want := k.recorded(), "1 intent; 1 outcome"; strings.ReplaceAll(got, "  ", " ") != want || k.starts != 1 {
			t.Errorf("%d starts, recorded %q, want %q", k.starts, got, want)
		}
	})
}

// TestJobDeadline checks that a job goes on when the time of the call is over, and that a
// caller who wants no more of it cancels it.
func TestJobDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		k := newKiln(t, dir)
		_, err := k.pipe.Handle(t.Context(), firing(3600))
		e := ferrule.AsError(err)
		if e.Code != ferrule.Unanswered || !strings.HasPrefix(e.Message, "kiln still runs start_kiln after 30s: kiln says: 35") || k.stops != 0 || !e.MayHaveRun() {
			t.Errorf("got %v, %d stops", e, k.stops)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = k.pipe.Handle(ctx, firing(3600))
		if e := ferrule.AsError(err); e.Code != ferrule.Failed || e.Message != "kiln was told to stop (stop_kiln); then: start_kiln failed on kiln: 3598 s left" || k.stops != 1 {
			t.Errorf("cancelled: got %v, %d stops", e, k.stops)
		}
	})
}

// TestJobDeadlineOffline checks that the deadline of a job whose device is lost does not say that
// the device runs it.
func TestJobDeadlineOffline(t *testing.T) {
	for _, lost := range []time.Duration{10 * time.Second, 22 * time.Second, 26 * time.Second} { // before several polls, before one, during one
		bubble(t, func(t *testing.T, dir string) {
			k := newKiln(t, dir)
			time.AfterFunc(lost, func() { k.world.transport.see("g") })
			_, err := k.pipe.Handle(t.Context(), firing(3600))
			e := ferrule.AsError(err)
			if e.Code != ferrule.Unanswered || !e.MayHaveRun() || strings.Contains(e.Message, "still runs start_kiln") ||
				!strings.HasPrefix(e.Message, "start_kiln has not ended on kiln after 30s: kiln ") || !strings.Contains(e.Message, "; it last said: 35") ||
				!strings.HasSuffix(e.Message, " s left. Whether it still runs is not known") {
				t.Errorf("lost after %v: %v", lost, e)
			}
		})
	}
}

// TestJobCancelled checks that a caller who cancels a job is told whether the device was told to
// stop, and that the journal has it.
func TestJobCancelled(t *testing.T) {
	tests := map[string]struct {
		overlay string
		answer  error  // to stop_kiln
		ends    bool   // the job, after stop_kiln
		message string // of the error; empty if the job is done
		record  string // of the cancel
	}{
		"done":      {"stop_kiln", nil, true, "", "1-cancel outcome cancel_job: kiln was told to stop (stop_kiln)"},
		"goes on":   {"stop_kiln", nil, false, "kiln was told to stop (stop_kiln), but has not confirmed that start_kiln ended; it last said: 3595 s left", "1-cancel outcome cancel_job: kiln was told to stop (stop_kiln)"},
		"failed":    {"stop_kiln", ferrule.Errorf(ferrule.Failed, "relay stuck"), false, "stop_kiln failed: relay stuck; kiln may still run start_kiln", "1-cancel outcome cancel_job failed: relay stuck"},
		"not sent":  {"stop_kiln", ferrule.Errorf(ferrule.Offline, "kiln is offline"), false, "kiln was not told to cancel start_kiln and may still run it: kiln is offline", "1-cancel outcome cancel_job offline: kiln is offline"},
		"no cancel": {"", nil, false, "start_kiln on kiln cannot be cancelled: its overlay names no tool for that; kiln was not told to stop, and goes on until the job ends by itself", "1-cancel outcome cancel_job refused: start_kiln on kiln cannot be cancelled: its overlay names no tool for that"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				k := newKilnWith(t, dir, strings.Replace(kilnOverlay, `"cancel":"stop_kiln"`, fmt.Sprintf(`"cancel":%q`, test.overlay), 1))
				k.board.invoke = func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
					if call.Tool != "stop_kiln" {
						return k.Invoke(ctx, call)
					}
					if test.ends {
						k.set(func() { k.state = "done" })
					}
					return &ferrule.Result{Value: json.RawMessage(`{}`)}, test.answer
				}
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(2*time.Second, cancel)
				call := firing(3600)
				var said []string
				call.Progress = func(p ferrule.Progress) { said = append(said, p.Message) }
				_, err := k.pipe.Handle(ctx, call)
				if test.message == "" {
					if err != nil || !slices.Contains(said, "kiln was told to stop (stop_kiln)") {
						t.Errorf("got %v, progress %q", err, said)
					}
				} else if e := ferrule.AsError(err); e.Code != ferrule.Cancelled || e.Message != test.message || !e.MayHaveRun() {
					t.Errorf("got %s %q", e.Code, e.Message)
				}
				var cancels []string
				for _, e := range k.records {
					if e.Operation == ferrule.CancelJob && e.Phase == ferrule.Outcome {
						cancels = append(cancels, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", e.Call, e.Phase, e.Operation, e.Code))+": "+e.Message)
					}
				}
				if !slices.Equal(cancels, []string{test.record}) {
					t.Errorf("recorded %q", cancels)
				}
			})
		})
	}
}

// TestJobResumed checks that a call with Began waits without limit, that it can be left
// without a trace in the journal, and that a later PollJob gets the outcome.
func TestJobResumed(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		k := newKiln(t, dir)
		var job ferrule.Job
		call := firing(600)
		call.Began = func(j ferrule.Job) { job = j }
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Minute, func() { cancel(ferrule.ErrKeepJob) })
		if _, err := k.pipe.Handle(ctx, call); !ferrule.AsError(err).MayHaveRun() || k.stops != 0 || job.Handle != "overlay:1" {
			t.Fatalf("got %v, %d stops, %+v", err, k.stops, job)
		}
		if got := k.recorded(); got != "1 intent" {
			t.Errorf("recorded %q", got)
		}
		k.board.hangUp() // the job goes on
		again := firing(600)
		again.Operation, again.Job = ferrule.PollJob, &job
		begun := time.Now()
		result, err := k.pipe.Handle(t.Context(), again)
		if err != nil || string(result.Value) != `{"job":1,"state":"done","left":0}` || time.Since(begun) > 5*time.Minute+10*time.Second {
			t.Errorf("got %v, %v after %v", result, err, time.Since(begun))
		}
		if got := k.recorded(); strings.ReplaceAll(got, "  ", " ") != "1 intent; 1 outcome" || k.starts != 1 {
			t.Errorf("%d starts, recorded %q", k.starts, got)
		}
		took := k.records[len(k.records)-1].Took
		if time.Duration(took) < 10*time.Minute {
			t.Errorf("took %v", took)
		}
	})
}

// TestJobLost checks that a board that was restarted, or does another job, does not count as
// done; and that one that is away for a while is asked again.
func TestJobLost(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		k := newKiln(t, dir)
		call := firing(20)
		var said []string
		call.Progress = func(p ferrule.Progress) { said = append(said, p.Message) }
		time.AfterFunc(2*time.Second, func() { k.world.transport.see("g") })
		time.AfterFunc(15*time.Second, func() { k.world.transport.see("g", named(k.board, "kiln")) })
		if result, err := k.pipe.Handle(t.Context(), call); err != nil || !strings.Contains(string(result.Value), "done") {
			t.Errorf("away for a while: %v, %v", result, err)
		}
		if !slices.ContainsFunc(said, func(m string) bool { return strings.Contains(m, "kiln is offline since") }) {
			t.Errorf("progress is %q", said)
		}
		time.AfterFunc(2*time.Second, func() { k.set(func() { k.job, k.state = 0, "done" }) })
		_, err := k.pipe.Handle(t.Context(), firing(20))
		if e := ferrule.AsError(err); e.Code != ferrule.Unanswered || !strings.Contains(e.Message, "the device now reports about job 0, not about 2") || !e.MayHaveRun() {
			t.Errorf("restarted: %v", e)
		}
		if k.starts != 2 {
			t.Errorf("%d starts", k.starts)
		}
	})
}

// TestJobTaken checks what a caller gets that follows jobs itself, such as another node, and
// that a protocol without jobs gets no poll that it would take for a call.
func TestJobTaken(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		k := newKiln(t, dir)
		call := firing(5)
		call.TakesJob = true
		result, err := k.pipe.Handle(t.Context(), call)
		if err != nil || result.Job == nil || result.Job.Handle != "overlay:1" || result.Value != nil {
			t.Fatalf("got %+v, %v", result, err)
		}
		poll := func(op ferrule.Operation, handle string) (*ferrule.Result, error) {
			call := firing(5)
			call.Operation, call.Job, call.TakesJob = op, &ferrule.Job{Handle: handle}, true
			return k.pipe.Handle(t.Context(), call)
		}
		if result, err = poll(ferrule.PollJob, "overlay:1"); err != nil || result.Job == nil || result.Job.Message != "5 s left" {
			t.Errorf("got %+v, %v", result, err)
		}
		if got := k.recorded(); got != "1 intent" {
			t.Errorf("recorded %q", got)
		}
		if _, err := poll(ferrule.PollJob, "task"); !ferrule.AsError(err).JobEnded || ferrule.AsError(err).Code != ferrule.Unanswered {
			t.Errorf("a foreign handle: %v", err)
		}
		if result, err = poll(ferrule.CancelJob, "overlay:1"); err != nil || k.stops != 1 {
			t.Errorf("got %+v, %v, %d stops", result, err, k.stops)
		}
		if _, err = poll(ferrule.PollJob, "overlay:1"); ferrule.AsError(err).Code != ferrule.Failed || !ferrule.AsError(err).JobEnded {
			t.Errorf("after a cancel: %v", err)
		}
		if k.starts != 1 {
			t.Errorf("%d starts", k.starts)
		}
	})
}
