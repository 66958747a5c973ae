package telemetry_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// discard is a journal that keeps nothing.
type discard struct{}

func (discard) Append(ferrule.Entry, bool) error { return nil }

// oneBoard is a fleet of one device.
type oneBoard struct{ handle ferrule.Handler }

var (
	robot    = &ferrule.Device{ID: "robot", Kind: "k", Node: "here", Transport: "tcp", Protocol: "mcpu", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}
	manifest = &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "look", Effect: ferrule.Reads}, {Name: "move"}}, Operations: []ferrule.Operation{ferrule.ReadResource}}
	robby    = ferrule.Principal{Role: ferrule.Agent, Name: "robby", Auth: ferrule.AuthToken}
)

func (b oneBoard) Own(id string) (ferrule.Target, bool) { return b.Target(id) }

func (b oneBoard) Target(id string) (ferrule.Target, bool) {
	return ferrule.Target{Device: robot, Manifest: manifest, Handler: b.handle}, id == "robot"
}

// newPipeline returns a whole pipeline, with a lane and a device served by end.
func newPipeline(meters ferrule.Meters, end ferrule.Handler) ferrule.Handler {
	lane := meters.For(ferrule.PartLane)
	device := ferrule.Measured(meters.For(ferrule.PartDevice), end)
	return pipeline.New(pipeline.Parts{
		Config: pipeline.DefaultConfig(), Journal: discard{}, Meters: meters, Log: slog.New(slog.DiscardHandler),
		Fleet: oneBoard{func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			_, span := lane.Begin(ctx, call)
			lane.End(span, call, nil)
			return device(ctx, call)
		}},
	}).Handle
}

var done = &ferrule.Result{Value: json.RawMessage("1")}

func answer(context.Context, *ferrule.Call) (*ferrule.Result, error) { return done, nil }

func look(handle ferrule.Handler) func() {
	ctx := context.Background()
	return func() { handle(ctx, &ferrule.Call{ID: "c", Principal: robby, Device: "robot", Tool: "look"}) }
}

// TestNoAllocations checks that counting and timing a call allocates nothing.
func TestNoAllocations(t *testing.T) {
	o := telemetry.New(telemetry.Parts{Config: telemetry.DefaultConfig()})
	bare, measured := look(newPipeline(nil, answer)), look(newPipeline(o.Meters(), answer))
	before, after := testing.AllocsPerRun(2000, bare), testing.AllocsPerRun(2000, measured)
	t.Logf("%v allocations per call without metrics, %v with", before, after)
	if after > before {
		t.Errorf("metrics add %v allocations per call", after-before)
	}
}

func BenchmarkPipeline(b *testing.B) {
	o := telemetry.New(telemetry.Parts{Config: telemetry.DefaultConfig()})
	for name, meters := range map[string]ferrule.Meters{"bare": nil, "metrics": o.Meters()} {
		b.Run(name, func(b *testing.B) {
			call := look(newPipeline(meters, answer))
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}
