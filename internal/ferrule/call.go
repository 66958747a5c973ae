package ferrule

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Call is one request by one Principal to one Device.
type Call struct {
	// ID identifies the call in the journal and in logs. The pipeline sets it if
	// it is empty.
	ID        string    `json:"id,omitempty"`
	Principal Principal `json:"principal"`
	// Client is the program that makes the call, as it describes itself. It proves
	// nothing and is only recorded.
	Client Client `json:"client,omitzero"`
	// Device is the ID of a device.
	Device    string    `json:"device"`
	Operation Operation `json:"operation,omitempty"`
	// Tool is the name of a tool or a prompt, or the URI of a resource.
	Tool string `json:"tool"`
	// Args is a JSON object, or empty for none.
	Args json.RawMessage `json:"args,omitempty"`
	// DecodedArgs is Args, decoded. The pipeline sets it; later stages and the
	// policy read it. Numbers are json.Number.
	DecodedArgs map[string]any `json:"-"`
	// Timeout limits the call, including the wait in queues. If it is zero, the
	// tool or the gateway decides.
	Timeout Duration `json:"timeout,omitempty"`
	// Subscriber identifies the subscriber of a Subscribe or Unsubscribe: one
	// agent server of one node, on behalf of all its agents.
	Subscriber string `json:"subscriber,omitempty"`
	// Session identifies the connection of the caller on its node, whose end ends the
	// caller's leases; empty if nobody can tell when the caller is gone.
	Session string `json:"session,omitempty"`
	// Via is the node that vouches for the caller, if that is another node; empty for
	// a call of this node.
	Via string `json:"-"`
	// Urgent is set by the gateway for its own calls that make something safe: a device's
	// stop tool, or the end of a lease. Such a call passes queues and limits, and runs
	// even if it cannot be recorded.
	Urgent bool `json:"-"`
	// Job is the job of a PollJob or a CancelJob.
	Job *Job `json:"job,omitempty"`
	// TakesJob means that the caller handles a Result with a Job. Otherwise the pipeline
	// waits until the job has ended, also for a PollJob.
	TakesJob bool `json:"takes_job,omitempty"`
	// Began, if set, is called when the device has begun a job, and again when the job has
	// another handle. The call then waits for the job until ctx ends: its Timeout does not
	// limit that any more. It must not block for long.
	Began func(Job) `json:"-"`
	// Parent is the trace span that the call belongs to, as [Traceparent] returns
	// it; empty if there is none.
	Parent string `json:"traceparent,omitempty"`

	// Progress, if set, receives what the call is waiting for. It is called from
	// the goroutine that serves the call and must not block.
	Progress func(Progress) `json:"-"`
	// Ask, if set, asks the caller a question of the device and waits for the
	// answer. It is nil if nobody can be asked. It may be called concurrently.
	Ask func(ctx context.Context, q Question) (Answer, error) `json:"-"`
	// Askable lists the targets that Ask can reach, as [Question.Needs] returns
	// them. Asking another one is an error.
	Askable []AskTarget `json:"askable,omitempty"`
	// Inputs holds the questions of an earlier attempt with their answers. The
	// dock sets it.
	Inputs *InputRequest `json:"-"`
	// Target is what the call addresses. The pipeline sets it and overwrites what
	// the caller put there.
	Target Target `json:"-"`
	// Verdict is the decision of the policy. The pipeline sets it. In a call of another node
	// it is what that node decided, if that is Ask.
	Verdict Verdict `json:"-"`
	// MeterState belongs to the Meters.
	MeterState any `json:"-"`
}

// Report sends p to the caller, if the caller wants progress.
func (c *Call) Report(p Progress) {
	if c.Progress != nil {
		c.Progress(p)
	}
}

// Operation is what a call asks for. The zero value calls a tool.
type Operation string

