package pipeline

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// jobs waits for a job that the device has begun, and returns its outcome as that of the
// call. Between two polls the lane of the device is free. Progress of the call is what the
// device says about the job. A job of another node's device is polled from here, so that it
// survives that node.
//
// When the caller cancels the call, the device is told to cancel the job, and the journal has
// that as a call of its own; not so when the deadline has passed: then nobody tells the device,
// and the error says what it said last.
func jobs(fleet Fleet, journal Journal) stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			if call.TakesJob || call.Operation != ferrule.CallTool && call.Operation != ferrule.PollJob {
				return next(ctx, call)
			}
			f := &follower{fleet: fleet, journal: journal, call: call, handle: next}
			if call.Operation == ferrule.PollJob {
				if call.Job == nil {
					return nil, ferrule.Errorf(ferrule.Invalid, "there is no job to ask for")
				}
				f.job, f.heard = *call.Job, time.Now()
				return begun(f.follow(ctx, 0))
			}
			result, err := begin(ctx, call, next)
			if err != nil || result.Job == nil {
				return result, err
			}
			f.job, f.heard = *result.Job, time.Now()
			f.tell()
			return begun(f.follow(ctx, f.interval()))
		}
	}
}

// begun returns the outcome of a job. No error of it says that nothing was sent.
func begun(result *ferrule.Result, err error) (*ferrule.Result, error) {
	if err != nil {
		return nil, ferrule.AsError(err).AfterBegin()
	}
	return result, nil
}

// beginTimeKey is the key of the time in which the job of a call must begin.
type beginTimeKey struct{}

// outlives reports whether a call may wait for a job for longer than its Timeout.
func outlives(call *ferrule.Call) bool {
	return !call.TakesJob && (call.Began != nil || call.Operation == ferrule.PollJob)
}

// begin makes the call that may begin a job.
func begin(ctx context.Context, call *ferrule.Call, next ferrule.Handler) (*ferrule.Result, error) {
	if limit, ok := ctx.Value(beginTimeKey{}).(time.Duration); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	if call.Target.Remote {
		there := *call
		there.TakesJob = true
		call = &there
	}
	return next(ctx, call)
}

// unfinished reports whether the outcome of a call is not known yet because its job goes on.
func unfinished(call *ferrule.Call, result *ferrule.Result, err error) bool {
	switch {
	case err == nil:
		return result.Job != nil
	case errors.Is(err, ferrule.ErrKeepJob):
		return true
	}
	return call.Operation == ferrule.PollJob && !ferrule.AsError(err).JobEnded
}

// changedByJob reports whether a call asks about a job that changes the world.
func changedByJob(call *ferrule.Call) bool {
	if call.Operation != ferrule.PollJob || call.Target.Manifest == nil {
		return false
	}
	tool := call.Target.Manifest.Tool(call.Tool)
	return tool != nil && tool.Effect != ferrule.Reads
}

// The times of polls.
const (
	// minRetry is how long to wait at least after a poll that failed.
	minRetry = 2 * time.Second
	// cancelTime is how long a device may take to cancel a job. A stop waits for it.
	cancelTime = 3 * time.Second
)

// follower waits for one job.
type follower struct {
	fleet   Fleet
	journal Journal
	call    *ferrule.Call // that began the job
	handle  ferrule.Handler
	job     ferrule.Job
	said    string    // the last progress
	failed  error     // of the last poll
	heard   time.Time // when the device last said something about the job
}

func (f *follower) interval() time.Duration { return f.job.Interval(time.Since(f.job.Began)) }

// tell reports the state of the job to the caller.
func (f *follower) tell() {
	if f.call.Began != nil {
		f.call.Began(f.job)
	}
	f.reportJob()
}

// reportJob reports what the device says about the job.
func (f *follower) reportJob() {
	f.report(f.state())
}

// state returns what the device says about the job.
func (f *follower) state() ferrule.Progress {
	if f.job.Message == "" {
		return ferrule.Progress{Message: "running"}
	}
	return ferrule.Progress{Message: f.job.Message, Said: true}
}

func (f *follower) report(p ferrule.Progress) {
	if p.Message != f.said {
		f.said = p.Message
		f.call.Report(p)
	}
}

// follow polls until the job has ended, for the first time after a pause.
func (f *follower) follow(ctx context.Context, pause time.Duration) (*ferrule.Result, error) {
	for {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return f.leave(ctx)
		}
		result, err := f.poll(ctx, ferrule.PollJob)
		switch {
		case f.ended(result, err):
			return result, err
		case ctx.Err() != nil:
			return f.leave(ctx)
		}
		f.failed = err
		pause = f.interval()
		if err != nil {
			f.report(ferrule.Progress{Message: ferrule.AsError(err).Attributed(f.call.Device)})
			pause = max(pause, minRetry)
		}
	}
}

// ended reports whether an answer says how the job has ended. Otherwise it takes over what
// the answer says about the job.
func (f *follower) ended(result *ferrule.Result, err error) bool {
	if err != nil {
		return ferrule.AsError(err).JobEnded
	}
	if result.Job == nil {
		return true
	}
	changed := result.Job.Handle != f.job.Handle
	f.heard = time.Now()
	f.job.Handle, f.job.Message, f.job.Every = result.Job.Handle, result.Job.Message, cmp.Or(result.Job.Every, f.job.Every)
	if changed && f.call.Began != nil {
		f.call.Began(f.job)
	}
	f.reportJob()
	return false
}

// poll makes one call about the job.
func (f *follower) poll(ctx context.Context, op ferrule.Operation) (*ferrule.Result, error) {
	call, err := f.about(op)
	if err != nil {
		return nil, err
	}
	return f.send(ctx, call)
}

// about returns a call about the job. The device may be at another node by now.
func (f *follower) about(op ferrule.Operation) (*ferrule.Call, error) {
	call := *f.call
	job := f.job
	call.Operation, call.Job, call.TakesJob, call.Began, call.Progress = op, &job, true, nil, nil
	call.Timeout = ferrule.Duration(MaxDeadline) // the device may ask the caller; the dock limits the rest
	call.Verdict = ferrule.Verdict{Ruling: ferrule.Permit, Reason: "it belongs to a call that was permitted"}
	find := f.fleet.Target
	if call.Via != "" {
		find = f.fleet.Own
	}
	target, ok := find(call.Device)
	switch {
	case !ok:
		return nil, ferrule.UnknownDevice(call.Device)
	case target.Device.State != ferrule.StateOnline && !mayReturn(target, &call):
		return nil, target.Device.OfflineError()
	case target.Manifest == nil || target.Device.Trust == ferrule.TrustPending:
		return nil, ferrule.Errorf(ferrule.Pending, "%s waits for its owner", call.Device)
	}
	if target.Tool = target.Manifest.ToolFor(op, call.Tool); target.Tool == nil {
		return nil, ferrule.Errorf(ferrule.NotFound, "%s has no tool %q any more", call.Device, ferrule.Clean(call.Tool, ferrule.MaxToolName))
	}
	call.Target = target
	return &call, nil
}

// send sends a call about the job to the device.
func (f *follower) send(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	ctx, cancel := context.WithTimeout(ferrule.WithSend(ctx, func() error { return nil }), MaxDeadline) // a stop ends ctx
	defer cancel()
	return f.handle(ctx, call)
}
