package discovery

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
)

// order is a command of Home Assistant that is to be carried out.
type order struct {
	device *device
	entity *Entity
	call   *ferrule.Call
	state  string // after it
}

// client is how the program that sends commands is recorded.
var client = ferrule.Client{Name: "Home Assistant over MQTT"}

// take receives a command. It does not block. A retained one is old: it must not run again
// at each connection. Commands of one entity run one after another, in order.
func (p *Publisher) take(ctx context.Context, m mqttclient.Message) {
	rest, ok := strings.CutPrefix(m.Topic, p.parts.Node.base()+"/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.byKey[parts[0]]
	if d == nil || d.elsewhere || d.described.Entities[parts[1]] == nil {
		return
	}
	e := d.described.Entities[parts[1]]
	action, state, ok := e.Command(m.Payload)
	queue, busy := p.queues[m.Topic]
	switch {
	case m.Retained:
		d.report(e, ferrule.Errorf(ferrule.Denied, "a retained command was ignored").WithHint("switch retain off for commands"))
	case !ok:
		d.report(e, ferrule.Errorf(ferrule.Invalid, "%s cannot be told %q", e.Key, ferrule.Clean(string(m.Payload), ferrule.MaxWord)))
	case busy && len(queue) >= maxQueue || !busy && p.workers >= maxWorkers:
		d.report(e, ferrule.Errorf(ferrule.Busy, "too many commands at once"))
	default:
		o := order{d, e, &ferrule.Call{Principal: p.who, Client: client, Device: d.dev.ID, Tool: action.Tool, Args: action.Args}, state}
		p.queues[m.Topic] = append(queue, o)
		if !busy {
			p.workers++
			p.tasks.Go(func() { p.work(ctx, m.Topic) })
		}
	}
	p.changed()
}

// work carries out the commands of one entity until there are no more.
func (p *Publisher) work(ctx context.Context, topic string) {
	for {
		p.mu.Lock()
		queue := p.queues[topic]
		if len(queue) == 0 {
			delete(p.queues, topic)
			p.workers--
			p.mu.Unlock()
			return
		}
		o := queue[0]
		p.queues[topic] = queue[1:]
		p.mu.Unlock()
		result, err := p.parts.Handle(ctx, o.call)
		p.finish(o, result, err)
	}
}

// finish publishes what became of a command: a new state only if the device has confirmed
// it, and an unknown one if the call may have run.
func (p *Publisher) finish(o order, result *ferrule.Result, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, key := o.device, o.entity.Key
	switch {
	case err == nil && o.state != "" && isConfirmed(result):
		d.states[key] = o.state
	case err != nil && ferrule.AsError(err).MayHaveRun() && o.entity.Component != "button":
		d.states[key] = unknown
		if o.entity.Component == "text" { // it takes None for a text
			d.states[key] = ""
		}
	}
	d.report(o.entity, err)
	p.changed()
}

// isConfirmed reports whether a result does not say that nobody knows whether it is true.
func isConfirmed(result *ferrule.Result) bool {
	var said struct{ Confirmed *bool }
	return json.Unmarshal(result.Value, &said) != nil || said.Confirmed == nil || *said.Confirmed
}

// report tells Home Assistant what became of a command. It is called with mu held.
func (d *device) report(e *Entity, err error) {
	text := "done"
	about := map[string]any{"entity": e.Key, "time": time.Now().UTC().Format(time.RFC3339Nano)}
	if err != nil {
		said := ferrule.AsError(err)
		text = string(said.Code) + ": " + said.Message
		about["code"], about["message"], about["hint"] = said.Code, ferrule.Clean(said.Message, ferrule.MaxText), ferrule.Clean(said.Hint, ferrule.MaxText)
		about["may_have_run"] = said.MayHaveRun()
	}
	d.states[outcomeKey] = ferrule.Clean(text, maxLength)
	d.attrs, _ = json.Marshal(about)
}

// encodeEvent returns a notification as Home Assistant reads it.
func encodeEvent(name string, e ferrule.Event) []byte {
	about := map[string]any{"event_type": name, "time": e.Time.UTC().Format(time.RFC3339Nano)}
	if len(e.Params) > 0 {
		about["params"] = e.Params
	}
	data, err := json.Marshal(about)
	if err != nil {
		return []byte(`{}`)
	}
	return data
}

// maxDepth is how deep an answer is searched, as polls do.
const maxDepth = 2

// hasBoolean reports whether a schema has a boolean at a path, whose parts are joined by _.
func hasBoolean(schema json.RawMessage, path string, depth int) bool {
	var s struct {
		Type       any                        `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil || depth > maxDepth {
		return false
	}
	if path == "" {
		return s.Type == "boolean"
	}
	for name, property := range s.Properties {
		if rest, ok := strings.CutPrefix(path, ferrule.SignalName(name)); ok && (rest == "" || rest[0] == '_') && hasBoolean(property, strings.TrimPrefix(rest, "_"), depth+1) {
			return true
		}
	}
	return false
}
