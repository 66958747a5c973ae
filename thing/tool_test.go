package thing_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/thing"
)

type dose struct {
	Millilitres int `json:"millilitres"`
}

// TestSchemaOptions checks WithSchema, Unchecked and WithOutput.
func TestSchemaOptions(t *testing.T) {
	d := thing.New("d", "1")
	bounds := json.RawMessage(`{"type":"object","properties":{"millilitres":{"type":"integer","minimum":1,"maximum":50}},"required":["millilitres"]}`)
	ran := 0
	pour := func(_ context.Context, in dose) (dose, error) { ran++; return dose{in.Millilitres * 10}, nil }
	thing.Tool(d, "pour", "Pour", pour, thing.WithSchema(bounds))
	thing.Tool(d, "splash", "Splash", pour, thing.WithSchema(bounds), thing.Unchecked())
	thing.Tool(d, "measure", "Measure", pour, thing.WithOutput(bounds))
	var refused *thing.RefusedError
	if _, err := d.Call(t.Context(), "pour", json.RawMessage(`{"millilitres":51}`)); !errors.As(err, &refused) || ran != 0 {
		t.Errorf("above the maximum: %v, ran %d times", err, ran)
	}
	if _, err := d.Call(t.Context(), "splash", json.RawMessage(`{"millilitres":51}`)); err != nil {
		t.Errorf("unchecked: %v", err)
	}
	if result, err := d.Call(t.Context(), "measure", json.RawMessage(`{"millilitres":5}`)); err != nil || result != (dose{50}) {
		t.Errorf("valid result: %v, %v", result, err)
	}
	if _, err := d.Call(t.Context(), "measure", json.RawMessage(`{"millilitres":6}`)); err == nil || errors.As(err, &refused) || !strings.Contains(err.Error(), "has run") {
		t.Errorf("invalid result: %v", err)
	}
}

// TestOutputSchema checks that only results that are objects have schemas.
func TestOutputSchema(t *testing.T) {
	d := thing.New("d", "1")
	thing.Tool(d, "object", "", func(context.Context, struct{}) (dose, error) { return dose{}, nil }, thing.Reads(), thing.Titled("An object"))
	thing.Tool(d, "picture", "", func(context.Context, struct{}) (thing.Image, error) { return thing.Image{}, nil })
	thing.Tool(d, "text", "", func(context.Context, struct{}) (string, error) { return "", nil })
	tools := d.Tools()
	if !strings.Contains(string(tools[0].Output), `"millilitres"`) || !tools[0].Reads || tools[0].Title != "An object" {
		t.Errorf("got %+v", tools[0])
	}
	if tools[1].Output != nil || tools[2].Output != nil {
		t.Errorf("got %s and %s", tools[1].Output, tools[2].Output)
	}
}

// TestCancelledCall checks that a call whose context has ended does not run.
func TestCancelledCall(t *testing.T) {
	d := thing.New("d", "1")
	ran := false
	thing.Tool(d, "move", "", func(context.Context, struct{}) (bool, error) { ran = true; return ran, nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var refused *thing.RefusedError
	if _, err := d.Call(ctx, "move", nil); !errors.As(err, &refused) || ran {
		t.Errorf("got %v, ran: %v", err, ran)
	}
}
