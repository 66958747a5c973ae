package pipeline_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// steps is a Meter that writes down when calls come and go.
type steps struct {
	part string
	all  *[]string
}

func (s steps) Begin(ctx context.Context, _ *ferrule.Call) (context.Context, ferrule.Span) {
	*s.all = append(*s.all, s.part)
	return ctx, ferrule.Span{Tracked: s.part}
}

func (s steps) End(span ferrule.Span, _ *ferrule.Call, err error) {
	word := "-" + span.Tracked.(string)
	if err != nil {
		word += ":" + string(ferrule.AsError(err).Code)
	}
	*s.all = append(*s.all, word)
}

// TestMeters checks that the pipeline, each stage and everything behind it are
// measured, nested, as far as a call gets.
func TestMeters(t *testing.T) {
	var all []string
	handle := pipeline.New(pipeline.Parts{
		Config: pipeline.DefaultConfig(), Journal: &ledger{}, Log: slog.New(slog.DiscardHandler),
		Meters: func(part string) ferrule.Meter { return steps{part, &all} },
		Fleet:  testFleet{oneBoard{}, func(context.Context, *ferrule.Call) (*ferrule.Result, error) { return &ferrule.Result{}, nil }},
	}).Handle
	inward := []string{"pipeline", "audit", "limit", "resolve", "validate", "authorize", "approve", "hooks", "cache", "deadline", "stop", "bounds", "intent", "questions", "jobs", "fleet"}
	outward := slices.Clone(inward)
	slices.Reverse(outward)
	if _, err := handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: "look"}); err != nil {
		t.Fatal(err)
	}
	if want := strings.Join(inward, " ") + " -" + strings.Join(outward, " -"); strings.Join(all, " ") != want {
		t.Errorf("got %q, want %q", strings.Join(all, " "), want)
	}
	all = nil
	handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: "move"})
	if got := strings.Join(all, " "); got != "pipeline audit limit resolve validate -validate:invalid -resolve:invalid -limit:invalid -audit:invalid -pipeline:invalid" {
		t.Errorf("got %q", got)
	}
}