// The operations. All except CallTool and CancelJob only read.
const (
	CallTool     Operation = ""
	ReadResource Operation = "read"     // a resource, by its URI
	GetPrompt    Operation = "prompt"   // a prompt, by its name, with Args
	Complete     Operation = "complete" // an argument of a prompt or a template; Args is a Completion
	// Subscribe and Unsubscribe start and stop notifications about a resource,
	// by its URI. The device sends them while there is at least one Subscriber.
	Subscribe   Operation = "subscribe"
	Unsubscribe Operation = "unsubscribe"
	// PollJob and CancelJob are about the Job of an earlier call of the tool. ID, Args and
	// Principal are those of that call. They belong to its permission, so the policy is not
	// asked again. Only the gateway makes them: agents do not know handles.
	PollJob   Operation = "poll_job"
	CancelJob Operation = "cancel_job"
)

// OfJob reports whether the operation is about a Job.
func (o Operation) OfJob() bool { return o == PollJob || o == CancelJob }

// SubscriptionTTL is how long a Subscribe lasts. A Subscriber renews it before
// that; one that disappeared without an Unsubscribe expires.
const SubscriptionTTL = 10 * time.Minute

// Completion asks for values of an argument of the prompt or the resource
// template that the call names.
type Completion struct {
	// Template reports whether the call names a resource template.
	Template bool   `json:"template,omitempty"`
	Argument string `json:"argument"`
	// Value is the text typed so far.
	Value string `json:"value"`
	// Context holds the arguments that are already complete.
	Context map[string]string `json:"context,omitempty"`
}

// CompletionResult is the answer to a Completion, as the Value of a Result.
type CompletionResult struct {
	Values []string `json:"values"`
	// Total is the number of all values; 0 if it is unknown.
	Total int  `json:"total,omitempty"`
	More  bool `json:"more,omitempty"`
}

// Target is what a call addresses, as it was when the call was resolved. All of
// it is shared and read only.
type Target struct {
	Device   *Device
	Manifest *Manifest
	// Tool is the tool; for another operation, a Tool that stands for it and
	// only reads.
	Tool *Tool
	// Handler leads to the device; nil if it cannot be reached.
	Handler Handler
	// Remote is set if another node holds the device. That node checks and records
	// the call too.
	Remote bool
}

// Handle passes a call on to the Handler.
func (t *Target) Handle(ctx context.Context, call *Call) (*Result, error) {
	if t.Handler == nil {
		return nil, t.Device.OfflineError()
	}
	return t.Handler(ctx, call)
}

// Progress is a message to the caller during a call.
type Progress struct {
	Message string `json:"message"`
	// Said means that the message is in the device's own words.
	Said bool `json:"said,omitempty"`
	// Asked means that the call waits for the approval of a person.
	Asked bool `json:"asked,omitempty"`
	// Done and Total are zero if they are unknown.
	Done  float64 `json:"done,omitempty"`
	Total float64 `json:"total,omitempty"`
	// Log is set if this is a log message of the device.
	Log *Log `json:"log,omitempty"`
}

// Text returns the progress of a call of a device in a few words; empty if it has none. The
// words of the device are marked, because the gateway says in the same place whether something
// was sent, or is approved.
func (p *Progress) Text(device string) string {
	message := p.Message
	if p.Said {
		message = said(device, message)
	}
	if p.Total <= 0 {
		return message
	}
	return fmt.Sprintf("%s (%g of %g)", cmp.Or(message, "working"), p.Done, p.Total)
}

// said returns the words of a device, marked as its own.
func said(device, words string) string { return device + " says: " + words }

// Log is a log message of a device.
type Log struct {
	// Level is one of debug, info, notice, warning, error, critical, alert and
	// emergency.
	Level  string          `json:"level"`
	Logger string          `json:"logger,omitempty"`
	Data   json.RawMessage `json:"data"`
}

// Question is what a device asks the caller during a call.
type Question struct {
	// Name is the device's own name for the question; it may be empty.
	Name   string    `json:"name,omitempty"`
	Target AskTarget `json:"target,omitempty"`
	Text   string    `json:"text"`
	// Schema is a JSON Schema of the answer; empty if any text will do.
	Schema json.RawMessage `json:"schema,omitempty"`
	// URL is a page for the user to open, instead of a form.
	URL string `json:"url,omitempty"`
	// Late reports whether the device asks after the call has ended.
	Late bool `json:"late,omitempty"`
	// Prompt is a sampling request to a model, in the form of MCP.
	Prompt json.RawMessage `json:"prompt,omitempty"`
}

