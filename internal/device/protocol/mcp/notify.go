package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// The limits of notifications.
const (
	maxParams = ferrule.MaxParams // bytes
	every     = time.Second / 20  // on average
	burst     = 100
)

// Notify implements protocol.Notifier.
func (s *session) Notify(fn func(method string, params json.RawMessage)) { s.notify = fn }

// receive handles a message that is not the answer to a pending request.
func (s *session) receive(ctx context.Context, m message) {
	switch {
	case m.isAnswer():
		s.note("dropped: answer %s has no request", ferrule.Clean(m.id, 64))
	case m.isRequest():
		s.reply(ctx, m)
	case strings.HasSuffix(m.Method, "/list_changed"):
		s.listChanged()
	case m.Method == "notifications/subscriptions/acknowledged":
		s.acknowledged(m.Params)
	default:
		s.notification(m)
	}
}

// notification passes a notification to the active call or to the handler.
func (s *session) notification(m message) {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	s.mu.Lock()
	c := s.call
	s.mu.Unlock()
	switch {
	case len(m.Params) > maxParams:
		s.note("dropped: notification of %d bytes, limit is %d", len(m.Params), maxParams)
	case !s.rate.Allow(ratelimit.Rate{Burst: burst, Every: every}, time.Now()):
		s.note("dropped: notification, limit is %d per second", time.Second/every)
	case m.Method == "notifications/progress":
		s.progress(c, m.Params)
	case m.Method == "notifications/message" && c != nil:
		s.logMessage(c, m.Params)
	case s.notify != nil && strings.HasPrefix(m.Method, "notifications/"):
		s.notify(ferrule.Clean(m.Method, ferrule.MaxMethod), m.Params)
	}
}

// progress reports the progress of the active call.
func (s *session) progress(c *activeCall, params []byte) {
	var p struct {
		Token   json.RawMessage `json:"progressToken"`
		Done    float64         `json:"progress"`
		Total   float64         `json:"total"`
		Message string          `json:"message"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		s.note("dropped: invalid progress: %s", jsonrpc.Reason(err))
		return
	}
	if c == nil || string(bytes.Trim(p.Token, `"`)) != s.progressToken(c) {
		s.note("dropped: progress without a call")
		return
	}
	c.call.Report(ferrule.Progress{Message: ferrule.Clean(p.Message, ferrule.MaxText), Said: p.Message != "", Done: p.Done, Total: p.Total})
}

// levels are the log levels of MCP.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func (s *session) progressToken(c *activeCall) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.token
}

// logMessage reports a log message of the device to the active call.
func (s *session) logMessage(c *activeCall, params []byte) {
	var p struct {
		Level  string          `json:"level"`
		Logger string          `json:"logger"`
		Data   json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		s.note("dropped: invalid log message: %s", jsonrpc.Reason(err))
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
