package overlay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Job says that a tool only begins some work, and how to see when it is done.
type Job struct {
	About string `json:"about,omitempty"`
	// Poll is the tool that returns the status, and Args its arguments. A text "{id}" in them
	// stands for the ID of the job.
	Poll string          `json:"poll"`
	Args json.RawMessage `json:"args,omitempty"`
	// ID is the path of the job's ID in the answers of both tools; empty if it has none.
	ID string `json:"id,omitempty"`
	// Done and Failed are conditions on the status.
	Done   Condition `json:"done"`
	Failed Condition `json:"failed,omitempty"`
	// Result is the path of the result in the status; empty for all of the status.
	Result string `json:"result,omitempty"`
	// Message is a path, or a text with paths in braces.
	Message string `json:"message,omitempty"`
	// Cancel is the tool that ends the job.
	Cancel     string          `json:"cancel,omitempty"`
	CancelArgs json.RawMessage `json:"cancel_args,omitempty"`
	// Every is how often to poll.
	Every ferrule.Duration `json:"every,omitempty"`
}

// Condition is what must hold for an answer: for each path, the value, a list of possible
// values, or a range.
type Condition map[string]json.RawMessage

// The limits of a job in an overlay.
const (
	maxPath       = 256 // bytes
	maxConditions = 16
	maxJobID      = 256 // bytes
)

func (j *Job) check() error {
	if j == nil {
		return nil
	}
	if err := checkAction(ferrule.Action{Tool: j.Poll, Args: j.Args}); err != nil {
		return errors.New("job." + strings.Replace(err.Error(), "tool:", "poll:", 1))
	}
	if j.Cancel != ferrule.Clean(j.Cancel, ferrule.MaxToolName) {
		return fmt.Errorf("job.cancel: must be a printable name of up to %d bytes", ferrule.MaxToolName)
	}
	if j.Cancel == "" && j.CancelArgs != nil {
		return errors.New("job.cancel_args: has no meaning without cancel")
	}
	if err := checkArgs(j.CancelArgs); err != nil {
		return errors.New("job.cancel_" + err.Error())
	}
	if len(j.Done) == 0 {
		return errors.New("job.done: must have a condition that says when the job is done, for example {state: done}")
	}
	for key, c := range map[string]Condition{"done": j.Done, "failed": j.Failed} {
		if err := c.check(); err != nil {
			return fmt.Errorf("job.%s: %w", key, err)
		}
	}
	for key, text := range map[string]string{"id": j.ID, "result": j.Result, "message": j.Message} {
		if len(text) > maxPath || text != ferrule.Clean(text, maxPath) {
			return fmt.Errorf("job.%s: must be printable and up to %d bytes", key, maxPath)
		}
	}
	if j.Every != 0 && (j.Every < ferrule.Duration(ferrule.MinJobPoll) || j.Every > ferrule.Duration(ferrule.MaxJobPoll)) {
		return fmt.Errorf("job.every: must be from %v to %v, got %v", ferrule.MinJobPoll, ferrule.MaxJobPoll, j.Every)
	}
	if j.ID == "" && (bytes.Contains(j.Args, []byte(idText)) || bytes.Contains(j.CancelArgs, []byte(idText))) {
		return errors.New("job.id: must be set, because the arguments use {id}")
	}
	return nil
}

// valueRange is a range in a Condition.
type valueRange struct {
	Above *float64        `json:"above,omitempty"`
	Below *float64        `json:"below,omitempty"`
	Not   json.RawMessage `json:"not,omitempty"`
}

