//lint:file-ignore SA1019 2026-07-28 deprecates some of this, and has no replacement yet

package mcpserver

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxRounds is the limit of times that one call may ask something.
	maxRounds = 10
	// stateTime is how long a state is valid.
	stateTime = 15 * time.Minute
	// maxSpent is the limit of used states that are remembered.
	maxSpent = 16 << 10
)

// inputs is what a caller must find out before it calls again.
type inputs struct {
	requests mcp.InputRequestMap
	state    string
}

// rounds calls fn, and again when its questions are answered. From 2026-07-28 on the
// caller comes back with the answers, and with earlier ones in a signed state. Before,
// the caller is asked here, while other calls have their turns.
func (d *Device) rounds(ctx context.Context, c *call, fn func(context.Context) error) (*inputs, error) {
	ctx = context.WithValue(ctx, callKey{}, c)
	for range maxRounds {
		err := fn(ctx)
		if !errors.Is(err, errAsked) || c.asked == nil {
			return nil, err
		}
		if t := taskOf(ctx); t != nil && !t.staysCall() {
			if err := c.askTask(ctx, t); err != nil {
				return nil, err
			}
			continue
		}
		if c.stateless {
			return d.open(c)
		}
		for _, q := range c.asked {
			if err := c.askNow(ctx, q); err != nil {
				return nil, fmt.Errorf("asking %s: %v", q.question(), err) // %v: the caller's error must not become the result
			}
		}
		c.asked = nil
	}
	return nil, fmt.Errorf("too many questions: limit is %d rounds", maxRounds)
}

// open returns the inputs that a caller must find out.
func (d *Device) open(c *call) (*inputs, error) {
	requests := make(mcp.InputRequestMap)
	next := roundState{Once: rand.Text(), Subject: c.subject(), Until: time.Now().Add(stateTime), Answers: c.answers}
	for _, q := range c.asked {
		requests[q.question()] = requestOf(q)
		next.Asked = append(next.Asked, q.question())
	}
	state, err := d.seal(next)
	return &inputs{requests, state}, err
}

// askNow asks a caller of a version with sessions.
func (c *call) askNow(ctx context.Context, q Question) error {
	var response any
	var err error
	switch p := requestOf(q).(type) {
	case *mcp.ElicitParams:
		response, err = c.session.Elicit(ctx, p)
	case *mcp.CreateMessageParams:
		response, err = c.session.CreateMessage(ctx, p)
	case *mcp.ListRootsParams:
		response, err = c.session.ListRoots(ctx, p)
	}
	if err != nil {
		return err
	}
	return c.keep(q.question(), response)
}

// askTask asks the caller of a task.
func (c *call) askTask(ctx context.Context, t *task) error {
	responses, err := t.ask(ctx, c.asked)
	if err != nil {
		return err
	}
	c.asked = nil
	for name, response := range responses {
		if err := c.keep(name, response); err != nil {
			return err
		}
	}
	return nil
}

// keep stores an answer.
func (c *call) keep(name string, response any) error {
	answer, err := answerOf(response)
	if err != nil {
		return err
	}
	if c.answers == nil {
		c.answers = make(map[string]Answer)
	}
	c.answers[name] = answer
	return nil
}

// roundState is the state that a caller keeps between two rounds.
type roundState struct {
	Once    string            `json:"once"` // unique
	Subject string            `json:"subject"`
	Until   time.Time         `json:"until"`
	Asked   []string          `json:"asked"`
	Answers map[string]Answer `json:"answers"`
}

// resume takes the answers of earlier rounds from the state, and those of the last round
// from the responses. A state is valid once, for the request that it was made for. If
// strict is set, answers without a state are ignored: a door that a user agreed to open
// is not opened a second time, nor before the user was asked.
func (d *Device) resume(c *call, state string, responses mcp.InputResponseMap, strict bool) error {
	if state == "" && strict {
		return nil
	}
	if state != "" {
		s, err := d.unseal(state)
		if err == nil && s.Subject != c.subject() {
			err = errors.New("it belongs to another request")
		}
		if err == nil {
			err = d.spent.spend(s)
		}
		if err != nil {
			return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "requestState cannot be used: " + err.Error() + "; nothing was done: call again without it"}
		}
		c.answers = s.Answers
		maps.DeleteFunc(responses, func(name string, _ mcp.InputResponse) bool { return !slices.Contains(s.Asked, name) })
	}
	for name, response := range responses {
		if err := c.keep(name, response); err != nil {
			return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("inputResponses: %s: %v; nothing was done", name, err)}
		}
	}
	return nil
}

// spentStates remembers used states until they expire.
type spentStates struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func newSpentStates() *spentStates { return &spentStates{until: make(map[string]time.Time)} }

// spend marks a state as used.
func (s *spentStates) spend(state roundState) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(s.until) >= maxSpent {
		maps.DeleteFunc(s.until, func(_ string, until time.Time) bool { return now.After(until) })
	}
	_, used := s.until[state.Once]
	switch {
	case now.After(state.Until):
		return errors.New("it has expired")
	case used:
		return errors.New("it was used before")
	case len(s.until) >= maxSpent:
		return errors.New("too many questions are open")
	}
	s.until[state.Once] = state.Until
	return nil
}

// subjectOf returns a hash that identifies a request.
func subjectOf(req mcp.Request, method, name string, args json.RawMessage) string {
	who := ""
	if extra := req.GetExtra(); extra != nil && extra.TokenInfo != nil {
		who = extra.TokenInfo.UserID
	}
	key, _ := keyOf(name, args) // arguments that are not an object have no answers either
	hash := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %x", who, method, name, key.args))
	return hex.EncodeToString(hash[:])
}

// seal signs a state.
func (d *Device) seal(s roundState) (string, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(append(d.mac(data), data...)), nil
}

// unseal verifies a state.
func (d *Device) unseal(text string) (s roundState, err error) {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(data) < sha256.Size || !hmac.Equal(data[:sha256.Size], d.mac(data[sha256.Size:])) {
		return s, errors.New("it was not issued by this device")
	}
	return s, json.Unmarshal(data[sha256.Size:], &s)
}

func (d *Device) mac(data []byte) []byte {
	mac := hmac.New(sha256.New, d.key)
	mac.Write(data)
	return mac.Sum(nil)
}
