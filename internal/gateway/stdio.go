package gateway

import (
	"context"
	"io"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/stdio"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
)

// ServeStdio serves the agent at the other end of in and out, until it disconnects or ctx
// ends. It joins the gateway of the data directory or of parts.Socket, or is the gateway.
func ServeStdio(ctx context.Context, parts Parts, in io.ReadCloser, out io.WriteCloser) error {
	return stdio.New(stdio.Parts{
		Socket: parts.Socket, Catalog: parts.Config.Catalog(), Agents: parts.Config.AgentsConfig(), Data: parts.Data, Requests: requestsOf(parts.Config),
		Open: func(handOver func()) (stdio.Gateway, error) {
			parts := parts
			parts.HandOver = handOver
			g, err := New(parts)
			if err != nil {
				return stdio.Gateway{}, err
			}
			handle := g.entry(telemetry.EntryStdio)
			return stdio.Gateway{
				Handle: func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
					g.ownAgent.called(call)
					return handle(ctx, call)
				},
				Samples: g.Cluster,
				Visible: g.visibility.Of,
				Changed: g.visibility.Watch,
				Follow:  g.Fleet.WatchDevices,
				Listen:  func(fn func(ferrule.Event)) (stop func()) { return g.Cluster.Listen(fn, ferrule.Notified) },
				Request: g.Requests.Add,
				Run:     g.Run,
				Close:   g.Close,
			}, nil
		},
		Version: parts.Version, Log: parts.Log,
	}).Run(ctx, in, out)
}
