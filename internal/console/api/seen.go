package api

import (
	"encoding/json"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/audit"
)

// seen is what one person may see of the journal. A person sees calls to devices that are
// shown to them, and stops. The owner also sees who was let in, calls to devices that are
// not known any more, and what others sent: arguments, and messages that may repeat them.
type seen struct {
	who     ferrule.Principal
	admin   bool
	devices DeviceParts
	shown   ferrule.Visibility
	known   map[string]bool
	effects map[[2]string]ferrule.Effect
}

func (a *API) seenBy(who ferrule.Principal) *seen {
	s := &seen{who: who, admin: who.Scopes.Has(ferrule.ScopeAdmin) && who.Devices == "", devices: a.parts.Devices, known: make(map[string]bool), effects: make(map[[2]string]ferrule.Effect)}
	if s.devices.Visible != nil {
		s.shown = s.devices.Visible(who)
	}
	return s
}

// shows reports whether the person may see a call.
func (s *seen) shows(c *audit.Call) bool {
	if s.admin {
		return true
	}
	switch c.Phase {
	case ferrule.Outcome, ferrule.Intent, ferrule.ApprovalStep:
		if c.Device == ferrule.GatewayID {
			return s.isOwn(&c.Record) // what others ask the gateway names devices
		}
		return s.device(c.Device)
	case ferrule.Stopped, ferrule.Resumed:
		return c.Device == "" || s.device(c.Device)
	case ferrule.JournalGap, ferrule.JournalCut:
		return true
	}
	return false
}

// device reports whether the person may see a device.
func (s *seen) device(id string) bool {
	ok, asked := s.known[id]
	if !asked && s.devices.Fleet != nil {
		dev, m, found := s.devices.Fleet.Lookup(id)
		ok = found && s.who.CanSee(dev) && s.shown.Device(dev, m)
		s.known[id] = ok
	}
	return ok
}

// isOwn reports whether the person made a call.
func (s *seen) isOwn(r *audit.Record) bool {
	return r.Principal.Role == s.who.Role && r.Principal.Name == s.who.Name && r.Via == ""
}

// isNoise reports whether a call only read from the gateway itself, as each page of the
// console does. Such calls are listed if they are asked for, and if they failed.
func (s *seen) isNoise(c *audit.Call) bool {
	return c.Device == ferrule.GatewayID && c.Phase == ferrule.Outcome && c.Code == "" && s.effect(&c.Record) == ferrule.Reads
}

// effect returns the effect of a tool, as its device declares it now; empty if it is not
// known.
func (s *seen) effect(r *audit.Record) ferrule.Effect {
	if r.Operation != ferrule.CallTool {
		return ferrule.Reads
	}
	key := [2]string{r.Device, r.Tool}
	effect, known := s.effects[key]
	if !known && s.devices.Fleet != nil {
		if _, m, ok := s.devices.Fleet.Lookup(r.Device); ok && m != nil {
			if t := m.ToolFor(ferrule.CallTool, r.Tool); t != nil {
				effect = t.Effect
			}
		}
		s.effects[key] = effect
	}
	return effect
}

// contains reports whether a text is part of what the person may see of a call.
func (s *seen) contains(c *audit.Call, lower string) bool {
	view := s.one(c)
	for _, text := range []string{view.Device, view.Tool, view.Caller, view.Client.Name, view.Message, view.Rule, view.ID, string(view.Args)} {
		if strings.Contains(strings.ToLower(text), lower) {
			return true
		}
	}
	return false
}

// all returns calls as the person may see them.
func (s *seen) all(calls []audit.Call) []Activity {
	all := make([]Activity, 0, len(calls))
	for i := range calls {
		all = append(all, s.one(&calls[i]))
	}
	return all
}

// quotes reports whether the message of an error may repeat arguments.
func quotes(code ferrule.Code) bool {
	switch code {
	case ferrule.Invalid, ferrule.Limited, ferrule.Refused, ferrule.Failed, ferrule.Internal:
		return true
	}
	return false
}

// one returns a call as the person may see it.
func (s *seen) one(c *audit.Call) Activity {
	r := &c.Record
	view := Activity{
		ID: ferrule.Clean(r.Call, ferrule.MaxWord), At: r.Cursor().String(), Node: r.Node, Time: r.Began, Ended: r.Time, Phase: r.Phase, Caller: ferrule.Clean(r.Principal.String(), ferrule.MaxWord), Auth: r.Principal.Auth,
		Client: r.Client.Bounded(), Device: ferrule.Clean(r.Device, ferrule.MaxWord), Kind: r.Kind, Operation: r.Operation, Tool: ferrule.Clean(r.Tool, ferrule.MaxToolName),
		Effect: s.effect(r), Verdict: r.Verdict, Rule: ferrule.Clean(r.Rule, ferrule.MaxWord), Code: r.Code, MayHaveRun: r.MayHaveRun, Took: r.Took,
		Record: r.Seq, Chain: r.Chain, Hash: r.Hash, Via: ferrule.Clean(r.Via, ferrule.MaxWord),
	}
	all := s.admin || s.isOwn(r)
	if all {
		view.User, view.From = ferrule.Clean(r.Principal.User, ferrule.MaxWord), ferrule.Clean(r.From, ferrule.MaxWord)
	}
	if all || !quotes(r.Code) {
		view.Message = ferrule.Clean(r.Message, ferrule.MaxText)
	}
	switch {
	case len(r.Args) == 0 || string(r.Args) == "{}":
	case !all:
		view.Hidden = true
	case len(r.Args) > maxArgs:
		view.Args, _ = json.Marshal(ferrule.Clean(string(r.Args), maxArgs) + "…")
	default:
		view.Args = ferrule.CleanJSON(r.Args)
	}
	for _, step := range c.Steps {
		if all || step.Phase != ferrule.Asked {
			view.Steps = append(view.Steps, ActivityStep{step.Time, step.Phase, ferrule.Clean(step.Message, ferrule.MaxText), step.Seq})
		}
	}
	if len(c.Steps) > 0 && c.Steps[0].Time.Before(view.Time) {
		view.Time = c.Steps[0].Time
	}
	return view
}