func (c Condition) check() error {
	if len(c) > maxConditions {
		return fmt.Errorf("has %d conditions; limit is %d", len(c), maxConditions)
	}
	for path, raw := range c {
		if path == "" || len(path) > maxPath {
			return fmt.Errorf("a path must have 1 to %d bytes", maxPath)
		}
		if !bytes.HasPrefix(raw, []byte("{")) {
			continue
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		var r valueRange
		if err := dec.Decode(&r); err != nil || r.Above == nil && r.Below == nil && r.Not == nil {
			return fmt.Errorf("%s must be a value, a list of values, or an object with above, below or not", path)
		}
	}
	return nil
}

// holds reports whether all parts of the condition hold. A path that the answer does not have
// meets none.
func (c Condition) holds(answer any) bool {
	for path, want := range c {
		got, ok := at(answer, path)
		if !ok || !matches(got, want) {
			return false
		}
	}
	return len(c) > 0
}

func matches(got any, want json.RawMessage) bool {
	switch want[0] {
	case '[':
		var any []json.RawMessage
		return json.Unmarshal(want, &any) == nil && slices.ContainsFunc(any, func(one json.RawMessage) bool { return equal(got, one) })
	case '{':
		var r valueRange
		if json.Unmarshal(want, &r) != nil || r.Not != nil && equal(got, r.Not) {
			return false
		}
		if r.Above == nil && r.Below == nil {
			return true
		}
		number, isNumber := got.(json.Number)
		n, err := number.Float64()
		return isNumber && err == nil && (r.Above == nil || n > *r.Above) && (r.Below == nil || n < *r.Below)
	}
	return equal(got, want)
}

// equal compares scalars. Numbers are equal if their values are.
func equal(got any, want json.RawMessage) bool {
	w, err := parse(want)
	if err != nil {
		return false
	}
	a, okA := got.(json.Number)
	b, okB := w.(json.Number)
	if okA && okB {
		x, okX := ferrule.Exact(a)
		y, okY := ferrule.Exact(b)
		return okX && okY && x.Cmp(y) == 0
	}
	switch got.(type) {
	case map[string]any, []any:
		return false
	}
	return got == w
}

// at returns the value at a path: names of members and indexes, separated by dots.
func at(value any, path string) (any, bool) {
	for name := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			member, ok := v[name]
			if !ok {
				return nil, false
			}
			value = member
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			value = v[i]
		default:
			return nil, false
		}
	}
	return value, true
}

// decodeAnswer returns an answer as decoded JSON. The text of a device that returns texts may
// be JSON.
func decodeAnswer(answer *ferrule.Result) (any, error) {
	raw := answer.Value
	if len(raw) == 0 && len(answer.Content) == 1 && answer.Content[0].Type == ferrule.TextContent {
		raw = json.RawMessage(answer.Content[0].Text)
	}
	if v, err := parse(raw); err == nil && v != nil {
		if text, ok := v.(string); ok { // JSON in a text
			if inner, err := parse(json.RawMessage(text)); err == nil && inner != nil {
				return inner, nil
			}
		}
		return v, nil
	}
	return nil, errors.New("its answer is not JSON")
}

// idText stands for the ID of a job in arguments.
const idText = `"{id}"`

// withID returns a function that puts the ID of a job into arguments.
func withID(args json.RawMessage) func(json.RawMessage) json.RawMessage {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	return func(id json.RawMessage) json.RawMessage {
		if len(id) == 0 {
			return args
		}
		return bytes.ReplaceAll(args, []byte(idText), id)
	}
}

// compile returns the job in the form that the dock uses.
func (j *Job) compile() *ferrule.ToolJob {
	spec := &ferrule.ToolJob{Poll: j.Poll, Cancel: j.Cancel, PollArgs: withID(j.Args), CancelArgs: withID(j.CancelArgs), Every: j.Every, Read: j.read}
	if j.ID != "" {
		spec.ID = func(answer *ferrule.Result) (json.RawMessage, error) {
			v, err := decodeAnswer(answer)
			if err != nil {
				return nil, err
			}
			return j.id(v)
		}
	}
	return spec
}

