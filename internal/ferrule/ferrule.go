// Package ferrule is the vocabulary of Ferrule: the words that every room of
// the house uses and means alike. Plain data and pure functions only; it
// imports the standard library, starts no goroutine and does no I/O.
//
// A device appears:
//
//	medium → wire → dialect → dock → fleet → catalog → front
//	         Link   Session   Manifest, Kind, Device   Offer
//
// A call goes down:
//
//	front → pipeline → fleet → dock's lane → session → link
//	Call    Handler    Handler Handler       Invoke    Send
//
// and comes back as a [Result], or as an [Error] that says whether the call may
// have run.
//
// The words, each with one meaning:
//
//	Manifest   what a device says of itself; not a device, not a config
//	Kind       the hash of a Manifest; not a model's name
//	Tool       one verb of a device
//	Pin        one connection of a board to its surroundings
//	Device     an admitted device; plain data, without socket or lock
//	Call       one request by one Principal to one Device
//	Result     what the device answered
//	Content    one part of an answer that is more than JSON
//	Question   what a device asks the caller meanwhile, and Answer what is said to it
//	Offer      a Tool as agents see it, under the name that they call it by
//	Handler    whoever serves a Call; every stage of the road is one
//	Follower   whoever keeps a view of all devices
//	Listener   whoever wants to hear when a resource of a device changes
//	Principal  who is asking: an agent, a person, the gateway itself
//	Verdict    permit, forbid or ask, and why; not the rules
//	Error      what went wrong, and whether the call may have run
//	Entry      one record of the journal
//	Chain      a journal from its first record on, each bound to the one before it
//	Trace      one thing seen on the wire to a device
//	Meter      whoever measures a part of the way that calls take
//	Span       one call in one part of its way, from its beginning to its end
//	Event      something that happened to a device, or that it said by itself
//	Probe      how a device is asked for what it measures, and how often
//	Signal     something that a device measures, by its name
//	Reading    what asking once has brought
//	Recorded   a Reading as it was kept, and where
//	Series     what a Reading says about one Signal
//	Sample     a number that was measured once; not an example, not a config
//	Hole       a stretch in which Samples may be missing
//	Period     what is asked of the past: which Signals, from when to when
//	Curve      what is known of one Signal in a Period, in Points of one Grain
//	Node       one gateway of several that know of each other
//	Epoch      how often a device has changed hands between nodes
//
// and of other rooms:
//
//	Message    one frame: its bytes and its channel (wire)
//	Link       a live, ordered pipe of Messages to one peer (wire)
//	Sighting   a peer that is in reach now; not yet a device (wire)
//	Connector  whoever watches one medium (wire)
//	Dialect    a grammar over any Link (dialect)
//	Session    one conversation with one device (dialect)
//	Berth      where one address is served: greeted, kept, tried again (dock)
//	Lane       the way into one device, one call wide (dock)
//	Overlay    what a device cannot say and others can (overlay)
//	Wish       a device that somebody asks for (internal/local/control)
//	Desk       where one agent is served on standard input (cmd/ferrule)
//	laid       of a manifest: with overlays on it
//	held       of a device: found, and not adopted by its owner
package ferrule

import (
	"context"
	"encoding/json"
	"time"
)

// Handler serves one call. Every stage of the pipeline, the fleet and a remote
// node have this one shape. A Handler may be called from many goroutines. It
// returns a Result or an error, never both, and an error that reaches a front
// is an [*Error].
type Handler func(ctx context.Context, call *Call) (*Result, error)

// Follower is told of every device and every change to it, in order. It must be
// quick, and must not ask whoever tells it anything meanwhile. Both are shared and
// read only; the manifest is laid, and nil for a device that was never reached.
type DeviceWatcher interface {
	Put(dev *Device, laid *Manifest)
	Remove(id string)
}

