//go:build bench

package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/policy"
	"github.com/ferrulehq/ferrule/internal/pipeline"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// nowhere is a fleet with one device and a journal that keeps nothing, so that only the
// pipeline itself is measured.
type nowhere struct{ target ferrule.Target }

func (n nowhere) Target(string) (ferrule.Target, bool)     { return n.target, true }
func (n nowhere) Own(string) (ferrule.Target, bool)        { return n.target, true }
func (nowhere) Append(e ferrule.Entry, durable bool) error { return nil }

// TestRatioPolicy measures what the preset careful adds to the local pipeline.
func TestRatioPolicy(t *testing.T) {
	n := nowhere{ferrule.Target{
		Device:   &ferrule.Device{ID: "robot", Kind: "k", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted, Labels: map[string]string{"room": "hall"}},
		Manifest: &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "move", Effect: ferrule.Changes}}},
		Handler: func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			return &ferrule.Result{Value: json.RawMessage("1")}, nil
		},
	}}
	careful, err := policy.Load(policy.Config{Preset: policy.Careful})
	if err != nil {
		t.Fatal(err)
	}
	build := func(decide pipeline.Policy) ferrule.Handler {
		return pipeline.New(pipeline.Parts{Config: pipeline.DefaultConfig(), Journal: n, Fleet: n, Policy: decide, Log: slog.New(slog.DiscardHandler)}).Handle
	}
	const rounds, calls = 41, 2000
	measure := func(handle ferrule.Handler) time.Duration {
		start := time.Now()
		for range calls {
			call := &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "claude"}, Device: "robot", Tool: "move", Args: json.RawMessage(`{"x":1,"y":2}`)}
			if _, err := handle(t.Context(), call); err != nil {
				t.Fatal(err)
			}
		}
		return time.Since(start) / calls
	}
	without, with := build(nil), build(careful.Decide)
	var ratios []float64
	var before, after time.Duration
	for range rounds {
		before, after = measure(without), measure(with)
		ratios = append(ratios, float64(after)/float64(before))
	}
	slices.Sort(ratios)
	t.Logf("a call takes %v without a policy and %v with careful: %.3fx (median of %d)", before, after, ratios[rounds/2], rounds)
	figure.AtMost(t, "a call with the preset careful, to one without a policy", ratios[rounds/2], 1.10)
}
