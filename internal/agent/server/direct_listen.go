package server

import (
	"encoding/json"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/notify"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// A subscriptions/listen over HTTP stays open for hours. In the SDK it is a session with three
// goroutines; here it is only the stream.

// directListen is a request to be told of changes.
type directListen struct {
	id     json.RawMessage
	params *mcp.SubscriptionsListenParams
}

// directListen reads a request to be told of changes. It returns nil if the SDK is to read it,
// for example because it lists tasks or wants nothing.
func (s *Server) directListen(message []byte) *directListen {
	id, params := s.plainRequest(message, listenMethod)
	if id == nil {
		return nil
	}
	l := &directListen{id, &mcp.SubscriptionsListenParams{Notifications: new(mcp.NotificationSubscriptions)}}
	wanted := l.params.Notifications
	for name, value := range strictjson.Members(params) {
		switch string(name) {
		case "notifications":
			if !onlyMembers(value, "toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions") || json.Unmarshal(value, wanted) != nil {
				return nil
			}
		case "_meta":
			if l.params.Meta, _ = s.metas.read(value); l.params.Meta == nil {
				return nil
			}
		default:
			return nil
		}
	}
	if l.params.Meta[mcp.MetaKeyProtocolVersion] == nil || !wantsAny(wanted) {
		return nil
	}
	return l
}

// wantsAny reports whether a client wants to be told of anything.
func wantsAny(wanted *mcp.NotificationSubscriptions) bool {
	return wanted.ToolsListChanged || wanted.PromptsListChanged || wanted.ResourcesListChanged || len(wanted.ResourceSubscriptions) > 0
}

// serveListen answers a subscriptions/listen until it ends. It returns false if the SDK is to
// answer it.
func (s *Server) serveListen(w http.ResponseWriter, r *http.Request, body []byte) bool {
	l := s.directListen(body)
	if l == nil {
		return false
	}
	v := s.viewAt(r.PathValue("device"))
	if v == nil {
		return false
	}
	var open openStream
	defer open.close()
	if err := open.open(v, w, r, l); err != nil {
		if open.events == nil {
			response, code := encodeError(l.id, err)
			writeDirect(w, response, code)
		}
		return true
	}
	if wantsAny(l.params.Notifications) {
		<-r.Context().Done()
	}
	v.endStream(open.events, l.id)
	return true
}

// openStream is a stream that is served without the SDK.
type openStream struct {
	events *mcphttp.Events // nil before the response begins
	stream *notify.Stream
}

// close ends the stream. Nothing may be written when the handler has returned.
func (o *openStream) close() {
	if o.events != nil {
		o.events.End()
	}
	if o.stream != nil {
		o.stream.Close()
	}
}

// open does what receive does, and acknowledges the request.
//
// It is a function of its own for the sake of memory: streams stay open, and what they have on
// the stack is multiplied by all agents.
func (o *openStream) open(v *view, w http.ResponseWriter, r *http.Request, l *directListen) (err error) {
	var none mcp.Result
	defer v.recoverRequest(listenMethod, &none, &err)
	// The session only tells streams apart. It is never connected.
	req := &mcp.SubscriptionsListenRequest{Session: new(mcp.ServerSession), Params: l.params, Extra: &mcp.RequestExtra{TokenInfo: auth.TokenInfoFromContext(r.Context()), Header: r.Header}}
	ctx := v.begin(r.Context(), req)
	if o.stream, err = v.group.Open(ctx, caller(ctx), req, v.subscribable); err != nil {
		return err
	}
	ack := &mcp.SubscriptionsAcknowledgedParams{Meta: mcp.Meta{mcp.MetaKeySubscriptionID: l.id}, Notifications: *l.params.Notifications}
	first, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": ackMethod, "params": ack})
	if err != nil {
		return err
	}
	o.events = mcphttp.NewEvents(w)
	if err := o.events.Send(first); err != nil {
		return err
	}
	o.stream.Acknowledged(ack, o.events.Send)
	return nil
}

// endStream sends the result of a stream that the gateway ends. The client may be gone.
func (v *view) endStream(events *mcphttp.Events, id json.RawMessage) {
	last, _ := v.server.appendMeta(append(beginResponse(id, "result", 256), '{'), mcp.Meta{mcp.MetaKeySubscriptionID: id}, true)
	events.Send(append(last, `,"resultType":"complete"}}`...))
}