// Call is one request by one Principal to one Device.
type Call struct {
	// ID names the call in the journal and in logs. The pipeline sets it where
	// a front did not.
	ID        string    `json:"id,omitempty"`
	Principal Principal `json:"principal"`
	// Device is the ID of a device.
	Device string `json:"device"`
	// Act is what is asked for; empty for a tool to be called.
	Operation Operation `json:"operation,omitempty"`
	// Tool is the name of a tool; of what else is asked for, its name or URI.
	Tool string `json:"tool"`
	// Args is a JSON object, or empty for none.
	Args json.RawMessage `json:"args,omitempty"`
	// Timeout bounds the call, waiting included; zero leaves it to the tool and
	// the gateway.
	Timeout Duration `json:"timeout,omitempty"`
	// Listener is who wants to hear, of a Follow, or does not any more, of a Leave:
	// one front of one node, for all its agents.
	Subscriber string `json:"subscriber,omitempty"`
	// Parent is the span that the call is a part of, as Traceparent has it; empty if
	// nobody has said so.
	Parent string `json:"traceparent,omitempty"`

	// Progress, if set, is told what the call is waiting for. It is called from
	// the goroutine that serves the call and must not block.
	Progress func(Progress) `json:"-"`
	// Ask, if set, asks the caller something that the device wants to know, and
	// waits for the answer. It may be nil where nobody can be asked. Several
	// questions can be asked at once.
	Ask func(ctx context.Context, q Question) (Answer, error) `json:"-"`
	// Askable is who Ask can reach, as Question.Asks has it. To ask another is an
	// error.
	Askable []AskTarget `json:"askable,omitempty"`
	// Knows is what the device wanted to know before, with the answers. The dock sets
	// it.
	Inputs *InputRequest `json:"-"`
	// Target is what the call turned out to address. The pipeline sets it; what
	// a front puts here is overwritten.
	Target Target `json:"-"`
	// Verdict is what was decided about the call. The pipeline sets it as well.
	Verdict Verdict `json:"-"`
	// Metered is what Meters keep with the call.
	MeterState any `json:"-"`
}

// Act is what a call asks for.
type Operation string

// The acts. All but UseTool only look.
const (
	CallTool     Operation = ""
	ReadResource Operation = "read"     // a resource, by its URI
	GetPrompt    Operation = "prompt"   // a prompt, by its name, with Args
	Complete     Operation = "complete" // an argument of a prompt or a template; Args is a Completion
	// Follow and Leave tell that a Listener wants to hear of a resource, by its URI,
	// and that it does not any more. A device is asked to tell of it while there is one.
	Subscribe   Operation = "subscribe"
	Unsubscribe Operation = "unsubscribe"
)

// FollowTime is how long a Follow lasts. A Listener that still wants to hear says so
// again before; one that has gone without a word is forgotten.
const SubscriptionTTL = 10 * time.Minute

// Completion is what is asked about an argument that somebody is filling in, of the
// prompt or of the template of resources that the call names.
type Completion struct {
	// Template tells that it is one of resources.
	Template bool   `json:"template,omitempty"`
	Argument string `json:"argument"`
	// Value is what is there of it, and Others are the arguments that are known.
	Value   string            `json:"value"`
	Context map[string]string `json:"others,omitempty"`
}

// Completed is what a device answers to that, as the Value of a Result.
type CompletionResult struct {
	Values []string `json:"values"`
	// Total is how many there are; 0 if that is not known.
	Total int  `json:"total,omitempty"`
	More  bool `json:"more,omitempty"`
}

// Report tells the caller how the call gets on, if the caller wants to know.
func (c *Call) Report(p Progress) {
	if c.Progress != nil {
		c.Progress(p)
	}
}

// Target is the device and the tool that a call addresses, as they stood when
// the call was resolved. They are shared and read only. What is not a tool is taken
// for one that only looks.
type Target struct {
	Device   *Device
	Manifest *Manifest
	Tool     *Tool
}

// Progress is a word to the caller while a call goes on.
type Progress struct {
	Message string `json:"message"`
	// Done and Total tell how far the call is, where that is known.
	Done  float64 `json:"done,omitempty"`
	Total float64 `json:"total,omitempty"`
	// Log is set if it is what the device writes down, and not how far it is.
	Log *Log `json:"log,omitempty"`
}

// Log is what a device writes down while a call goes on.
type Log struct {
	// Level is one of debug, info, notice, warning, error, critical, alert and
	// emergency.
	Level  string          `json:"level"`
	Logger string          `json:"logger,omitempty"`
	Data   json.RawMessage `json:"data"`
}

// Question is what a device asks the caller while a call goes on.
type Question struct {
	// Name is the device's own for the question; it may be empty.
	Name string `json:"name,omitempty"`
	// Of is who is asked; empty for the caller's user.
	Target AskTarget `json:"target,omitempty"`
	Text   string    `json:"text"`
	// Schema is a JSON Schema of what is wanted; empty where any text will do.
	Schema json.RawMessage `json:"schema,omitempty"`
	// URL is a page that the user is to open, in place of a form.
	URL string `json:"url,omitempty"`
	// Prompt is what a model is asked, as MCP has it.
	Prompt json.RawMessage `json:"prompt,omitempty"`
}

