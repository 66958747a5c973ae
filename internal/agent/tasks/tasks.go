// Package tasks keeps calls that outlive their requests.
//
//	tools/call ──▶ Begin ──▶ record stored ──▶ the caller gets the ID
//	                 │
//	              the call runs ── Report, Ask, End ──▶ record
//	                                                      ▲
//	tasks/get, tasks/update, tasks/cancel, on any node ───┘
package tasks

import (
	"context"
	"errors"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// ErrUnknown means that there is no such task, that it has expired, or that it belongs to
// somebody else: a caller cannot tell which.
var ErrUnknown = errors.New("unknown task")

// ErrConflict means that a record has changed since it was read.
var ErrConflict = errors.New("the task has changed")

// Store keeps records of tasks where a restart does not lose them. All nodes of a cluster have
// the same records.
type Store interface {
	// Put writes a record that replaces a revision; 0 creates one. It is durable when Put
	// returns. The error is ErrConflict if the record has another revision.
	Put(ctx context.Context, t *ferrule.Task, revision uint64) (uint64, error)
	// Get returns a record, or ErrUnknown.
	Get(ctx context.Context, id string) (*ferrule.Task, uint64, error)
	// Delete removes a record.
	Delete(ctx context.Context, id string) error
	// Watch calls fn for each record, once with those that exist, and then with each change,
	// of any node, until ctx ends.
	Watch(ctx context.Context, fn func(t *ferrule.Task, revision uint64)) error
}
