package ferrule

import (
	"encoding/json"
	"errors"
	"time"
)

// The limits of a Job. Handles and messages come from the device.
const (
	MaxHandle     = 1024 // bytes
	MaxJobMessage = 256  // bytes
	MinJobPoll    = 500 * time.Millisecond
	MaxJobPoll    = time.Minute
)

// ErrKeepJob is the cause with which a caller cancels the context of a call if the job of
// the call is to go on. Without it, the device is told to cancel the job.
var ErrKeepJob = errors.New("the job goes on")

// NewJob returns a job with a handle and a message of a device, within limits. Every is how
// often the device wants to be asked; zero if it does not say. It returns an error if the
// handle cannot be used.
func NewJob(handle, message string, every time.Duration) (*Job, error) {
	if handle == "" || len(handle) > MaxHandle || Clean(handle, MaxHandle) != handle {
		return nil, errors.New("its handle must be printable and have 1 to 1024 bytes")
	}
	j := &Job{Handle: handle, Message: OneLine(message, MaxJobMessage)}
	if every > 0 {
		j.Every = Duration(min(max(every, MinJobPoll), MaxJobPoll))
	}
	return j, nil
}

// Interval returns how long to wait between two polls, after the job has run for a time: 500
// ms at first, growing to 5 s, if the device does not say.
func (j *Job) Interval(running time.Duration) time.Duration {
	if j.Every > 0 {
		return min(max(time.Duration(j.Every), MinJobPoll), MaxJobPoll)
	}
	return min(max(running/20, MinJobPoll), 5*time.Second)
}

// JobStatus is what a device says about a job.
type JobStatus struct {
	// Done and Failed report how it has ended; neither is set while it runs.
	Done, Failed bool
	// ID is the device's name of the job that it talks about, as JSON; nil if it names none.
	ID      json.RawMessage
	Message string
	// Result is the outcome.
	Result *Result
}

// ToolJob says how to follow a job with other tools of the device. A device that has no
// notion of jobs can have jobs in this way.
type ToolJob struct {
	// Poll is the tool that returns the status, and Cancel the one that ends the job; it may
	// be empty.
	Poll, Cancel string
	// PollArgs and CancelArgs return the arguments for a job.
	PollArgs, CancelArgs func(id json.RawMessage) json.RawMessage
	Every                Duration
	// ID returns the device's name of the job from the answer to the call, as JSON. It is nil
	// if jobs have no names.
	ID func(answer *Result) (json.RawMessage, error)
	// Read decodes an answer of Poll.
	Read func(answer *Result) (JobStatus, error)
}

// forJob returns a Tool that stands for an operation on a job of t; nil if t is nil. It can
// be used even if t can no longer be called.
func (t *Tool) forJob(op Operation) *Tool {
	if t == nil {
		return nil
	}
	stand := &Tool{Name: t.Name, Effect: Reads, Secrets: t.Secrets, Job: t.Job, CheckOutput: t.CheckOutput, Cache: new(Duration)}
	if op == CancelJob {
		stand.Effect = Changes
	}
	return stand
}
