package pipeline

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// leave ends the wait because ctx has ended.
func (f *follower) leave(ctx context.Context) (*ferrule.Result, error) {
	tool, device := f.call.Tool, f.call.Device
	switch {
	case errors.Is(context.Cause(ctx), ferrule.ErrKeepJob):
		return nil, ferrule.Errorf(ferrule.Cancelled, "%s goes on with %s, but nobody waits for it here: %w", device, tool, ferrule.ErrKeepJob).AfterSend()
	case !errors.Is(ctx.Err(), context.Canceled):
		return nil, f.late()
	}
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer stop()
	result, err := f.cancel(limited)
	if err != nil {
		return nil, err
	}
	told := f.told()
	f.report(ferrule.Progress{Message: told})
	for !f.ended(result, err) {
		select {
		case <-time.After(ferrule.MinJobPoll):
		case <-limited.Done():
			return nil, ferrule.Errorf(ferrule.Cancelled, "%s, but has not confirmed that %s ended%s", told, tool, f.lastSaid()).AfterSend().EndsJob()
		}
		result, err = f.poll(limited, ferrule.PollJob)
	}
	if err != nil {
		e := *ferrule.AsError(err)
		e.Message = told + "; then: " + e.Message
		return nil, &e
	}
	return result, nil
}

// late returns the error of a job that has not ended before the deadline. The device may have
// been lost since it was last asked.
func (f *follower) late() error {
	const hint = "do not repeat the call; read the state of the device later, or allow more time"
	after := time.Since(f.job.Began).Round(time.Second)
	if why := f.unheard(); why != "" {
		return ferrule.Errorf(ferrule.Unanswered, "%s has not ended on %s after %v: %s%s. Whether it still runs is not known", f.call.Tool, f.call.Device, after, why, f.lastSaid()).
			WithHint(hint)
	}
	state := f.state()
	return ferrule.Errorf(ferrule.Unanswered, "%s still runs %s after %v: %s", f.call.Device, f.call.Tool, after, state.Text(f.call.Device)).WithHint(hint)
}

// unheard returns why it is not known what the device does now, or "".
func (f *follower) unheard() string {
	call, err := f.about(ferrule.PollJob)
	if err == nil && call.Target.Device.State != ferrule.StateOnline { // it was about to come back
		err = call.Target.Device.OfflineError()
	}
	switch err = cmp.Or(err, f.failed); {
	case err != nil:
		return ferrule.AsError(err).Attributed(f.call.Device)
	case time.Since(f.heard) > f.interval()+minRetry:
		return f.call.Device + " has not answered since " + ferrule.FormatTime(f.heard)
	}
	return ""
}

// lastSaid returns the last words of the device about the job, after a semicolon, or "".
func (f *follower) lastSaid() string {
	if f.job.Message == "" {
		return ""
	}
	return "; it last said: " + f.job.Message
}

// told says that the device got the request to cancel the job.
func (f *follower) told() string {
	if name := f.cancelTool(); name != "" {
		return f.call.Device + " was told to stop (" + name + ")"
	}
	return f.call.Device + " was told to cancel " + f.call.Tool
}

// cancelTool returns the tool that an overlay names to cancel the job, or "".
func (f *follower) cancelTool() string {
	if tool := f.call.Target.Tool; tool != nil && tool.Job != nil {
		return tool.Job.Cancel
	}
	return ""
}

// cancel tells the device to cancel the job, and records it. It does not wait long for the
// disk: a cancel makes safe. Another node records what it tells its devices. The error says
// whether the device may still run the job.
func (f *follower) cancel(ctx context.Context) (*ferrule.Result, error) {
	call, err := f.about(ferrule.CancelJob)
	if err != nil {
		return nil, f.notCancelled(err)
	}
	call.ID += "-cancel" // the ID of the job is that of the call that began it
	var failed error
	if !call.Target.Remote {
		failed = appendSoon(f.journal, record(call, ferrule.Intent), true, true)
	}
	start := time.Now()
	result, err := f.send(ctx, call)
	if !call.Target.Remote {
		entry := record(call, ferrule.Outcome)
		entry.Took, entry.Message = ferrule.Duration(time.Since(start)), f.told()
		if err != nil {
			e := ferrule.AsError(err)
			entry.Code, entry.Message, entry.MayHaveRun = e.Code, e.Message, e.MayHaveRun()
		}
		failed = errors.Join(failed, appendSoon(f.journal, entry, true, true))
	}
	if failed != nil {
		ferrule.Logger(ctx).Error("cancel of a job not recorded", "err", failed)
	}
	if err != nil && !ferrule.AsError(err).JobEnded {
		return nil, f.notCancelled(err)
	}
	return result, err
}

// notCancelled returns the error of a job that goes on, or may go on, because the device could
// not be told to cancel it.
func (f *follower) notCancelled(err error) error {
	tool, device, name := f.call.Tool, f.call.Device, f.cancelTool()
	e := ferrule.AsError(err)
	text := "%[1]s was not told to cancel %[2]s and may still run it: %[4]w"
	switch {
	case name == "" && e.Code == ferrule.Refused && f.call.Target.Tool.Job != nil: // the overlay has no tool for it
		text = "%[4]w; %[1]s was not told to stop, and goes on until the job ends by itself"
	case e.MayHaveRun() || e.Code == ferrule.Refused:
		name = cmp.Or(name, "the request to cancel it")
		text = "%[3]s failed: %[4]w; %[1]s may still run %[2]s"
	}
	return ferrule.Errorf(ferrule.Cancelled, text, device, tool, name, err).AfterSend().EndsJob()
}
