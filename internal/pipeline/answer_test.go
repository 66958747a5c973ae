package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/pipeline"
	"github.com/ferrulehq/ferrule/internal/schema"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// oneTool is a device with one tool.
type oneTool struct{ tool ferrule.Tool }

func (o oneTool) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	return &ferrule.Device{ID: id, Kind: "k", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, &ferrule.Manifest{Tools: []ferrule.Tool{o.tool}}, true
}

// callTool calls a tool that gives an answer, within two seconds.
func callTool(t *testing.T, config pipeline.Config, tool ferrule.Tool, progress func(ferrule.Progress), end ferrule.Handler) (*ferrule.Result, error) {
	tool.Name = "t"
	p := pipeline.New(pipeline.Parts{Config: config, Journal: nowhere{}, Fleet: testFleet{oneTool{tool}, end}, Log: slog.New(slog.DiscardHandler)})
	return p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: "t", Timeout: ferrule.Duration(2 * time.Second), Progress: progress})
}

func answering(value string) ferrule.Handler {
	return func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		return &ferrule.Result{Value: json.RawMessage(value)}, nil
	}
}

// failedWith reports whether a call ran and failed with a text.
func failedWith(err error, text string) bool {
	var e *ferrule.Error
	return errors.As(err, &e) && e.Code == ferrule.Failed && strings.Contains(e.Message, text)
}

// TestSlowPattern checks that a device cannot make the check of its answer take longer
// than the call may take.
func TestSlowPattern(t *testing.T) {
	s, err := schema.CompileOutput([]byte(`{"properties":{"v":{"pattern":"(?:a?){1000}b"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	answer := `{"v":"` + strings.Repeat("a", 1000<<10) + `"}`
	synctest.Test(t, func(t *testing.T) { // the limit of time is not reached
		_, err := callTool(t, pipeline.DefaultConfig(), ferrule.Tool{CheckOutput: s.CheckOutput}, nil, answering(answer))
		if !failedWith(err, "too large to check") {
			t.Errorf("got %v", err)
		}
	})
	start := time.Now()
	s.CheckOutput(json.RawMessage(answer))
	figure.AtMost(t, "checking an answer against a slow pattern", time.Since(start), 2*time.Second)
}

// TestCheckInDeadline checks that the check of a large answer ends with the call.
func TestCheckInDeadline(t *testing.T) {
	large := `"` + strings.Repeat("x", 20<<10) + `"`
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := callTool(t, pipeline.DefaultConfig(), ferrule.Tool{CheckOutput: func(json.RawMessage) []string {
			time.Sleep(time.Minute)
			return nil
		}}, nil, answering(large))
		took := time.Since(start)
		if !failedWith(err, "could not be checked in time") || took != 2*time.Second {
			t.Errorf("got %v after %v", err, took)
		}
		time.Sleep(time.Minute) // the check ends
	})
	_, err := callTool(t, pipeline.DefaultConfig(), ferrule.Tool{CheckOutput: func(json.RawMessage) []string { panic("short circuit") }}, nil, answering(large))
	if !failedWith(err, "short circuit") {
		t.Errorf("got %v", err)
	}
	if result, err := callTool(t, pipeline.DefaultConfig(), ferrule.Tool{CheckOutput: func(json.RawMessage) []string { return nil }}, nil, answering(large)); err != nil || string(result.Value) != large {
		t.Errorf("got %v, %v", result, err)
	}
}

// TestCheckOnce checks that a cached answer is not checked again.
func TestCheckOnce(t *testing.T) {
	checks := 0
	tool := ferrule.Tool{Name: "t", Effect: ferrule.Reads, CheckOutput: func(json.RawMessage) []string { checks++; return nil }}
	p := withCache(time.Minute, oneTool{tool}, nowhere{}, answering(`1`))
	for range 2 {
		if _, err := p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	if checks != 1 {
		t.Errorf("checked %d times", checks)
	}
}

// TestCleanResults checks that invisible text in results is removed if the owner wants
// that, and only then.
func TestCleanResults(t *testing.T) {
	const tags = "\U000e0041\u200b\u2800"
	said := `{"a` + tags + `":"b` + tags + `"}`
	content := func() []ferrule.Content {
		return []ferrule.Content{{Type: ferrule.TextContent, Text: "c" + tags, MIME: "m" + tags, URI: "u" + tags, Link: &ferrule.Resource{URI: "l" + tags, Title: tags}}}
	}
	for _, clean := range []bool{false, true} {
		config := pipeline.DefaultConfig()
		config.CleanResults = clean
		var seen []any
		progress := func(p ferrule.Progress) { seen = append(seen, p) }
		result, err := callTool(t, config, ferrule.Tool{CheckOutput: func(value json.RawMessage) []string {
			if clean && !ferrule.Visible(string(value)) {
				return []string{"checked before it was cleaned"}
			}
			return nil
		}}, progress, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			call.Report(ferrule.Progress{Log: &ferrule.Log{Data: json.RawMessage(said)}})
			return &ferrule.Result{Value: json.RawMessage(said), Text: "t" + tags, Content: content()}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		_, failure := callTool(t, config, ferrule.Tool{}, nil, func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			return nil, &ferrule.Error{Code: ferrule.Failed, Message: "no", Content: content()}
		})
		for name, v := range map[string]any{"result": result, "failure": failure, "progress": seen} {
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if ferrule.Visible(string(text)) != clean {
				t.Errorf("clean is %t, %s is %q", clean, name, text)
			}
		}
	}
}
