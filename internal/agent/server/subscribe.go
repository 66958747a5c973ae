package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/notify"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// HandleEvent receives an event of a device. It does not block.
func (s *Server) HandleEvent(e ferrule.Event) {
	if e.Type != ferrule.Notified {
		return // the catalog reports how devices change
	}
	s.notifier.Changed(notify.Topic{Device: e.Device})
	if e.Method != notify.ResourceUpdated {
		return
	}
	var updated struct {
		URI string `json:"uri"`
	}
	if json.Unmarshal(e.Params, &updated) != nil || updated.URI == "" {
		return
	}
	s.notifier.Changed(notify.Topic{Device: e.Device, URI: updated.URI})
	if escaped := escapeURI(updated.URI, false); escaped != updated.URI { // as an agent may have written it
		s.notifier.Changed(notify.Topic{Device: e.Device, URI: escaped})
	}
}

// HandleMissed reports that events may have been lost.
func (s *Server) HandleMissed(int) { s.notifier.AllChanged() }

// stateURI returns the URI of a device's state.
func stateURI(device string) string { return devicesURI + "/" + device + "/state" }

// deviceInState returns the device in the URI of a state. For another URI the result
// is not a device.
func deviceInState(uri string) string {
	return strings.TrimSuffix(strings.TrimPrefix(uri, devicesURI+"/"), "/state")
}

// subscribe answers resources/subscribe.
func (v *view) subscribe(ctx context.Context, req *mcp.SubscribeRequest) error {
	t, err := v.subscribable(ctx, req.Params.URI)
	if err != nil {
		return err
	}
	err = v.group.Subscribe(ctx, caller(ctx), req.Session, req.Params.URI, t)
	var request *jsonrpc.Error
	if err == nil || errors.As(err, &request) {
		return err
	}
	return v.readError(req.Params.URI, err)
}

// subscribable returns the topic of a URI that an agent may subscribe to now. A signal
// must exist: a misspelled one would never change.
func (v *view) subscribable(ctx context.Context, uri string) (notify.Topic, error) {
	t, err := v.topicOf(uri)
	if err == nil && t.URI == "" && !v.server.maySubscribe(caller(ctx), t) { // a resource is left to the pipeline
		err = noResource(uri)
	}
	if err == nil && (t.Signal != "" || t.Watch != "") {
		_, err = v.read(ctx, uri)
	}
	return t, err
}

// uriOf returns the URI by which agents of this view know a topic.
func (v *view) uriOf(t notify.Topic) string {
	switch {
	case t.Watch != "":
		return watchURI(t.Watch)
	case t.Signal != "":
		return signalURI(t.Device, t.Signal)
	case t.URI == "":
		return stateURI(t.Device)
	}
	return v.scoped(t.Device, &ferrule.Resource{URI: t.URI})
}

// topicOf returns the topic of a URI, if an agent of this view may subscribe to it.
// Each topic has one URI, so that a subscription and its notifications match.
func (v *view) topicOf(uri string) (notify.Topic, error) {
	if device, own, ok := v.located(uri); ok {
		t := notify.Topic{Device: v.server.currentID(device), URI: own}
		if !v.mayRead(device, ferrule.Subscribe) || own == "" || ferrule.Clean(own, ferrule.MaxURI) != own || v.uriOf(t) != uri {
			return notify.Topic{}, noResource(uri)
		}
		return t, nil
	}
	if id, ok := v.watchIn(uri); ok {
		return notify.Topic{Watch: id}, nil
	}
	t := notify.Topic{Device: deviceInState(uri)}
	if device, signal, ok := signalIn(uri); ok && v.server.live() {
		t = notify.Topic{Device: device, Signal: signal}
	}
	if v.uriOf(t) != uri {
		return notify.Topic{}, badParams(v.subscribableHint())
	}
	if now := v.server.currentID(t.Device); now != t.Device { // notifications would have another URI
		return notify.Topic{}, noResource(uri)
	}
	_, known := v.server.device(t.Device)
	if !known || t.Device == ferrule.GatewayID || v.device != "" && v.device != t.Device {
		return notify.Topic{}, noResource(uri)
	}
	return t, nil
}

// subscribableHint says which of the gateway's own resources can be subscribed to.
func (v *view) subscribableHint() string {
	if v.server.live() {
		return fmt.Sprintf("cannot subscribe: of the gateway's own resources, only device states and signals can be subscribed to, such as %s and %s", stateURI("robot"), signalURI("robot", "temperature"))
	}
	return fmt.Sprintf("cannot subscribe: of the gateway's own resources, only device states can be subscribed to, such as %s", stateURI("robot"))
}
