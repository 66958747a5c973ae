package dock

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// jobTime limits the wait for the lane before a poll of a job, and a poll that is a call of a
// tool.
const jobTime = 15 * time.Second

// overlayHandle begins the handles of jobs that an overlay describes. The ID of the job
// follows, if it has one.
const overlayHandle = "overlay:"

// begun returns the answer to a call. If the device goes on by itself, it has a Job.
func begun(call *ferrule.Call, result *ferrule.Result) (*ferrule.Result, error) {
	if tool := call.Target.Tool; tool != nil && tool.Job != nil && result.Job == nil {
		spec := tool.Job
		var id json.RawMessage
		if spec.ID != nil {
			var err error
			if id, err = spec.ID(result); err != nil {
				return nil, ferrule.Errorf(ferrule.Unanswered, "%s began %s, but its answer does not say which job that is: %w", call.Device, call.Tool, err).
					WithHint("check the device with %s; correct `id` of the job in its overlay", spec.Poll).Once()
			}
		}
		job, err := ferrule.NewJob(overlayHandle+string(id), "", time.Duration(spec.Every))
		if err != nil {
			return nil, ferrule.Errorf(ferrule.Unanswered, "%s began %s, but cannot be asked about it: %w", call.Device, call.Tool, err).Once()
		}
		result = &ferrule.Result{Job: job, Sent: result.Sent, Answered: result.Answered}
	}
	if result.Job != nil {
		result.Job.Began = time.Now()
	}
	return result, nil
}

// invoke gives a call to a session.
func invoke(ctx context.Context, session protocol.Session, call *ferrule.Call) (*ferrule.Result, error) {
	if !call.Operation.OfJob() {
		return session.Invoke(ctx, call)
	}
	if call.Job == nil {
		return nil, ferrule.Errorf(ferrule.Invalid, "there is no job to ask for")
	}
	id, described := strings.CutPrefix(call.Job.Handle, overlayHandle)
	if spec := call.Target.Tool.Job; described && spec != nil {
		return invokeFor(ctx, session, call, spec, json.RawMessage(id))
	}
	if jobs, ok := session.(protocol.JobSession); ok && !described {
		return jobs.Job(ctx, call)
	}
	return nil, unknownJob(call, "the gateway no longer knows how to ask for it")
}

// unknownJob returns the error of a job whose outcome nobody can tell.
func unknownJob(call *ferrule.Call, why string) error {
	return ferrule.Errorf(ferrule.Unanswered, "the outcome of %s on %s is unknown: %s", call.Tool, call.Device, why).Once().EndsJob()
}

// invokeFor calls the tool with which an overlay follows a job.
func invokeFor(ctx context.Context, session protocol.Session, call *ferrule.Call, spec *ferrule.ToolJob, id json.RawMessage) (*ferrule.Result, error) {
	name, args := spec.Poll, spec.PollArgs
	if call.Operation == ferrule.CancelJob {
		name, args = spec.Cancel, spec.CancelArgs
	}
	if name == "" {
		return nil, ferrule.Errorf(ferrule.Refused, "%s on %s cannot be cancelled: its overlay names no tool for that", call.Tool, call.Device)
	}
	tool := call.Target.Manifest.Tool(name)
	if tool == nil || tool.Quarantine != "" {
		return nil, ferrule.Errorf(ferrule.NotFound, "%s has no tool %q, which its overlay names for %s", call.Device, name, call.Tool)
	}
	sub := *call
	sub.Operation, sub.Tool, sub.Job, sub.Target.Tool = ferrule.CallTool, name, nil, tool
	sub.Args, sub.DecodedArgs = args(id), nil
	ctx, cancel := context.WithTimeout(ctx, jobTime)
	defer cancel()
	answer, err := session.Invoke(ctx, &sub)
	if err != nil || answer.InputRequest != nil {
		return answer, err
	}
	if call.Operation == ferrule.CancelJob { // the next poll says whether it has ended
		return &ferrule.Result{Job: call.Job}, nil
	}
	return readStatus(call, spec, id, answer)
}

// readStatus returns what a status says about a job.
func readStatus(call *ferrule.Call, spec *ferrule.ToolJob, id json.RawMessage, answer *ferrule.Result) (*ferrule.Result, error) {
	status, err := spec.Read(answer)
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Failed, "%s of %s does not say how far %s is: %w", spec.Poll, call.Device, call.Tool, err)
	}
	message := ferrule.OneLine(ferrule.Clean(status.Message, ferrule.MaxJobMessage), ferrule.MaxJobMessage)
	switch {
	case spec.ID != nil && !bytes.Equal(status.ID, id):
		return nil, unknownJob(call, "the device now reports about job "+ferrule.Clean(cmp.Or(string(status.ID), "none"), ferrule.MaxWord)+", not about "+ferrule.Clean(string(id), ferrule.MaxWord)+"; it may have been restarted")
	case status.Failed:
		e := ferrule.Errorf(ferrule.Failed, "%s failed on %s: %s", call.Tool, call.Device, cmp.Or(message, "the device gives no reason")).EndsJob()
		if status.Result != nil {
			e.Content = status.Result.Content
		}
		return nil, e
	case status.Done:
		return status.Result, nil
	}
	job := *call.Job
	job.Message = message
	return &ferrule.Result{Job: &job}, nil
}

// unanswered returns the error of a call whose questions were not answered. A job that waits
// for answers would wait for ever: it is cancelled.
func (c *supervisor) unanswered(ctx context.Context, call *ferrule.Call, failed error) error {
	if call.Operation != ferrule.PollJob || ctx.Err() != nil {
		return failed
	}
	cancel := *call
	cancel.Operation, cancel.Inputs = ferrule.CancelJob, nil
	cancel.Target.Tool = call.Target.Manifest.ToolFor(ferrule.CancelJob, call.Tool)
	if _, err := c.invoke(ctx, &cancel); err != nil {
		ferrule.Logger(ctx).Warn("a job that waits for input was not cancelled", "err", err)
	}
	return ferrule.AsError(failed).EndsJob()
}
