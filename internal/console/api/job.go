package api

import (
	"context"
	"sync"
	"time"
)

// maxJob is how long work in the background may take.
const maxJob = 10 * time.Minute

// Job is work that a person starts and that takes a while. It runs once at a time.
type Job[T any] struct {
	mu    sync.Mutex
	state JobState
	last  T
}

// JobState is how far a Job is.
type JobState struct {
	Running bool      `json:"running"`
	Started time.Time `json:"started,omitzero" jsonschema:"when it began, this time or the last"`
	Ended   time.Time `json:"ended,omitzero" jsonschema:"when it ended the last time; left out if it never did"`
}

// start runs a function in the background, unless it runs already.
func (j *Job[T]) start(run func(ctx context.Context) T) JobState {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.state.Running {
		j.state.Running, j.state.Started = true, time.Now()
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), maxJob)
			defer cancel()
			result := run(ctx)
			j.mu.Lock()
			defer j.mu.Unlock()
			j.last, j.state.Running, j.state.Ended = result, false, time.Now()
		}()
	}
	return j.state
}

// get returns the last result, and how far the job is.
func (j *Job[T]) get() (T, JobState) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last, j.state
}
