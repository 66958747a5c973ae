package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/agent/endpoint"
	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/approval"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/pipeline"
	"github.com/ferrulehq/ferrule/internal/watch"
)

// watchesFile has the watches, in the data directory.
const watchesFile = "watches"

// openWatches reads the watches.
func (g *Gateway) openWatches() error {
	var err error
	if g.notices, err = g.parts.Config.WatchesConfig(); err != nil {
		return err
	}
	g.Watches, err = watch.Open(watch.Parts{
		File: filepath.Join(g.parts.Data, watchesFile), Node: g.node(), Shared: g.shared(), Handle: g.handleLater,
		Owner: g.watchOwner, Sees: g.watchSees, Changes: g.watchChanges,
		Lost: func(ctx context.Context, calls []watch.LostCall) []error { return g.lost.ofWatches(ctx, calls) }, // it is built later
		Send: g.watchSenders(g.notices), Event: g.Cluster.AddEvent,
		Silence: func(r *ferrule.Reading) (time.Duration, bool) { return silenceHere, r.Poll == poller.HeardPoll },
		Updated: g.watchUpdated, Log: g.parts.Log,
	})
	if err != nil {
		return err
	}
	g.Fleet.WatchOwn(g.Watches.Devices())
	return nil
}

// watchUpdated tells agents and open pages about another state of a watch.
func (g *Gateway) watchUpdated(id string) {
	g.Agents.WatchUpdated(id)
	if g.Console != nil {
		g.Console.WatchesChanged()
	}
}

// connectWatches connects the watches with the events of devices and with other nodes. Agents
// are there by then.
func (g *Gateway) connectWatches() {
	g.Watches.Connect()
	g.Cluster.Listen(func(e ferrule.Event) {
		if e.Type != ferrule.WatchFired {
			g.Watches.HandleEvent(e)
			return
		}
		var n watch.Notice
		if e.Node != g.node() && json.Unmarshal(e.Params, &n) == nil {
			g.Agents.WatchUpdated(n.Watch)
		}
	})
}

// replaceNotices changes where watches notify.
func (g *Gateway) replaceNotices(next config.Watches, done *control.Reloaded) {
	if next == g.notices {
		return
	}
	g.Watches.SetSenders(g.watchSenders(next))
	g.notices = next
	done.Applied = append(done.Applied, "watches: other ways to notify")
}

// watchSees reports whether a caller may know a device.
func (g *Gateway) watchSees(who ferrule.Principal, device string) bool {
	_, ok := g.visibleDevice(who, device)
	return ok
}

// watchChanges reports whether the journal has an intent before the call of a watch is sent.
func (g *Gateway) watchChanges(a *watch.Action) bool {
	_, manifest, ok := g.Fleet.Lookup(a.Device)
	if !ok || manifest == nil {
		return false
	}
	tool := manifest.Tool(a.Tool)
	return tool != nil && tool.Effect != ferrule.Reads
}

// watchOwner returns the owner of a watch as it would be let in now. What only the node of
// the owner can check is refused on another one.
func (g *Gateway) watchOwner(w *watch.Watch) (ferrule.Principal, error) {
	who := w.Owner
	gone := func(why string) (ferrule.Principal, error) {
		return ferrule.Principal{}, ferrule.Errorf(ferrule.Denied, "the watch %s does nothing: %s", w.Name, why).
			WithHint("set the watch again as somebody who is let in, or remove it with `ferrule watch remove %s`", w.ID)
	}
	here := w.Node == g.node()
	switch who.Auth {
	case ferrule.AuthSocket, ferrule.AuthStdio: // a user of the system of its node, which has signed the watch
		return who, nil
	case ferrule.AuthLogin:
		for _, p := range g.People.List() {
			if p.Name == who.Name {
				now := p.Role.LoggedIn(who.Name, otherGroups(who)...)
				now.TokenID = p.LoginID
				return now, nil
			}
		}
		return gone(who.Name + " may not log in any more")
	case ferrule.AuthToken, ferrule.AuthOAuth:
		now, why := currentRights(w, g.node(), managed{g}.List())
		if why != "" {
			return gone(why)
		}
		return now, nil
	case ferrule.AuthLoopback:
		if _, open := g.loopback.Open(); here && open {
			return who, nil
		}
		return gone("programs on the machine of node " + w.Node + " need a token now, or their node does not hold the device")
	case ferrule.AuthEndpoint:
		known := slices.ContainsFunc(g.endpoints, func(e endpoint.Config) bool { return endpointPrefix+e.Name == who.Name })
		if here && (known || strings.HasPrefix(who.Name, "mqtt:")) {
			return who, nil
		}
		return gone("the endpoint of " + who.Name + " is not one of this node")
	}
	return gone("nobody can check later whether " + who.String() + " is still let in; use a token or a login of this gateway")
}

// otherGroups returns the groups of a person besides the role.
func otherGroups(who ferrule.Principal) []string {
	return slices.DeleteFunc(strings.Split(who.Groups, ","), func(group string) bool { return group == "" || ferrule.PersonRole(group).Rank() > 0 })
}

