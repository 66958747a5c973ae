package ferrule

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Tool is an operation that a device offers.
type Tool struct {
	Name string `json:"name"`
	Text string `json:"text,omitempty"`
	// Title is a display name.
	Title string `json:"title,omitempty"`
	Icons []Icon `json:"icons,omitempty"`
	// Input and Output are JSON Schemas; empty if the device gave none.
	Input  json.RawMessage `json:"input,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
	// Effect is empty if the device declares none. In an effective manifest it is
	// always set.
	Effect     Effect `json:"effect,omitempty"`
	Idempotent bool   `json:"idempotent,omitempty"`
	// UserOnly marks a tool that only people may call.
	UserOnly bool `json:"user_only,omitempty"`
	// Class is what the tool does to which sort of thing, in the words of the protocol, for
	// example lock.unlock or cover.garage.open. Overlays can match it. Most have none.
	Class string `json:"class,omitempty"`
	// Secrets are the arguments whose values appear nowhere but at the device, for example
	// the code of a lock.
	Secrets []string `json:"secrets,omitempty"`
	// View is what chat programs draw beside results of the tool; nil if nothing.
	View *ToolView `json:"view,omitempty"`
	// Poll is the interval at which the device wants to be polled.
	Poll Duration `json:"poll,omitempty"`
	// Task is set if the tool is slow: when a call of it becomes a task.
	Task TaskMode `json:"task,omitempty"`

	// The following fields do not come from the device and are not part of the
	// Kind.

	// Deadline limits a call of this tool, if the owner configured it.
	Deadline Duration `json:"deadline,omitempty"`
	// Cache is how long an answer is cached, if the owner configured it. Zero
	// disables the cache for this tool; nil leaves the default.
	Cache *Duration `json:"cache,omitempty"`
	// Limits and Lease bound what calls do to the world, if the owner configured it. The
	// node that holds the device enforces them.
	Limits *Limits `json:"-"`
	Lease  *Lease  `json:"-"`
	// Job says how to follow what a call has begun, if the owner configured it.
	Job *ToolJob `json:"-"`
	// Quarantine is the reason why the tool cannot be called; empty if it can.
	Quarantine string `json:"quarantine,omitempty"`
	// FullInput is the complete input schema, including keywords that not every
	// client understands. It is set in an effective manifest if it says more than
	// Input.
	FullInput json.RawMessage `json:"-"`
	// Check returns every violation in the decoded arguments of a call. It is set
	// in an effective manifest, and nil if the tool has no schema.
	Check func(args map[string]any) []string `json:"-"`
	// CheckOutput does the same for the answer, if the device declares an Output.
	CheckOutput func(value json.RawMessage) []string `json:"-"`
}

// MaxCache is the longest time that an answer is cached.
const MaxCache = time.Hour

// Repeatable reports whether a call of t may be sent a second time.
func (t *Tool) Repeatable() bool { return t.Effect == Reads || t.Idempotent }

// Effect is what a tool does to the world.
type Effect string

// The effects. A tool without one is treated as Changes.
const (
	Reads     Effect = "reads"
	Changes   Effect = "changes"
	Endangers Effect = "endangers"
)

// Offer is a tool as agents see it.
type Offer struct {
	// Name is the name that agents call it by.
	Name string
	// Text is the description; it is never empty.
	Text string
	// Input is a JSON Schema whose root is an object.
	Input json.RawMessage
	Tool  *Tool
	// Devices lists the first few devices that have the tool; Count is the number
	// of all. If Argument is set, the call names the device in it; otherwise
	// there is only one.
	Devices  []string
	Count    int
	Argument string
}

// ToolFor returns the tool that a call of this operation and name addresses, or
// nil if the device has none. For an operation other than CallTool it returns a
// new Tool that stands for the operation and only reads.
func (m *Manifest) ToolFor(op Operation, name string) *Tool {
	switch op {
	case CallTool:
		return m.Tool(name)
	case PollJob, CancelJob:
		return m.Tool(name).forJob(op)
	}
	if !m.Supports(op) || name == "" || len(name) > MaxURI || !m.lists(op, name) {
		return nil
	}
	tool := &Tool{Name: name, Effect: Reads, Check: checkNoArguments}
	switch op {
	case GetPrompt:
		i := slices.IndexFunc(m.Prompts, func(p Prompt) bool { return p.Name == name })
		if i < 0 {
			return nil
		}
		tool.Check = m.Prompts[i].check
	case Complete:
		tool.Check = checkCompletion
	case Subscribe, Unsubscribe:
		tool.Cache = new(Duration) // each one must reach the device
	}
	return tool
}

// lists reports whether an operation may be used on what a manifest does not list, or
// whether it is listed. A URI that an accepted template covers counts as listed.
func (m *Manifest) lists(op Operation, name string) bool {
	listed := func(r Resource) bool {
		prefix, _, _ := strings.Cut(r.URI, "{")
		return r.URI == name || r.Template && op != Complete && strings.HasPrefix(name, prefix)
	}
	switch {
	case op == Complete && m.PartOf != "":
		return slices.ContainsFunc(m.Resources, listed) || slices.ContainsFunc(m.Prompts, func(p Prompt) bool { return p.Name == name })
	case (op == ReadResource || op == Subscribe) && m.ListedOnly:
		return slices.ContainsFunc(m.Resources, listed)
	}
	return true
}

func checkNoArguments(args map[string]any) (violations []string) {
	if len(args) > 0 {
		violations = append(violations, "takes no arguments")
	}
	return violations
}

func checkCompletion(args map[string]any) (violations []string) {
	if name, ok := args["argument"].(string); !ok || name == "" {
		violations = append(violations, "argument is missing; it must be the name of the argument to complete")
	}
	if _, ok := args["value"].(string); !ok {
		violations = append(violations, "value is missing; it must be the text typed so far")
	}
	return violations
}

// check returns every violation in the arguments of a prompt. Each argument is a
// string.
func (p Prompt) check(args map[string]any) (violations []string) {
	for _, a := range p.Arguments {
		if _, given := args[a.Name]; a.Required && !given {
			violations = append(violations, a.Name+" is missing")
		}
	}
	for name, value := range args {
		if _, ok := value.(string); !ok {
			violations = append(violations, Clean(name, MaxToolName)+" must be a string")
		}
		if !slices.ContainsFunc(p.Arguments, func(a PromptArgument) bool { return a.Name == name }) {
			violations = append(violations, Clean(name, MaxToolName)+" is not an argument of this prompt")
		}
	}
	slices.Sort(violations)
	return violations
}