// Needs returns the target that must be reachable for the question to be
// answered. Not every client that can show a form can open a page.
func (q *Question) Needs() AskTarget {
	if q.Target == User && q.URL != "" {
		return Page
	}
	return q.Target
}

// AskTarget is the recipient of a Question.
type AskTarget string

// The targets of questions.
const (
	User  AskTarget = ""
	Page  AskTarget = "page" // the user, who is to open a URL
	Model AskTarget = "model"
	Roots AskTarget = "roots" // the folders that the caller works in
)

// Answer is the reply to a Question.
type Answer struct {
	// Given reports whether the question was answered. If not, Value is empty.
	Given bool `json:"given"`
	// Dismissed reports whether the user closed the question without a choice.
	Dismissed bool            `json:"dismissed,omitempty"`
	Value     json.RawMessage `json:"value,omitempty"`
}

// InputRequest lists the questions that must be answered before a device acts,
// and later their answers. The device should not have acted by then, but this is
// not guaranteed.
type InputRequest struct {
	Questions []Question
	Answers   []Answer // one for each question
	// State belongs to the device and is sent back to it; nil if it gave none.
	State *string
}

// Result is the answer of a device.
type Result struct {
	// Value is the answer as JSON, as the device gave it; empty if all of it is
	// in Content.
	Value json.RawMessage `json:"value,omitempty"`
	// Age is the time since the device gave the answer; zero unless it is cached.
	Age Duration `json:"age,omitempty"`
	// Content is the part of the answer for people and models; nil if there is
	// only Value.
	Content []Content `json:"content,omitempty"`
	// Text is the description of a prompt.
	Text string `json:"text,omitempty"`
	// Job is set if the device has begun a job, or still runs it: this is not the outcome
	// yet. Only callers with TakesJob see it.
	Job *Job `json:"job,omitempty"`
	// InputRequest is set if the device needs input first. It does not leave the
	// dock.
	InputRequest *InputRequest `json:"-"`
	// Sent and Answered are when the call left the lane and when its answer
	// arrived. They are set only on the node that holds the device.
	Sent     time.Time `json:"-"`
	Answered time.Time `json:"-"`
}

// Content is one part of an answer.
type Content struct {
	Type ContentType `json:"type"`
	Text string      `json:"text,omitempty"`
	// Data holds everything but text; MIME is its type.
	Data []byte `json:"data,omitempty"`
	MIME string `json:"mime,omitempty"`
	// URI names the resource, if this is one.
	URI string `json:"uri,omitempty"`
	// Link describes a resource that is linked to.
	Link *Resource `json:"link,omitempty"`
	// View is set for the document of a view.
	View *ViewHints `json:"view,omitempty"`
	// Role is the speaker in a prompt: user or assistant.
	Role        string       `json:"role,omitempty"`
	Annotations *Annotations `json:"annotations,omitempty"`
}

// ContentType is the type of a Content.
type ContentType string

// The types of content.
const (
	TextContent     ContentType = "text"
	ImageContent    ContentType = "image"
	AudioContent    ContentType = "audio"
	ResourceContent ContentType = "resource"
	LinkContent     ContentType = "link"
)

// Annotations say who a piece of content is for and how important it is.
type Annotations struct {
	// Audience contains user, assistant, both or neither.
	Audience []string `json:"audience,omitempty"`
	// Priority is from 0 to 1; nil if it is unknown.
	Priority *float64 `json:"priority,omitempty"`
	// Modified is the time of the last change, as the device wrote it.
	Modified string `json:"modified,omitempty"`
}

