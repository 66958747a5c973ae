package pipeline_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// TestLongDeadline checks that a tool of the gateway may take longer than a device may, and that
// a caller cannot ask for more than the tool has.
func TestLongDeadline(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		device        string
		tool, timeout time.Duration
		want          time.Duration
	}{
		{ferrule.GatewayID, day, 0, day}, {ferrule.GatewayID, day, time.Hour, time.Hour}, {ferrule.GatewayID, day, 2 * day, day},
		{ferrule.GatewayID, 0, time.Hour, pipeline.MaxDeadline}, {"robot", day, 0, pipeline.MaxDeadline}, {"robot", 0, day, pipeline.MaxDeadline},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			p := pipeline.New(pipeline.Parts{
				Config: pipeline.DefaultConfig(), Journal: nowhere{}, Log: slog.New(slog.DiscardHandler),
				Fleet: testFleet{oneTool{ferrule.Tool{Name: "t", Effect: ferrule.Reads, Deadline: ferrule.Duration(c.tool)}}, func(ctx context.Context, _ *ferrule.Call) (*ferrule.Result, error) {
					<-ctx.Done()
					return nil, ferrule.Errorf(ferrule.Failed, "the time is over")
				}},
			})
			p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: c.device, Tool: "t", Timeout: ferrule.Duration(c.timeout)})
			if took := time.Since(start); took != c.want {
				t.Errorf("%s, deadline %v, timeout %v: ended after %v, want %v", c.device, c.tool, c.timeout, took, c.want)
			}
		})
	}
}
