//lint:file-ignore SA1019 2026-07-28 deprecates some of this, and has no replacement yet

package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// call is a request under way. Tools send messages to its caller through it.
type call struct {
	session   *mcp.ServerSession
	stateless bool                         // 2026-07-28 or later
	token     any                          // of progress; nil if the caller did not ask for it
	stalled   atomic.Bool                  // the caller does not read
	close     func(mcp.CloseSSEStreamArgs) // nil if the connection cannot be resumed

	// Needed only if the tool asks something.
	capabilities func() *mcp.ClientCapabilities
	subject      func() string // identifies the request

	answers map[string]Answer
	asked   []Question // without an answer yet
	asks    bool       // it has asked something
}

// callKey is the context key of the call.
type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// newCall returns the call of a request.
func newCall[P mcp.Params](req *mcp.ServerRequest[P], method, name string, args json.RawMessage) *call {
	c := &call{
		session: req.Session, stateless: req.ProtocolVersion() >= mcphttp.StatelessVersion, token: req.Params.GetMeta()["progressToken"],
		capabilities: req.ClientCapabilities,
		subject:      func() string { return subjectOf(req, method, name, args) },
	}
	if req.Extra != nil {
		c.close = req.Extra.CloseSSEStream
	}
	return c
}

// Disconnect closes the connection of a caller that can reconnect for the result, and
// tells it when to. A tool that takes long needs no connection meanwhile. It does
// nothing if the caller cannot reconnect.
func Disconnect(ctx context.Context, retryAfter time.Duration) {
	if c := callOf(ctx); c != nil && c.close != nil {
		c.close(mcp.CloseSSEStreamArgs{RetryAfter: retryAfter})
	}
}

// Progress reports the progress of a tool to its caller. Total is 0 if it is unknown.
// It does nothing if the caller did not ask for progress.
func Progress(ctx context.Context, done, total float64, text string) {
	if t := taskOf(ctx); t != nil && t.say(progressText(done, total, text)) {
		return
	}
	c := callOf(ctx)
	if c == nil || c.token == nil || c.stalled.Load() {
		return
	}
	c.sent(c.session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: c.token, Progress: done, Total: total, Message: text,
	}))
}

// progressText returns progress as the status of a task.
func progressText(done, total float64, text string) string {
	if total <= 0 {
		return text
	}
	return strings.TrimSpace(fmt.Sprintf("%s (%g of %g)", text, done, total))
}

// Log sends a log message to the caller. It does nothing if the caller did not ask for
// log messages.
func Log(ctx context.Context, level slog.Level, data any) {
	c := callOf(ctx)
	if t := taskOf(ctx); c == nil || c.stalled.Load() || t != nil && t.isTask() {
		return
	}
	c.sent(c.session.Log(ctx, &mcp.LoggingMessageParams{Level: levelName(level), Data: data}))
}

func levelName(level slog.Level) mcp.LoggingLevel {
	switch {
	case level < slog.LevelInfo:
		return "debug"
	case level < slog.LevelWarn:
		return "info"
	case level < slog.LevelError:
		return "warning"
	}
	return "error"
}

// sent records whether a message was sent. A caller that does not read gets no more, so
// that it does not delay the device.
func (c *call) sent(err error) {
	if err != nil {
		c.stalled.Store(true)
	}
}