// Asks is who has to be there for a question to be answered: a page is not for
// everyone who can fill in a form.
func (q *Question) Needs() AskTarget {
	if q.Target == User && q.URL != "" {
		return Page
	}
	return q.Target
}

// Asked tells who a Question is for.
type AskTarget string

// Who can be asked.
const (
	User  AskTarget = ""
	Page  AskTarget = "page" // the user, who is to open a URL
	Model AskTarget = "model"
	Roots AskTarget = "roots" // which folders the caller works in
)

// Answer is what the caller said to a Question.
type Answer struct {
	// Given tells that it was answered; else the caller would not, and Value is
	// empty.
	Given bool `json:"given"`
	// Dismissed tells that the user went on without saying yes or no.
	Dismissed bool            `json:"dismissed,omitempty"`
	Value     json.RawMessage `json:"value,omitempty"`
}

// Result is what a device answered.
type Result struct {
	// Value is the answer as JSON, as the device gave it; empty if it is all in
	// Content.
	Value json.RawMessage `json:"value,omitempty"`
	// Age is how long ago the device said it; zero if just now.
	Age Duration `json:"age,omitempty"`
	// Content is what the device gave for people and models to look at; nil where
	// it gave nothing but Value.
	Content []Content `json:"content,omitempty"`
	// Text tells what it is, of a prompt.
	Text string `json:"text,omitempty"`
	// Wants is what the device wants to know before it does the rest. It does not leave
	// the dock.
	InputRequest *InputRequest `json:"-"`
	// Sent and Came are when the device was asked, waiting in the lane over, and when
	// its answer was there. They are known on the node that holds the device.
	Sent     time.Time `json:"-"`
	Answered time.Time `json:"-"`
}

// Wants is what a device wants to know before it does what it was asked for, and then
// the same with what it was answered. It should not have done anything by then, and
// nothing says that it has not.
type InputRequest struct {
	Questions []Question
	Answers   []Answer // of each question
	// State is the device's own, which it is given back; nil if it gave none.
	State *string
}

// Content is one part of an answer: text, a picture, a sound, a resource that has
// either, or a link to a resource.
type Content struct {
	Type ContentType `json:"type"`
	Text string      `json:"text,omitempty"`
	// Data is what is not text, and MIME is what sort of data it is.
	Data []byte `json:"data,omitempty"`
	MIME string `json:"mime,omitempty"`
	// URI names the resource, if it is one.
	URI string `json:"uri,omitempty"`
	// Link is what is known of a resource that is linked to.
	Link *Resource `json:"link,omitempty"`
	// Role is who says it, in a prompt: user or assistant.
	Role string `json:"role,omitempty"`
	// For tells who is to see it, and how much it matters.
	Annotations *Annotations `json:"annotations,omitempty"`
}

// Regard is who something is for, and how much it matters.
type Annotations struct {
	// Audience has user, assistant, or both; nobody in particular if it is empty.
	Audience []string `json:"audience,omitempty"`
	// Priority is from 0 to 1; nil if nothing is said.
	Priority *float64 `json:"priority,omitempty"`
	// Modified is when it last changed, as the device wrote it.
	Modified string `json:"modified,omitempty"`
}

// ContentType tells what a Content is.
type ContentType string

// The types of content.
const (
	TextContent     ContentType = "text"
	ImageContent    ContentType = "image"
	AudioContent    ContentType = "audio"
	ResourceContent ContentType = "resource"
	LinkContent     ContentType = "link"
)

// Principal is who is asking.
type Principal struct {
	Role Role   `json:"role"`
	Name string `json:"name"`
}

func (p Principal) String() string { return string(p.Role) + ":" + p.Name }

// Sees tells whether p may know of a device: what is held is for people to
// decide about.
func (p Principal) CanSee(d *Device) bool { return d.Trust != TrustPending || p.Role == Person }

// MayCall tells whether a tool is for the likes of p.
func (p Principal) CanCall(t *Tool) bool { return !t.UserOnly || p.Role == Person }

// Role tells what sort of caller a Principal is.
type Role string

// The roles. People see more than agents do: held devices, and tools that are
// for users only.
const (
	Agent   Role = "agent"
	Person  Role = "person"
	Gateway Role = "gateway" // Ferrule itself, reading on its own account
)
