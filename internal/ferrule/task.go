package ferrule

import (
	"encoding/json"
	"time"
)

// Task is a call that outlives its request. Its record is stored before the caller gets the
// ID, so that a restart loses no task.
type Task struct {
	// ID cannot be guessed. Only its Owner may use it.
	ID    string    `json:"id"`
	Owner Principal `json:"owner"`
	// Call is the ID of the call in the journal.
	Call   string          `json:"call"`
	Device string          `json:"device"`
	Tool   string          `json:"tool"`
	Args   json.RawMessage `json:"args,omitempty"`
	// Changes means that the tool changes something: the journal has its intent before the
	// device is called.
	Changes bool `json:"changes,omitempty"`
	// Node is the node that runs the call, and Boot is the run of its process: a task of an
	// earlier run is not running any more.
	Node string `json:"node"`
	Boot string `json:"boot"`

	Status TaskStatus `json:"status"`
	// Message says what the task is doing, in one line.
	Message string        `json:"message,omitempty"`
	Created time.Time     `json:"created"`
	Updated time.Time     `json:"updated"`
	TTL     time.Duration `json:"ttl"` // how long it is kept after Created
	// Questions are open questions to the caller, by key. A key is never used twice.
	Questions map[string]Question `json:"questions,omitempty"`
	// Asked is the number of questions so far. Answers are those that the node which runs the
	// call has not fetched yet.
	Asked   int               `json:"asked,omitempty"`
	Answers map[string]Answer `json:"answers,omitempty"`
	// Cancel is set when the owner wants the call to end. It may still complete.
	Cancel bool `json:"cancel,omitempty"`
	// Result is the outcome of a TaskCompleted: a result of tools/call in MCP, which says
	// itself whether the call failed and whether it may have run.
	Result json.RawMessage `json:"result,omitempty"`
	// ErrorCode and ErrorText are those of a TaskFailed: an error of the request, not of the
	// device.
	ErrorCode int64  `json:"error_code,omitempty"`
	ErrorText string `json:"error_text,omitempty"`
	// Job is the job that the device runs by itself, if it has one. Its outcome can be asked
	// for again after a restart.
	Job *Job `json:"job,omitempty"`
}

// TaskStatus is the status of a Task.
type TaskStatus string

// The statuses of tasks. The last three are final.
const (
	TaskWorking   TaskStatus = "working"
	TaskInput     TaskStatus = "input_required"
	TaskCompleted TaskStatus = "completed"
	TaskFailed    TaskStatus = "failed"
	TaskCancelled TaskStatus = "cancelled"
)

// Final reports whether a task with this status has ended.
func (s TaskStatus) Final() bool { return s == TaskCompleted || s == TaskFailed || s == TaskCancelled }

// TaskMode is when a call of a tool becomes a task, for callers that know tasks. The zero value
// lets the gateway decide by the time that the call takes.
type TaskMode string

// The modes of tasks.
const (
	TaskSlow TaskMode = "slow" // soon: the tool is known to be slow
	TaskOnly TaskMode = "only" // the same, and callers that do not know tasks are refused
)

// Job is work that a device has begun and does by itself. The call that began it has
// returned; the outcome is asked for with the operation PollJob.
type Job struct {
	// Handle is the device's own name of the job. Agents do not see it.
	Handle string `json:"handle"`
	// Began is when the call returned.
	Began time.Time `json:"began,omitzero"`
	// Epoch is the connection in which it began, if the handle ends with that.
	Epoch uint64 `json:"epoch,omitempty"`
	// Message is what the device says that it is doing.
	Message string `json:"message,omitempty"`
	// Every is how often to ask; zero lets the gateway choose.
	Every Duration `json:"every,omitempty"`
}