// currentRights returns the owner of a watch with what its token or login permits now, but not
// more than when the watch was set: a person may have given the same program another login.
// The text says why it is not let in; it is empty if it is.
func currentRights(w *watch.Watch, node string, all []ferrule.Token) (who ferrule.Principal, why string) {
	who = w.Owner
	why = "the token or login of " + who.Name + " was revoked, or is not known on this node"
	for _, t := range all {
		name, devices := t.Name, strings.Join(t.Devices, ",")
		if t.Login != nil {
			name = strings.TrimPrefix(t.Login.Agent, string(ferrule.Agent)+":")
		}
		switch {
		case name != who.Name || (t.Login != nil) != (who.Auth == ferrule.AuthOAuth):
			continue
		case who.TokenID != "" && who.TokenID != t.ID && !(t.Config && who.HasConfigToken()):
			continue // another one of the same name
		case t.Login != nil && devices != strings.Join(who.DevicePatterns(), ","):
			continue // another login
		case t.Config && w.Node != node:
			continue // a token of the same name in the file of another node
		case !t.Config && !t.Created.Before(w.Created):
			continue // another one of the same name
		case t.Expired || !t.Expires.IsZero() && time.Now().After(t.Expires):
			why = "the token or login of " + who.Name + " has expired"
			continue
		}
		scopes, err := ferrule.ParseScopes(t.Scopes)
		if err != nil {
			why = "the scopes of the token cannot be read"
			continue
		}
		if who.Scopes.Limits() {
			scopes &= who.Scopes
		}
		who.Scopes, who.Devices, who.TokenID = scopes, devices, t.ID
		return who, ""
	}
	return ferrule.Principal{}, why
}

// lockedOut returns why the caller of a call that has waited for long would not be let in any
// more; empty if it would, or if only another node knows.
func (g *Gateway) lockedOut(call *ferrule.Call) string {
	switch call.Principal.Auth {
	case ferrule.AuthToken, ferrule.AuthOAuth, ferrule.AuthLogin:
	default:
		return ""
	}
	if call.Via != "" {
		return ""
	}
	_, err := g.watchOwner(&watch.Watch{Owner: call.Principal, Node: g.node(), Created: time.Now()})
	if err == nil {
		return ""
	}
	return call.Principal.String() + " is not let in any more: its token or login was revoked, or has expired"
}

// watches implements builtin.Watches.
type watches struct{ *Gateway }

// List implements builtin.Watches. A call from another node gets what this one knows. What
// notices only is counted where the device is.
func (w watches) List(ctx context.Context, call *ferrule.Call, only string) ([]watch.Status, error) {
	all := w.Watches.List(call.Principal)
	if only != "" {
		one, err := w.Watches.Get(call.Principal, only)
		if err != nil {
			return nil, err
		}
		all = []watch.Status{one}
	}
	if call.Via == "" {
		w.addOthers(ctx, call, all)
	}
	return all, nil
}

