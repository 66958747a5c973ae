//lint:file-ignore SA1019 logging is deprecated, but versions up to 2025-11-25 have nothing else

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

// reporter sends an agent the progress of its call, and the log lines of the device. It
// never delays the call: an agent that does not read loses messages. An agent that did
// not ask for progress gets it as log messages, if it asked for those.
type reporter struct {
	ctx     context.Context
	session *mcp.ServerSession
	log     *slog.Logger

	token any // nil if the agent did not ask for progress

	mu       sync.Mutex
	over     bool
	messages chan ferrule.Progress // nil until there is something to send
	ended    chan struct{}
}

func (s *Server) newReporter(ctx context.Context, session *mcp.ServerSession, token any) *reporter {
	return &reporter{ctx: ctx, session: session, log: s.parts.Log, token: token}
}

// reportQueue is the limit of messages that wait for a slow agent.
const reportQueue = 64

// report queues a message, or drops it if the queue is full.
func (r *reporter) report(p ferrule.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	if r.messages == nil {
		r.messages, r.ended = make(chan ferrule.Progress, reportQueue), make(chan struct{})
		go r.send(r.messages)
	}
	select {
	case r.messages <- p:
	default:
	}
}

// send sends the messages in order. MCP requires that progress increases, whatever
// the device reports.
func (r *reporter) send(messages <-chan ferrule.Progress) {
	defer close(r.ended)
	defer recoverNotification(r.log)
	last := -1.0
	for p := range messages {
		switch {
		case p.Log != nil:
			r.session.Log(r.ctx, logMessage(p.Log)) // the SDK drops it if the agent set no level
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

// levels are the log levels of MCP.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// logMessage converts a log line of a device.
func logMessage(l *ferrule.Log) *mcp.LoggingMessageParams {
	message := &mcp.LoggingMessageParams{Level: "info", Logger: ferrule.Clean(l.Logger, ferrule.MaxWord), Data: ""}
	if slices.Contains(levels, l.Level) {
		message.Level = mcp.LoggingLevel(l.Level)
	}
	if data := plain(l.Data); json.Valid(data) && depth(data) <= maxDepth {
		message.Data = json.RawMessage(data)
	}
	return message
}

// end waits until all messages are sent, so that none follows the response.
func (r *reporter) end() {
	r.mu.Lock()
	messages := r.messages
	r.messages, r.over = nil, true
	r.mu.Unlock()
	if messages != nil {
		close(messages)
		<-r.ended
	}
}
