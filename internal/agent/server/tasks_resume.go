package server

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/ferrulehq/ferrule/internal/agent/tasks"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

const (
	// resumePause is the pause before a device is asked again that could not be asked.
	resumePause = 2 * time.Second
	// maxResume is how long a device may be away that runs a job.
	maxResume = 7 * 24 * time.Hour
)

// ResumeTask waits for the job of a task that an earlier run of this node began, or a node that
// is gone, and ends the task with its outcome. It only asks the device: nothing is begun again.
// If ctx ends without tasks.ErrCancelled, the job goes on and the task stays as it is.
func (s *Server) ResumeTask(ctx context.Context, t *ferrule.Task, r *tasks.Running) {
	following, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		if why := context.Cause(ctx); errors.Is(why, tasks.ErrCancelled) {
			cancel(why)
			return
		}
		cancel(ferrule.ErrKeepJob)
	})()
	for {
		result, err := s.followJob(following, t, r)
		switch {
		case errors.Is(context.Cause(following), ferrule.ErrKeepJob):
			return
		case err != nil && !ferrule.AsError(err).JobEnded && following.Err() == nil && time.Since(t.Created) < maxResume:
			r.Report(ferrule.AsError(err).Message)
			select {
			case <-time.After(resumePause):
			case <-following.Done():
			}
			continue
		}
		ending, over := context.WithCancel(context.WithoutCancel(ctx))
		defer over()
		defer context.AfterFunc(s.stop, func() { time.AfterFunc(storeTimeout, over) })()
		s.endResumed(ending, t, r, result, err)
		return
	}
}

// followJob asks for the job of a task until it has ended, or the device cannot be asked.
func (s *Server) followJob(ctx context.Context, t *ferrule.Task, r *tasks.Running) (*ferrule.Result, error) {
	job := *r.Task().Job
	return s.parts.Handle(ctx, &ferrule.Call{
		ID: t.Call, Principal: t.Owner, Device: t.Device, Operation: ferrule.PollJob, Tool: t.Tool, Args: t.Args, Job: &job,
		Progress: func(p ferrule.Progress) {
			if p.Log == nil {
				r.Report(p.Text(t.Device))
			}
		},
		Began: func(job ferrule.Job) {
			if err := r.SetJob(ctx, job); err != nil {
				s.parts.Log.Warn("agents: the job of a task cannot be stored; a restart would lose it", "call", t.Call, "device", t.Device, "tool", t.Tool, "err", err)
			}
		},
	})
}

// endResumed ends a task with the outcome of its job.
func (s *Server) endResumed(ctx context.Context, t *ferrule.Task, r *tasks.Running, result *ferrule.Result, err error) {
	if err != nil && r.Cancelled() {
		if e := ferrule.AsError(err); e.Code == ferrule.Cancelled {
			r.CompleteCancelled(ctx, (&ferrule.Error{Code: e.Code, Message: "cancelled", Sent: true}).Explain())
			return
		}
	}
	if err != nil { // for example because the device is away, or hidden from the caller
		err = ferrule.AsError(err).AfterBegin()
	}
	call := &ferrule.Call{Device: t.Device, Tool: t.Tool}
	out, err := s.viewAt("").toolResult(profile{}, false, "", call, result, err)
	var data []byte
	if err == nil {
		data, err = json.Marshal(out)
	}
	if err != nil {
		r.Fail(ctx, jsonrpc.CodeInternalError, err.Error()+". The action may have run.")
		return
	}
	r.Complete(ctx, data)
}
