package server

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// A client may be told about its tasks: it lists their IDs in subscriptions/listen. The SDK
// drops these, and cannot send notifications/tasks. So the request is read before the SDK reads
// it, what the SDK acknowledges is extended, and notifications are written between those of the
// SDK: to the stream of a request over HTTP, or as a line to a client on a pair of streams.

const (
	listenMethod     = "subscriptions/listen"
	ackMethod        = "notifications/subscriptions/acknowledged"
	taskNotification = "notifications/tasks"
	// maxListed is the limit of tasks in one request.
	maxListed = 256
)

// listener is a request that lists tasks, and the way to its client.
type listener struct {
	id    json.RawMessage // of the request
	ids   []string        // of the tasks
	send  func(message []byte) error
	onAck func(rewrite func(message []byte) []byte)
}

// listenJSON is the part of a request that the SDK drops.
type listenJSON struct {
	ID     json.RawMessage `json:"id"`
	Params listenParams    `json:"params"`
}

type listenParams struct {
	Notifications struct {
		TaskIDs *[]string `json:"taskIds"`
	} `json:"notifications"`
}

// listenerOf returns the tasks that a request lists; nil if it lists none.
func listenerOf(ctx context.Context, req *mcp.SubscriptionsListenRequest) *listener {
	var asked listenJSON
	if stream := mcphttp.StreamOf(ctx); stream != nil {
		if json.Unmarshal(stream.Request(), &asked) != nil || asked.Params.Notifications.TaskIDs == nil {
			return nil
		}
		return &listener{asked.ID, *asked.Params.Notifications.TaskIDs, stream.Send, stream.Rewrite}
	}
	lines, _ := ctx.Value(linesKey{}).(*lines)
	listed, _ := req.Params.Meta[listenMeta].(string)
	if lines == nil || json.Unmarshal([]byte(listed), &asked) != nil || asked.Params.Notifications.TaskIDs == nil {
		return nil
	}
	return &listener{asked.ID, *asked.Params.Notifications.TaskIDs, lines.send, func(rewrite func([]byte) []byte) { lines.onAck(asked.ID, rewrite) }}
}

// listen serves a subscriptions/listen request until it ends.
func (v *view) listen(ctx context.Context, req *mcp.SubscriptionsListenRequest, next func(context.Context) (mcp.Result, error)) (mcp.Result, error) {
	serve := next
	if l := listenerOf(ctx, req); l != nil && v.server.parts.Tasks != nil {
		switch {
		case !v.knowsTasks(ctx, req):
			return nil, errNeedsTasks
		case len(l.ids) > maxListed:
			return nil, badParams("too many taskIds in one request")
		}
		agreed := []string{}
		for _, id := range l.ids {
			if _, err := v.taskOf(ctx, id); err == nil {
				agreed = append(agreed, id)
			}
		}
		serve = func(ctx context.Context) (mcp.Result, error) { return v.serveTasks(ctx, l, agreed, next) }
	}
	return v.group.Listen(ctx, caller(ctx), req, v.subscribable, serve)
}

// serveTasks serves a request that lists tasks. Each is sent as it is, and after each change.
func (v *view) serveTasks(ctx context.Context, l *listener, agreed []string, next func(context.Context) (mcp.Result, error)) (mcp.Result, error) {
	acked := make(chan struct{})
	l.onAck(func(message []byte) []byte {
		defer close(acked)
		return withTaskIDs(message, agreed)
	})
	defer l.onAck(nil)
	watching, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		defer recoverNotification(v.server.parts.Log)
		select {
		case <-acked:
		case <-watching.Done():
			return
		}
		v.server.parts.Tasks.Watch(watching, caller(ctx), agreed, func(t *ferrule.Task) error { // if it fails, the client is gone
			if _, err := v.taskOf(watching, t.ID); err != nil {
				return nil // it is hidden by now
			}
			message, err := taskMessage(t, l.id)
			if err != nil {
				return err
			}
			return l.send(message)
		})
	})
	result, err := next(watching)
	if err == nil && len(agreed) > 0 {
		<-ctx.Done() // the SDK returns at once if there is nothing else to wait for
	}
	return result, err
}

// withTaskIDs returns an acknowledgment with the tasks that the client will hear of.
func withTaskIDs(message []byte, ids []string) []byte {
	var ack map[string]any
	if json.Unmarshal(message, &ack) != nil {
		return message
	}
	params, _ := ack["params"].(map[string]any)
	agreed, _ := params["notifications"].(map[string]any)
	if agreed == nil {
		return message
	}
	agreed["taskIds"] = ids
	extended, err := json.Marshal(ack)
	if err != nil {
		return message
	}
	return extended
}

// taskMessage returns the notification of a task, for the request with an ID.
func taskMessage(t *ferrule.Task, id json.RawMessage) ([]byte, error) {
	params := newTaskResult(t, "")
	params.Meta = mcp.Meta{mcp.MetaKeySubscriptionID: id}
	return json.Marshal(map[string]any{"jsonrpc": "2.0", "method": taskNotification, "params": params})
}
