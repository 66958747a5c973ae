package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
)

// endTime limits how long a gateway may take to end.
const endTime = 10 * time.Second

// TakeOver builds a gateway like New. If a `ferrule mcp` process is the gateway, that
// process ends its gateway first and its agent continues with this one.
func TakeOver(ctx context.Context, parts Parts) (*Gateway, error) {
	g, running := New(parts)
	if !errors.Is(running, datadir.ErrRunning) {
		return g, running
	}
	path, err := control.SocketPath(parts.Data)
	if err != nil {
		return nil, err
	}
	client := control.NewClient(path)
	defer client.Close()
	defer datadir.Claim(parts.Data).Close() // else another `ferrule mcp` could be the gateway for a moment
	for end := time.Now().Add(endTime); ; {
		if err := client.TakeOver(ctx); errors.Is(err, control.ErrNotHandedOver) || time.Now().After(end) {
			return nil, running
		}
		for range 10 {
			g, err := New(parts)
			if !errors.Is(err, datadir.ErrRunning) {
				return g, err
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return nil, running
			}
		}
	}
}