// addOthers adds what other nodes know about watches that have fired there.
func (w watches) addOthers(ctx context.Context, call *ferrule.Call, all []watch.Status) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	at := make(map[string]int, len(all))
	for i := range all {
		at[all[i].ID] = i
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, node := range w.Cluster.State().Nodes {
		wg.Go(func() {
			there := *call
			there.MeterState = nil
			result, err := w.Cluster.Forward(ctx, node, &there)
			var out builtin.ListWatchesOutput
			if err != nil || json.Unmarshal(result.Value, &out) != nil {
				return // what it knows is not shown
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range out.Watches {
				if n, ok := at[out.Watches[i].ID]; ok {
					all[n].Merge(&out.Watches[i])
				}
			}
		})
	}
	wg.Wait()
}

// Set implements builtin.Watches. What cannot work now, such as a misspelled signal, would only
// be noticed when the watch is needed.
func (w watches) Set(ctx context.Context, call *ferrule.Call, s watch.Settings) (watch.Status, error) {
	who := call.Principal
	var last *ferrule.Latest
	if id := s.Condition.Device; ferrule.CheckID(id) == nil {
		if !w.watchSees(who, id) {
			return watch.Status{}, ferrule.UnknownDevice(id)
		}
		var err error
		if last, err = w.checkSignal(ctx, id, s.Condition.Signal); err != nil {
			return watch.Status{}, err
		}
	}
	if err := w.checkWatchEvent(who, &s.Condition); err != nil {
		return watch.Status{}, err
	}
	if s.Call != nil {
		if err := w.checkAction(who, s.Call); err != nil {
			return watch.Status{}, err
		}
	}
	status, err := w.Watches.Set(who, s)
	if err == nil && s.ID == "" && last != nil && s.Condition.Meets(last.Value) {
		status.Now = &condition.Hit{Device: s.Condition.Device, Signal: last.Signal, Time: last.Time, Value: last.Value}
	}
	return status, err
}

// checkSignal returns an error if a device of this node has other signals, but not this one. A
// device that was not measured yet may have any. It returns the last value of the signal, or nil
// if none is known.
func (w watches) checkSignal(ctx context.Context, id, signal string) (*ferrule.Latest, error) {
	dev, _, ok := w.Fleet.Lookup(id)
	if !ok || signal == "" || w.History == nil || dev.Node != "" && dev.Node != w.node() {
		return nil, nil
	}
	if last, heard := w.heard.Current(dev.ID, signal); heard {
		return &last, nil
	}
	known, err := history.WithPast{Store: w.History, Source: w.pastSource}.Latest(ctx, dev.ID)
	if err != nil || len(known) == 0 {
		return nil, nil // it is not known which signals there are
	}
	if i := slices.IndexFunc(known, func(l ferrule.Latest) bool { return l.Signal == signal }); i >= 0 {
		return &known[i], nil
	}
	return nil, builtin.UnknownSignal(dev.ID, signal, known)
}

// checkWatchEvent returns an error if the devices that the caller sees have no such event.
func (w watches) checkWatchEvent(who ferrule.Principal, c *condition.Condition) error {
	selector, err := condition.ParseSelector(c.Device)
	if err != nil || c.Event == "" {
		return nil // it is refused later, or is about a signal
	}
	var devices []*ferrule.Device
	for _, dev := range w.Fleet.Devices() {
		if selector.Matches(dev) && w.watchSees(who, dev.ID) {
			devices = append(devices, dev)
		}
	}
	return w.checkEvent(devices, c.Event)
}

// checkAction returns why the call of a watch would be refused at once. The rules decide when
// it is made.
func (w watches) checkAction(who ferrule.Principal, a *watch.Action) error {
	if err := a.Check(); err != nil {
		return ferrule.Errorf(ferrule.Invalid, "%w", err)
	}
	dev, manifest, ok := w.Fleet.Lookup(a.Device)
	if !ok || !w.watchSees(who, a.Device) {
		return ferrule.UnknownDevice(a.Device)
	}
	var tool *ferrule.Tool
	if manifest != nil {
		tool = manifest.Tool(a.Tool)
	}
	if tool == nil {
		return ferrule.Errorf(ferrule.NotFound, "%s has no tool %q", dev.ID, ferrule.Clean(a.Tool, ferrule.MaxToolName)).WithHint("to list its tools, run `ferrule tools %s`", dev.ID)
	}
	if !bytes.Equal(tool.MaskArgs(a.Args, true), a.Args) {
		return ferrule.Errorf(ferrule.Denied, "%s of %s has a secret argument, and a watch would store and show it", tool.Name, dev.ID).
			WithHint("leave the secret out, or make the call when the watch notifies")
	}
	return pipeline.CheckArgs(dev.ID, tool, a.Args)
}

// Enable implements builtin.Watches.
func (w watches) Enable(who ferrule.Principal, name string, on bool) (watch.Status, error) {
	return w.Watches.Enable(who, name, on)
}

// Remove implements builtin.Watches.
func (w watches) Remove(who ferrule.Principal, name string) (watch.Status, error) {
	return w.Watches.Remove(who, name)
}

// watchSenders returns how notices are delivered, as far as that is configured.
func (g *Gateway) watchSenders(cfg config.Watches) watch.Senders {
	all := make(watch.Senders)
	if cfg.Webhook.URL != "" {
		client := &http.Client{Timeout: 10 * time.Second}
		// A redirect could lead to where the owner did not want a notice to go.
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		all[watch.Webhook] = func(ctx context.Context, n watch.Notice) error { return postNotice(ctx, client, cfg.Webhook, n) }
	}
	if cfg.MQTT.Broker != "" {
		all[watch.MQTT] = func(ctx context.Context, n watch.Notice) error { return g.publishNotice(ctx, cfg.MQTT, n) }
	}
	return all
}

// postNotice sends a notice to the webhook, signed like a request for approval.
func postNotice(ctx context.Context, client *http.Client, to config.WatchWebhook, n watch.Notice) error {
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL.Reveal(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	approval.SignRequest(req, to.Secret, strconv.FormatInt(time.Now().Unix(), 10), body)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the webhook answered %s", resp.Status)
	}
	return nil
}

// publishNotice publishes a notice on the topic of its watch.
func (g *Gateway) publishNotice(ctx context.Context, to config.WatchMQTT, n watch.Notice) error {
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	client := g.Requests.brokers.client(to.Broker)
	if client == nil {
		return fmt.Errorf("the broker %s is not connected", to.Broker)
	}
	conn, err := client.Connect(ctx)
	if err != nil {
		return fmt.Errorf("connecting to the broker %s: %w", to.Broker, err)
	}
	topic := to.Topic
	if topic == "" {
		topic = defaultWatchTopic
	}
	return conn.Publish(ctx, mqttclient.Publication{Topic: topic + "/" + n.Watch, Payload: body, QoS: 1})
}

// defaultWatchTopic is the topic below which notices are published.
const defaultWatchTopic = "ferrule/watches"
