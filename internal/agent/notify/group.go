package notify

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// Group is the sessions at one address. They know topics by the same URIs, and see the
// same lists.
type Group struct {
	notifier *Notifier
	server   *mcp.Server
	// write sends a message to a session. The SDK has no method for that, but passes
	// its own to a sending middleware. It would send that a list has changed only when
	// a tool is registered, and nothing is registered with it.
	write mcp.MethodHandler

	streams map[*subscriber]bool // open subscriptions/listen streams; guarded by Notifier.mu
}

// Attach returns the group of a server's sessions. It adds a sending middleware to
// the server, and must be called before the server serves.
func (n *Notifier) Attach(server *mcp.Server) *Group {
	g := &Group{notifier: n, server: server, streams: make(map[*subscriber]bool)}
	server.AddSendingMiddleware(g.sending)
	return g
}

// ListChanged notifies the sessions that a list has changed. Sessions of versions up to
// 2025-11-25 always are; later ones have a stream that asked for it.
func (g *Group) ListChanged(method string) {
	sessions := g.server.Sessions()
	n := g.notifier
	n.mu.Lock()
	defer n.mu.Unlock()
	for session := range sessions {
		if p := session.InitializeParams(); p == nil || p.ProtocolVersion < mcphttp.StatelessVersion {
			n.deliver(delivery{group: g, session: session, method: method})
		}
	}
	for stream := range g.streams {
		// What an unacknowledged stream asked for is not known yet.
		if stream.wants(method) || !stream.ready {
			n.send(stream, delivery{group: g, session: stream.session, stream: stream, method: method})
		}
	}
}

// Subscribe subscribes a session of a version up to 2025-11-25 to a topic, which its
// agent knows by a URI, until it unsubscribes or ends.
func (g *Group) Subscribe(ctx context.Context, who ferrule.Principal, session *mcp.ServerSession, uri string, t Topic) error {
	n := g.notifier
	n.mu.Lock()
	state := n.session(session)
	if state.own == nil {
		own := &subscriber{group: g, session: session, who: who, topics: make(map[string]Topic)}
		state.own = own
		go func() {
			session.Wait()
			n.end(own)
		}()
	}
	own := state.own
	n.mu.Unlock()
	return n.subscribe(ctx, who, own, uri, t)
}

// Unsubscribe ends a subscription. When it returns, the agent gets no more
// notifications of it.
func (g *Group) Unsubscribe(session *mcp.ServerSession, uri string) {
	n := g.notifier
	n.mu.Lock()
	var own *subscriber
	if state := n.sessions[session]; state != nil {
		own = state.own
	}
	n.mu.Unlock()
	if own != nil {
		n.unsubscribe(own, uri)
	}
}

// Listen serves a subscriptions/listen request until it ends. Find returns the topic of
// a URI; a URI that cannot be subscribed to is left out of what is acknowledged. Serve
// has the SDK acknowledge the request and wait for its end.
func (g *Group) Listen(ctx context.Context, who ferrule.Principal, req *mcp.SubscriptionsListenRequest, find func(context.Context, string) (Topic, error), serve func(context.Context) (mcp.Result, error)) (mcp.Result, error) {
	stream, err := g.Open(ctx, who, req, find)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	return serve(context.WithValue(ctx, streamKey{}, (*subscriber)(stream)))
}

// Stream is a subscriptions/listen request that is being served.
type Stream subscriber

// Open begins to serve a subscriptions/listen request. Its client gets nothing before it has the
// acknowledgment. The caller must close the stream.
func (g *Group) Open(ctx context.Context, who ferrule.Principal, req *mcp.SubscriptionsListenRequest, find func(context.Context, string) (Topic, error)) (*Stream, error) {
	stream, err := g.notifier.open(g, who, req.Session)
	if err != nil {
		return nil, err
	}
	opened := false
	defer func() {
		if !opened { // it panics
			g.notifier.end(stream)
		}
	}()
	if wanted := req.Params.Notifications; wanted != nil {
		wanted.ResourceSubscriptions = g.notifier.subscribeAll(ctx, who, stream, wanted.ResourceSubscriptions, find)
	}
	opened = true
	return (*Stream)(stream), nil
}

// Close ends the stream.
func (s *Stream) Close() { s.group.notifier.end((*subscriber)(s)) }

// Acknowledged says that the client has the acknowledgment. From now on it gets notifications, by
// a function of its own and not from the SDK.
func (s *Stream) Acknowledged(ack *mcp.SubscriptionsAcknowledgedParams, send func(message []byte) error) {
	s.send = send
	s.group.notifier.acknowledged((*subscriber)(s), ack)
}

// Streams returns how many subscriptions/listen streams are open.
func (g *Group) Streams() int {
	g.notifier.mu.Lock()
	defer g.notifier.mu.Unlock()
	return len(g.streams)
}

// streamKey is the context key of a stream that the SDK serves. Its ID, which is that of the
// request, is known only when the SDK acknowledges it.
type streamKey struct{}

// open adds a stream to a session.
func (n *Notifier) open(g *Group, who ferrule.Principal, session *mcp.ServerSession) (*subscriber, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if state := n.sessions[session]; state != nil && len(state.streams) >= MaxStreams {
		return nil, invalidParams(fmt.Sprintf("too many subscriptions/listen streams: limit is %d per session", MaxStreams))
	}
	stream := &subscriber{group: g, session: session, who: who, stream: true, topics: make(map[string]Topic), missed: make(map[delivery]bool)}
	n.session(session).streams[stream] = true
	g.streams[stream] = true
	return stream, nil
}

// subscribeAll subscribes a stream to the first of several resources, and returns those
// that could be subscribed to.
func (n *Notifier) subscribeAll(ctx context.Context, who ferrule.Principal, stream *subscriber, uris []string, find func(context.Context, string) (Topic, error)) (done []string) {
	for _, uri := range uriList(uris) {
		if ctx.Err() != nil {
			break
		}
		if t, err := find(ctx, uri); err == nil && n.subscribe(ctx, who, stream, uri, t) == nil {
			done = append(done, uri)
		}
	}
	return done
}

// sending is a sending middleware. It learns how to write to sessions, and that a
// stream is acknowledged.
func (g *Group) sending(next mcp.MethodHandler) mcp.MethodHandler {
	g.write = next
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		ack, ok := req.GetParams().(*mcp.SubscriptionsAcknowledgedParams)
		if !ok {
			return next(ctx, method, req)
		}
		result, err := next(ctx, method, req)
		if stream, ok := ctx.Value(streamKey{}).(*subscriber); ok {
			g.notifier.acknowledged(stream, ack)
		}
		return result, err
	}
}

// acknowledged sends what a stream has missed, and all that follows.
func (n *Notifier) acknowledged(stream *subscriber, ack *mcp.SubscriptionsAcknowledgedParams) {
	n.mu.Lock()
	defer n.mu.Unlock()
	stream.id, stream.lists, stream.ready = ack.Meta[mcp.MetaKeySubscriptionID], ack.Notifications, true
	for d := range stream.missed {
		if d.uri != "" || stream.wants(d.method) {
			n.deliver(d)
		}
	}
	stream.missed = nil
}
