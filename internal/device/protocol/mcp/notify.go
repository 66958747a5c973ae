package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// The bounds of what a device may say unasked.
const (
	maxParams = ferrule.MaxParams // bytes of a notification
	every     = time.Second / 20  // in the long run
	atOnce    = 100
)

// Notify implements dialect.Notifier.
func (s *session) Notify(fn func(method string, params json.RawMessage)) { s.notify = fn }

// hear takes in what a device says that is no answer.
func (s *session) hear(ctx context.Context, m message) {
	switch {
	case m.isAnswer():
		s.note("dropped: nobody waits for answer %s", ferrule.Clean(m.id, 64))
	case m.isRequest():
		s.answer(ctx, m)
	case strings.HasSuffix(m.method, "/list_changed"):
		s.changed()
	case m.method == "notifications/subscriptions/acknowledged":
		s.acknowledged(m.params)
	default:
		s.told(m)
	}
}

// told hands on what a device tells, to the call under way or to whoever listens.
func (s *session) told(m message) {
	s.talk.Lock()
	defer s.talk.Unlock()
	s.mu.Lock()
	c := s.call
	s.mu.Unlock()
	switch {
	case len(m.params) > maxParams:
		s.note("dropped: a notification of %d bytes; at most %d are possible", len(m.params), maxParams)
	case !s.allowed.Allow(ratelimit.Rate{Burst: atOnce, Every: every}, time.Now()):
		s.note("dropped: more than %d notifications a second", time.Second/every)
	case m.method == "notifications/progress":
		s.progress(c, m.params)
	case m.method == "notifications/message" && c != nil:
		s.logged(c, m.params)
	case s.notify != nil && strings.HasPrefix(m.method, "notifications/"):
		s.notify(ferrule.Clean(m.method, ferrule.MaxMethod), m.params)
	}
}

// progress reports how far the call under way is, if there is one.
func (s *session) progress(c *underway, params []byte) {
	var p struct {
		Token   json.RawMessage `json:"progressToken"`
		Done    float64         `json:"progress"`
		Total   float64         `json:"total"`
		Message string          `json:"message"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		s.note("dropped: progress that makes no sense: %s", reason(err))
		return
	}
	if c == nil || string(bytes.Trim(p.Token, `"`)) != s.tokenOf(c) {
		s.note("dropped: nobody waits for this progress")
		return
	}
	c.call.Report(ferrule.Progress{Message: ferrule.Clean(p.Message, ferrule.MaxText), Done: p.Done, Total: p.Total})
}

// levels are those of what devices log.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// tokenOf is that of the progress of a call.
func (s *session) tokenOf(c *underway) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.token
}

// logged reports what the device logs during a call.
func (s *session) logged(c *underway, params []byte) {
	var p struct {
		Level  string          `json:"level"`
		Logger string          `json:"logger"`
		Data   json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		s.note("dropped: a log that makes no sense: %s", reason(err))
		return
	}
	if !slices.Contains(levels, p.Level) {
		p.Level = "info"
	}
	if p.Data == nil {
		p.Data = json.RawMessage("null")
	}
	c.call.Report(ferrule.Progress{Log: &ferrule.Log{Level: p.Level, Logger: ferrule.Clean(p.Logger, ferrule.MaxWord), Data: p.Data}})
}
