package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// What agents may subscribe to is the state of devices, what they measure, and their own
// resources. The SDK knows who has, and sends; what is here decides of what, and when.
const (
	maxSubscriptions = 100                    // of one session
	updatePause      = 250 * time.Millisecond // between two updates of one resource
	signalPause      = time.Second            // of a signal
)

// updatedMethod is how a device says that one of its resources is another.
const updatedMethod = "notifications/resources/updated"

// unsubscribeMethod is how an agent says that it has heard enough of a resource.
const unsubscribeMethod = "resources/unsubscribe"

// Hear takes in something that a device said. It does not block.
func (f *Server) Hear(e ferrule.Event) {
	if e.Type != ferrule.Notified {
		return // what becomes of devices is told by the catalog
	}
	var said struct {
		URI string `json:"uri"`
	}
	if e.Method == updatedMethod {
		json.Unmarshal(e.Params, &said) // if it fails, it is said of no resource
	}
	for _, v := range f.viewsOf(e.Device) {
		if v.subscriptions.none() {
			continue
		}
		v.subscriptions.touch(stateURI(e.Device))
		if said.URI != "" {
			v.subscriptions.touch(v.uriOf(topic{device: e.Device, uri: said.URI}))
		}
	}
}

// Missed tells that something may have been said that was not heard here.
func (f *Server) Missed(int) {
	for _, v := range f.allViews() {
		v.subscriptions.touchAll()
	}
}

// stateURI is the resource that tells how a device is.
func stateURI(device string) string { return devicesURI + "/" + device + "/state" }

// deviceIn is the device in such a URI; whatever it is in another.
func deviceIn(uri string) string {
	return strings.TrimSuffix(strings.TrimPrefix(uri, devicesURI+"/"), "/state")
}

// subscribe answers resources/subscribe, and is asked for each resource that an agent
// wants to hear of by subscriptions/listen.
func (v *view) subscribe(ctx context.Context, req *mcp.SubscribeRequest) error {
	return v.enlist(ctx, req.Session, req.Params.URI)
}

// enlist notes that a session wants to hear of a resource, and sees to it that it can be
// heard of: a device is asked to tell of its own, and listened to for what it measures.
func (v *view) enlist(ctx context.Context, session *mcp.ServerSession, uri string) error {
	t, err := v.topicOf(uri)
	if err != nil {
		return err
	}
	if v.subscriptions.has(session, uri) {
		return nil
	}
	if err := v.attend(ctx, uri, t); err != nil {
		return err
	}
	switch first, ok := v.subscriptions.add(session, uri, t); {
	case !ok:
		return badParams(fmt.Sprintf("%d resources are subscribed to; more are not possible", maxSubscriptions))
	case first:
		go func() {
			session.Wait()
			v.leave(session)
		}()
	}
	return nil
}

// begun is a middleware of what is sent: when it is acknowledged what an agent of the
// newer era has subscribed to, the SDK knows of it.
func (v *view) begun(next mcp.MethodHandler) mcp.MethodHandler {
	v.send = next
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		said, ok := req.GetParams().(*mcp.SubscriptionsAcknowledgedParams)
		one, opens := ctx.Value(listenKey{}).(*listen)
		if !ok || !opens {
			return next(ctx, method, req)
		}
		v.listens.open(one, said)
		result, err := next(ctx, method, req)
		for method := range v.listens.begin(one) {
			v.tellListen(one, method)
		}
		v.subscriptions.begun(req.GetSession(), said.Notifications.ResourceSubscriptions)
		return result, err
	}
}

// attend sees to it that a topic can be heard of, until over is called with it.
func (v *view) attend(ctx context.Context, uri string, t topic) (err error) {
	switch {
	case t.uri != "":
		err = v.front.follows.begin(ctx, caller(ctx), t)
	case t.signal != "":
		if _, err := v.read(ctx, uri); err != nil {
			return err // a name that is wrong would never be heard of
		}
		err = v.front.ears.begin(t.device)
	}
	if err != nil {
		return requestError(v.advised(ferrule.AsError(err)))
	}
	return nil
}

// over tells that one fewer wants to hear of a topic.
func (f *Server) over(t topic) {
	switch {
	case t.uri != "":
		f.follows.end(t)
	case t.signal != "":
		f.ears.end(t.device)
	}
}

// unsubscribe answers resources/unsubscribe.
func (v *view) unsubscribe(_ context.Context, req *mcp.UnsubscribeRequest) error {
	v.forget(req.Session, []string{req.Params.URI})
	return nil
}

// leave ends what a session was subscribed to that has ended. The SDK would remember each
// resource for ever.
func (v *view) leave(session *mcp.ServerSession) {
	defer survive(v.front.parts.Log)
	for _, uri := range v.subscriptions.of(session) {
		v.dropped(session, uri)
	}
	v.subscriptions.leave(session)
}

// dropped has the SDK forget that a session is subscribed to a resource.
func (v *view) dropped(session *mcp.ServerSession, uri string) {
	v.sdk(context.Background(), unsubscribeMethod, &mcp.UnsubscribeRequest{Session: session, Params: &mcp.UnsubscribeParams{URI: uri}})
}

// agreed is what an agent may subscribe to of all that it asks for at once, the first
// of it: it is told which these are.
func (v *view) agreed(ctx context.Context, session *mcp.ServerSession, uris []string) (agreed []string) {
	for _, uri := range uris[:min(len(uris), maxSubscriptions)] {
		if ctx.Err() != nil {
			break
		}
		if !slices.Contains(agreed, uri) && v.enlist(ctx, session, uri) == nil {
			agreed = append(agreed, uri)
		}
	}
	return agreed
}

// forget ends what was agreed on. When it returns, the agent is told no more of it.
func (v *view) forget(session *mcp.ServerSession, uris []string) {
	for _, uri := range uris {
		v.subscriptions.remove(session, uri)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastWord)
	defer cancel()
	for _, uri := range uris {
		v.front.teller.settle(ctx, news{session: session, method: updatedMethod, uri: uri})
	}
}

// lastWord is how long an agent that has heard enough may take to read what it is
// being told.
const lastWord = time.Second
