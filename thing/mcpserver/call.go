//lint:file-ignore SA1019 the newer era is about to drop some of this, and has nothing else yet

package mcpserver

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// call is a request while it is answered, for what is said to its caller meanwhile.
type call struct {
	session *mcp.ServerSession
	modern  bool
	token   any // of progress; nil if nobody wants to know
	mute    atomic.Bool
	letGo   func(mcp.CloseSSEStreamArgs) // nil if the connection has to stay

	// What is needed only when something is asked.
	capabilities func() *mcp.ClientCapabilities
	subject      func() string // tells this request from others

	answers map[string]Answer
	asked   []Question // what has no answer yet
	asks    bool       // whether it has asked anything
}

// callKey is the context key of the call.
type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// newCall makes a call of a request to something by its name.
func newCall[P mcp.Params](req *mcp.ServerRequest[P], method, name string, args json.RawMessage) *call {
	c := &call{
		session: req.Session, modern: req.ProtocolVersion() >= mcphttp.StatelessVersion, token: req.Params.GetMeta()["progressToken"],
		capabilities: req.ClientCapabilities,
		subject:      func() string { return subjectOf(req, method, name, args) },
	}
	if req.Extra != nil {
		c.letGo = req.Extra.CloseSSEStream
	}
	return c
}

// LetGo closes the connection of a caller that can come back for the result, and
// tells it when. A tool that takes long needs no connection meanwhile. It does
// nothing where callers have to stay.
func LetGo(ctx context.Context, until time.Duration) {
	if c := callOf(ctx); c != nil && c.letGo != nil {
		c.letGo(mcp.CloseSSEStreamArgs{RetryAfter: until})
	}
}

// Progress tells whoever called how far a tool has got. The total is zero if it is
// not known. It can be used in any tool, and does nothing where nobody listens.
func Progress(ctx context.Context, done, total float64, text string) {
	c := callOf(ctx)
	if c == nil || c.token == nil || c.mute.Load() {
		return
	}
	c.told(c.session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: c.token, Progress: done, Total: total, Message: text,
	}))
}

// Log tells whoever called something for its log. It can be used in any tool, and
// does nothing where nobody listens.
func Log(ctx context.Context, level slog.Level, data any) {
	c := callOf(ctx)
	if c == nil || c.mute.Load() {
		return
	}
	c.told(c.session.Log(ctx, &mcp.LoggingMessageParams{Level: levelName(level), Data: data}))
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

// told notes whether a word arrived. One that takes no more is told no more: the
// device has better to do than to wait for it.
func (c *call) told(err error) {
	if err != nil {
		c.mute.Store(true)
	}
}
