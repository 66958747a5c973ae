package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// The limits of messages and answers, in bytes.
const (
	maxMessage = 1 << 20
	maxAnswer  = 64 << 10
)

// phase is when a hook is called.
type phase string

const (
	phaseBefore phase = "before"
	phaseAfter  phase = "after"
)

// message is what a hook gets. docs/how-to/hooks.md describes it.
type message struct {
	Hook      string            `json:"hook"`
	Phase     phase             `json:"phase"`
	Time      time.Time         `json:"time"`
	Call      string            `json:"call"`
	Principal principal         `json:"principal"`
	Client    ferrule.Client    `json:"client,omitzero"`
	Via       string            `json:"via,omitempty"`
	Device    device            `json:"device"`
	Operation ferrule.Operation `json:"operation,omitempty"`
	Tool      string            `json:"tool"`
	Effect    ferrule.Effect    `json:"effect"`
	// Arguments are without secrets, as in the journal.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Outcome   *outcome        `json:"outcome,omitempty"`
}

type principal struct {
	Role ferrule.Role `json:"role"`
	Name string       `json:"name"`
	Auth ferrule.Auth `json:"auth,omitempty"`
	User string       `json:"user,omitempty"`
}

type device struct {
	ID     string            `json:"id"`
	Kind   ferrule.Kind      `json:"kind,omitempty"`
	Model  string            `json:"model,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// outcome is how a call ended. Code is empty if it succeeded.
type outcome struct {
	Code       ferrule.Code `json:"code,omitempty"`
	Message    string       `json:"message,omitempty"`
	MayHaveRun bool         `json:"may_have_run,omitempty"`
	// Took is in milliseconds.
	Took int64 `json:"took_ms"`
}

func newMessage(hook string, p phase, call *ferrule.Call) *message {
	who, dev, tool := call.Principal, call.Target.Device, call.Target.Tool
	return &message{
		Hook: hook, Phase: p, Time: time.Now().UTC(), Call: call.ID, Client: call.Client, Via: call.Via,
		Principal: principal{who.Role, who.Name, who.Auth, who.User},
		Device:    device{dev.ID, dev.Kind, dev.Model, dev.Labels},
		Operation: call.Operation, Tool: call.Tool, Effect: effectOf(call.Operation, tool.Effect),
		Arguments: tool.MaskArgs(call.Args, call.DecodedArgs != nil),
	}
}

func (m *message) setOutcome(took time.Duration, err error) {
	m.Outcome = &outcome{Took: took.Milliseconds()}
	if err != nil {
		e := ferrule.AsError(err)
		m.Outcome.Code, m.Outcome.MayHaveRun = e.Code, e.MayHaveRun()
		m.Outcome.Message = ferrule.OneLine(ferrule.Clean(e.Message, ferrule.MaxText), ferrule.MaxReason)
	}
}

func (m *message) encode() ([]byte, error) {
	text, err := json.Marshal(m)
	if n := len(text); err == nil && n > maxMessage {
		return nil, fmt.Errorf("the message has %d bytes; limit is %d", n, maxMessage)
	}
	return text, err
}

// answer is what a hook says to a call.
type answer struct {
	allow  bool
	reason string
}

// parseAnswer reads an answer. Nothing but an explicit true allows a call.
func parseAnswer(data []byte) (answer, error) {
	if n := len(data); n > maxAnswer {
		return answer{}, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	if err := strictjson.Check(data); err != nil {
		return answer{}, fmt.Errorf("the answer is %w", err)
	}
	var members map[string]json.RawMessage // exact names: package json ignores case in structs
	if err := json.Unmarshal(data, &members); err != nil || members == nil {
		return answer{}, errors.New("the answer must be a JSON object")
	}
	a := answer{reason: "no reason given"}
	switch string(members["allow"]) {
	case "true":
		a.allow = true
	case "false":
	default:
		return answer{}, errors.New("the answer must have allow: true or false")
	}
	if text, ok := members["reason"]; ok {
		var reason string
		if err := json.Unmarshal(text, &reason); err != nil {
			return answer{}, errors.New("the reason of the answer must be text")
		}
		if reason = ferrule.OneLine(ferrule.Clean(reason, ferrule.MaxText), ferrule.MaxReason); reason != "" {
			a.reason = reason
		}
	}
	return a, nil
}
