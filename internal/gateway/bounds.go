package gateway

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/lease"
	"github.com/ferrulehq/ferrule/internal/guard/limits"
)

// The files of bounds in the data directory.
const (
	limitsFile = "limits"
	leasesFile = "leases"
)

// openBounds opens the physical limits and the leases of this node's devices.
func (g *Gateway) openBounds() (err error) {
	if g.Limits, err = limits.Open(limits.Parts{File: filepath.Join(g.parts.Data, limitsFile), Node: g.node(), Shared: g.shared(), Log: g.parts.Log}); err != nil {
		return err
	}
	g.Leases, err = lease.Open(lease.Parts{
		File: filepath.Join(g.parts.Data, leasesFile), Node: g.node(), Boot: g.boot,
		Handle: func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			return g.Pipeline.Handle(ctx, call)
		},
		SwitchedOff: g.Limits.SwitchedOff,
		Alive:       func(node string) bool { return slices.Contains(g.Cluster.State().Nodes, node) },
		Shared:      g.shared(),
		Log:         g.parts.Log,
	})
	if err != nil {
		return err
	}
	g.Fleet.WatchOwn(g.Leases)
	return nil
}

// bounds implements pipeline.Bounds.
type bounds struct {
	limits *limits.Limits
	leases *lease.Keeper
}

// Enter implements pipeline.Bounds. What a due lease undoes comes before everything else.
// The gateway's own tools have no bounds; a stop must not wait here.
func (b bounds) Enter(ctx context.Context, call *ferrule.Call) (leave func(error), err error) {
	if call.Target.Device.ID == ferrule.GatewayID {
		return func(error) {}, nil
	}
	if err := b.leases.Await(ctx, call); err != nil {
		return nil, err
	}
	pass, err := b.limits.Enter(call)
	if err != nil {
		return nil, err
	}
	var onFor time.Duration
	if pass != nil {
		onFor = pass.OnFor
	}
	left, err := b.leases.Enter(call, onFor, pass.Output())
	if err != nil {
		pass.Leave(err)
		return nil, err
	}
	return func(err error) {
		pass.Leave(err)
		left(err)
	}, nil
}

// entry returns the pipeline for calls that enter it at one place. It makes their sessions
// unique among all runs of all nodes.
func (g *Gateway) entry(name string) ferrule.Handler {
	next := g.Telemetry.Entry(name, g.Pipeline.Handle)
	return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		if session := call.Session; session != "" {
			call.Session = g.sessionID(session)
			defer func() { call.Session = session }() // it may be sent again
		}
		return next(ctx, call)
	}
}

func (g *Gateway) sessionID(session string) string { return g.boot + "-" + session }

// sessionEnded is called when the caller of a session is gone.
func (g *Gateway) sessionEnded(session string) { g.Leases.SessionEnded(g.sessionID(session)) }