// Principal is the caller. Role and Name identify it; the rest says how that is known.
type Principal struct {
	Role Role   `json:"role"`
	Name string `json:"name"`
	// Auth is how the caller was authenticated; empty for the gateway itself.
	Auth Auth `json:"auth,omitempty"`
	// User is the user of the operating system who runs the caller, or the person who let an
	// agent in; empty if unknown.
	User string `json:"user,omitempty"`
	// Scopes and Devices are what the caller's credential permits at most. Devices are
	// patterns of IDs, separated by commas; empty for all.
	Scopes  Scopes `json:"scopes,omitzero"`
	Devices string `json:"devices,omitempty"`
	// Groups are groups that the credential names, separated by commas, for the policy.
	Groups string `json:"groups,omitempty"`
	// TokenID is the ID of the caller's token or login. A token that was revoked and another
	// one of the same name have different IDs; a token that is rotated keeps its ID. It is not
	// a secret. It is empty without a token, and from nodes of an older version.
	TokenID string `json:"token_id,omitempty"`
}

func (p Principal) String() string { return string(p.Role) + ":" + p.Name }

// Account returns p without the name that an agent gave itself: agent:local for
// agent:local/claude, agent:oauth:maria for agent:oauth:maria/claude. Limits count by
// account, because such a name can be invented. No other agent has a slash in its name.
func (p Principal) Account() Principal {
	if i := strings.LastIndexByte(p.Name, '/'); i >= 0 && p.Role == Agent {
		p.Name = p.Name[:i]
	}
	p.Scopes, p.Devices, p.Groups, p.TokenID = 0, "", "", ""
	return p
}

// Auth is how a Principal was authenticated.
type Auth string

// The ways of authentication.
const (
	AuthToken    Auth = "token"    // a token over HTTP
	AuthLoopback Auth = "loopback" // HTTP from this machine, without a token
	AuthSocket   Auth = "socket"   // the control socket, by its user
	AuthStdio    Auth = "stdio"    // standard input and output of a process of the user
	AuthEndpoint Auth = "endpoint" // an endpoint that the owner configured
	AuthLink     Auth = "link"     // a one-time link that the owner's webhook received
	AuthOAuth    Auth = "oauth"    // a token of the gateway's own authorization server
	AuthIssuer   Auth = "issuer"   // a token of an external issuer
	AuthLogin    Auth = "login"    // a person who has logged in with a browser
)

// Client is a program that makes calls, as it describes itself.
type Client struct {
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	// Protocol is the version of MCP that was agreed on; empty for the command line.
	Protocol string `json:"protocol,omitempty"`
}

// Bounded returns c with texts that are clean and short.
func (c Client) Bounded() Client {
	return Client{Clean(c.Name, MaxWord), Clean(c.Version, MaxWord), Clean(c.Protocol, MaxWord)}
}

// CanSee reports whether p may know about a device: its credential is good for the device.
// Only people see pending devices.
func (p Principal) CanSee(d *Device) bool {
	return (d.Trust != TrustPending || p.Role == Person) && p.Reaches(d)
}

// CanCall reports whether a tool is meant for callers such as p. A tool for people is also
// for an agent that the owner gave ScopeAdmin, for all devices.
func (p Principal) CanCall(t *Tool) bool {
	switch {
	case !t.UserOnly || p.Role == Person:
		return true
	case p.Role != Agent || slices.Contains(forPersons, t.Name):
		return false
	}
	return p.Scopes.Limits() && p.Scopes.Has(ScopeAdmin) && p.Devices == ""
}

// Role is the type of a Principal.
type Role string

// The roles. Only people see pending devices and user-only tools.
const (
	Agent   Role = "agent"
	Person  Role = "person"
	Gateway Role = "gateway" // Ferrule itself, for example to poll a device
	// Unverified is a caller that nobody vouches for. It appears in the journal only.
	Unverified Role = "unverified"
)

// Verdict is the decision of the policy on a call. The zero value forbids.
type Verdict struct {
	Ruling Ruling `json:"ruling"`
	// Reason is shown to a caller who is refused.
	Reason string `json:"reason"`
	// Rule is the rule that decided, for example house.cedar:12; empty if none did.
	Rule string `json:"rule,omitempty"`
}

// Ruling is the outcome of a Verdict.
type Ruling string

// The rulings. Ask permits a call after a person has approved it.
const (
	Permit Ruling = "permit"
	Forbid Ruling = "forbid"
	Ask    Ruling = "ask"
)
