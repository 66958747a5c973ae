//lint:file-ignore SA1019 logging is to go, and agents of the older era know nothing else

package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// reporter tells an agent how its call gets on, and what the device writes down
// meanwhile, without ever keeping the call waiting: an agent that does not read loses
// words. One that has not asked for progress may have asked for the log, and finds it
// there.
type reporter struct {
	ctx     context.Context
	session *mcp.ServerSession
	log     *slog.Logger

	token any // nil if the agent has not asked

	mu    sync.Mutex
	over  bool
	words chan ferrule.Progress // nil until there is something to tell
	ended chan struct{}
}

func (f *Server) newReporter(ctx context.Context, session *mcp.ServerSession, token any) *reporter {
	return &reporter{ctx: ctx, session: session, log: f.parts.Log, token: token}
}

// backlog is how many words wait for an agent that is slow.
const backlog = 64

// report tells a word of progress, or drops it.
func (r *reporter) report(p ferrule.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	if r.words == nil {
		r.words, r.ended = make(chan ferrule.Progress, backlog), make(chan struct{})
		go r.send(r.words)
	}
	select {
	case r.words <- p:
	default:
	}
}

// send tells one word after the other. Each has a larger number than the last,
// whatever the device counts.
func (r *reporter) send(words <-chan ferrule.Progress) {
	defer close(r.ended)
	defer survive(r.log)
	last := -1.0
	for p := range words {
		switch {
		case p.Log != nil:
			r.session.Log(r.ctx, logLine(p.Log)) // who has set no level wants none
			continue
		case r.token == nil:
			r.session.Log(r.ctx, &mcp.LoggingMessageParams{Level: "info", Logger: "ferrule", Data: p.Message})
			continue
		case p.Total == 0:
			p.Done = last + 1
		case p.Done <= last:
			continue
		}
		last = p.Done
		r.session.NotifyProgress(r.ctx, &mcp.ProgressNotificationParams{ // if it fails, the agent is gone
			ProgressToken: r.token, Message: p.Message, Progress: p.Done, Total: p.Total,
		})
	}
}

// levels are those that MCP knows.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// logLine is what a device writes down in the words of MCP.
func logLine(l *ferrule.Log) *mcp.LoggingMessageParams {
	line := &mcp.LoggingMessageParams{Level: "info", Logger: ferrule.Clean(l.Logger, ferrule.MaxWord), Data: ""}
	if slices.Contains(levels, l.Level) {
		line.Level = mcp.LoggingLevel(l.Level)
	}
	if data := plain(l.Data); json.Valid(data) && depth(data) <= maxDepth {
		line.Data = json.RawMessage(data)
	}
	return line
}

// end waits until everything was told, so that nothing comes after the answer.
func (r *reporter) end() {
	r.mu.Lock()
	words := r.words
	r.words, r.over = nil, true
	r.mu.Unlock()
	if words != nil {
		close(words)
		<-r.ended
	}
}