// id returns the ID of the job in an answer.
func (j *Job) id(answer any) (json.RawMessage, error) {
	v, ok := at(answer, j.ID)
	if !ok {
		return nil, fmt.Errorf("it has no %s", j.ID)
	}
	switch v.(type) {
	case string, json.Number:
	default:
		return nil, fmt.Errorf("%s is neither a text nor a number", j.ID)
	}
	id, err := json.Marshal(v)
	if err != nil || len(id) > maxJobID {
		return nil, fmt.Errorf("%s has more than %d bytes", j.ID, maxJobID)
	}
	return id, nil
}

// read decodes a status.
func (j *Job) read(answer *ferrule.Result) (ferrule.JobStatus, error) {
	v, err := decodeAnswer(answer)
	if err != nil {
		return ferrule.JobStatus{}, err
	}
	status := ferrule.JobStatus{Failed: j.Failed.holds(v), Message: j.message(v), Result: answer}
	status.Done = !status.Failed && j.Done.holds(v)
	if j.ID != "" {
		status.ID, _ = j.id(v) // without one, the status is not about this job
	}
	if j.Result != "" && status.Done {
		part, ok := at(v, j.Result)
		if !ok {
			return ferrule.JobStatus{}, fmt.Errorf("it is done, but has no %s", j.Result)
		}
		value, err := json.Marshal(part)
		if err != nil {
			return ferrule.JobStatus{}, err
		}
		status.Result = &ferrule.Result{Value: value, Sent: answer.Sent, Answered: answer.Answered}
	}
	return status, nil
}

// message returns what a status says that the device is doing.
func (j *Job) message(status any) string {
	if !strings.Contains(j.Message, "{") {
		return textAt(status, j.Message)
	}
	var b strings.Builder
	for rest := j.Message; ; {
		before, after, found := strings.Cut(rest, "{")
		b.WriteString(before)
		path, behind, closed := strings.Cut(after, "}")
		if !found || !closed {
			return b.String()
		}
		b.WriteString(textAt(status, path))
		rest = behind
	}
}

// textAt returns the value at a path as text; "" if there is none.
func textAt(status any, path string) string {
	v, ok := at(status, path)
	if path == "" || !ok {
		return ""
	}
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// applyJob sets the job of a tool. The result of the tool is that of the job, so the schema
// that the device declares for the answer does not apply.
func applyJob(t *ferrule.Tool, patches []Tool) {
	for _, p := range patches {
		if p.Job != nil {
			t.Job = p.Job.compile()
			t.Output, t.CheckOutput = nil, nil
		}
	}
}

// checkJobs quarantines tools whose jobs cannot be followed on this device: a call would
// begin something that nobody sees the end of.
func checkJobs(m *ferrule.Manifest) {
	wrong := make(map[int]string)
	for i := range m.Tools {
		if t := &m.Tools[i]; t.Job != nil && t.Quarantine == "" {
			if why := unfollowed(t, m); why != "" {
				wrong[i] = why
			}
		}
	}
	for _, i := range slices.Sorted(maps.Keys(wrong)) {
		m.Tools[i].Quarantine = wrong[i]
	}
}

// unfollowed returns why the job of a tool cannot be followed, or "".
func unfollowed(t *ferrule.Tool, m *ferrule.Manifest) string {
	for key, name := range map[string]string{"poll": t.Job.Poll, "cancel": t.Job.Cancel} {
		if name == "" {
			continue
		}
		tool := m.Tool(name)
		switch {
		case tool == nil:
			return fmt.Sprintf("its job uses the tool %q as %s, which the device does not have", name, key)
		case name == t.Name:
			return fmt.Sprintf("its job uses the tool itself as %s", key)
		case tool.Quarantine != "":
			return fmt.Sprintf("its job uses the tool %q as %s, which is in quarantine: %s", name, key, tool.Quarantine)
		case key == "poll" && (tool.Effect == ferrule.Endangers || tool.Job != nil):
			return fmt.Sprintf("its job polls with the tool %q, which must only read", name)
		}
	}
	return ""
}
