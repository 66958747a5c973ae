package builtin_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// area selects devices by where they are. Several tools can share it.
type area struct {
	Area string `json:"area" jsonschema:"name of an area"`
}

// page selects a part of a list.
type page struct {
	Limit int `json:"limit,omitempty" jsonschema:"maximum number"`
}

type searchInput struct {
	area
	page
	Words string `json:"words"`
}

// TestComposition: embedded structs compose the input of a tool: one type, one schema, and
// one check.
func TestComposition(t *testing.T) {
	tool := builtin.Typed("search", "Searches.", ferrule.Reads, func(_ context.Context, _ *ferrule.Call, in searchInput) (searchInput, error) {
		return in, nil
	})
	set, err := builtin.NewDevice("library", "1", tool)
	if err != nil {
		t.Fatal(err)
	}
	m := set.Manifest()
	var schema struct {
		Properties map[string]struct{ Type, Description string }
		Required   []string
	}
	if err := json.Unmarshal(m.Tools[0].Input, &schema); err != nil {
		t.Fatal(err)
	}
	slices.Sort(schema.Required)
	if len(schema.Properties) != 3 || schema.Properties["area"].Description != "name of an area" || schema.Properties["limit"].Type != "integer" || !slices.Equal(schema.Required, []string{"area", "words"}) {
		t.Errorf("the schema is %s", m.Tools[0].Input)
	}
	if wrong := m.Tools[0].Check(map[string]any{"limit": "ten", "words": "x"}); len(wrong) != 2 {
		t.Errorf("got %q", wrong)
	}
	result, err := set.Handle(t.Context(), &ferrule.Call{Device: "library", Tool: "search", Args: json.RawMessage(`{"area":"hall","words":"x","limit":3}`)})
	if err != nil || string(result.Value) != `{"area":"hall","limit":3,"words":"x"}` {
		t.Errorf("got %s, %v", result.Value, err)
	}
	if set.Device().ID != "library" {
		t.Errorf("got %s", set.Device().ID)
	}
	if _, err := builtin.NewDevice("library", "1", tool, tool); err == nil {
		t.Error("two tools of one name were accepted")
	}
}
