package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/console"
	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/halt"
)

// pageHeader returns what the frame of each page shows. It does not wait for anything.
func (g *Gateway) pageHeader(_ context.Context, who ferrule.Principal) console.Header {
	n, state := g.Catalog.CountsFor(who), g.Cluster.State()
	h := console.Header{Devices: n.Online + n.Offline + n.Released + n.Pending, Agents: g.Agents.Sessions() + len(g.Control.Connected()), Node: state.Node, Nodes: len(state.Nodes), Stop: consoleStop{g}.StopState()}
	if who.Scopes.Has(ferrule.ScopeEndanger) {
		h.Waiting = g.Approvals.Waiting()
		if len(state.Nodes) > 0 {
			h.Waiting += g.waitingElsewhere(who)
		}
	}
	return h
}

// waitingCount is how many calls wait for a person on other nodes, as last heard.
type waitingCount struct {
	stop func() // ends the subscription of events

	mu     sync.Mutex
	n      int
	until  time.Time // when the number must be asked for again
	asking bool
}

// waitingAge is how long the number is good if no event says that it has changed.
const waitingAge = time.Minute

// outdated makes the next page ask again.
func (w *waitingCount) outdated() {
	w.mu.Lock()
	w.until = time.Time{}
	w.mu.Unlock()
}

// waitingElsewhere returns how many calls wait on other nodes, as last heard. If that is
// outdated, it asks them in the background, and then updates the open pages.
func (g *Gateway) waitingElsewhere(who ferrule.Principal) int {
	w := &g.undecided
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); !w.asking && now.After(w.until) {
		w.asking, w.until = true, now.Add(waitingAge)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*listTime)
			defer cancel()
			list, err := callOwn[builtin.ListApprovalsOutput](ctx, g, who, listTool, builtin.ListApprovalsInput{})
			n := 0
			for _, a := range list.Approvals {
				if a.State == ferrule.ApprovalWaiting && a.Node != g.Cluster.State().Node {
					n++
				}
			}
			w.mu.Lock()
			w.asking = false
			changed := err == nil && n != w.n || w.until.IsZero() // it changed meanwhile
			if err == nil {
				w.n = n
			}
			w.mu.Unlock()
			if changed {
				g.Console.ApprovalsChanged()
			}
		}()
	}
	return w.n
}

// stopChanged updates open pages when something was stopped or resumed.
func (g *Gateway) stopChanged() {
	if g.Console != nil {
		g.Console.StopChanged()
	}
}

// consoleStop implements api.Stop.
type consoleStop struct{ *Gateway }

// StopState implements api.Stop.
func (s consoleStop) StopState() (out api.StopState) {
	state := s.Stop.Stopped()
	out.Stopped, out.Everything = len(state.Orders) > 0, state.Everything()
	for _, o := range state.Orders {
		out.Orders = append(out.Orders, api.StopOrder{Device: o.Device, By: o.By, Reason: o.Reason, Time: o.Time, Node: o.Node})
	}
	if report := s.lastStop.Load(); out.Stopped && report != nil && report.Time.Equal(state.Orders[0].Time) {
		out.Report = stopReport(report)
	}
	return out
}

// stopReport returns a report for people.
func stopReport(r *halt.Report) *api.StopReport {
	out := &api.StopReport{Nodes: 1 + len(r.Nodes), Confirmed: 1, Seconds: r.Took.Seconds(), Cancelled: r.Ended, MayHaveRun: r.MayHaveRun}
	tools := r.Tools
	for _, node := range r.Nodes {
		out.Cancelled += node.Ended
		out.MayHaveRun += node.MayHaveRun
		tools = append(tools[:len(tools):len(tools)], node.Tools...)
		if node.Acknowledged {
			out.Confirmed++
		} else {
			out.Unreached = append(out.Unreached, node.Node)
		}
	}
	for _, t := range tools {
		out.Tools = append(out.Tools, api.StopTool(t))
	}
	return out
}
