package thing_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// TestAllViolations checks that a schema that is given names every wrong argument.
func TestAllViolations(t *testing.T) {
	d := thing.New("d", "1")
	thing.Tool(d, "mix", "Mix", func(context.Context, map[string]any) (bool, error) { return true, nil }, thing.WithSchema(json.RawMessage(`{"type":"object",
		"$defs":{"part":{"type":"number","minimum":1,"maximum":9}},
		"properties":{"a":{"$ref":"#/$defs/part"},"b":{"type":"integer","minimum":1},"c":{"type":"integer","maximum":9},"d":{"type":"string","enum":["hot","cold"]},"e":{"type":"string"},"f":{"minLength":2}},
		"required":["b","e"],"minProperties":2,"additionalProperties":false}`)))
	for args, want := range map[string]string{
		`{"a":0,"b":0,"c":10,"d":"warm","f":"x","g":1}`: `a is invalid: minimum: 0/1 is less than 1.000000; b must be at least 1, got 0; c must be at most 9, got 10; ` +
			`d must be one of [hot cold], got warm; e is missing; f is invalid: minLength: "x" contains 1 Unicode code points, fewer than 2; g is unknown`,
		`{"b":1,"e":""}`: ``,
	} {
		_, err := d.Call(t.Context(), "mix", json.RawMessage(args))
		var refused *thing.RefusedError
		switch errors.As(err, &refused); {
		case want == "" && err != nil:
			t.Errorf("%s: %v", args, err)
		case want != "" && (refused == nil || strings.Join(refused.Arguments, "; ") != want):
			t.Errorf("%s: got %+v", args, err)
		}
	}
}

type inner struct {
	Depth int `json:"depth" min:"1"`
}

// TestTags checks that a struct tag without a meaning is an error that names the field.
func TestTags(t *testing.T) {
	declare := func(fn func(d *thing.Device)) (message string) {
		defer func() {
			if r := recover(); r != nil {
				message = r.(string)
			}
		}()
		fn(thing.New("d", "1"))
		return ""
	}
	for want, got := range map[string]string{
		`tool t: field Seconds: tag "desc" is unknown`: declare(func(d *thing.Device) {
			thing.Tool(d, "t", "", func(context.Context, struct {
				Seconds int `json:"seconds" desc:"how long"`
			}) (bool, error) {
				return true, nil
			})
		}),
		`tool t: field Seconds: jsonschema tag "minimum=1" begins with a keyword`: declare(func(d *thing.Device) {
			thing.Tool(d, "t", "", func(context.Context, struct {
				Seconds int `json:"seconds" jsonschema:"minimum=1"`
			}) (bool, error) {
				return true, nil
			})
		}),
		`tool t: field Seconds: json tag has the unknown option "omitemty"`: declare(func(d *thing.Device) {
			thing.Tool(d, "t", "", func(context.Context, struct {
				//lint:ignore SA5008 the mistake is what is tested
				Seconds int `json:"seconds,omitemty"`
			}) (bool, error) {
				return true, nil
			})
		}),
		`tool t: field All: field Depth: tag "min" is unknown`: declare(func(d *thing.Device) {
			thing.Tool(d, "t", "", func(context.Context, struct {
				All []*inner `json:"all"`
			}) (bool, error) {
				return true, nil
			})
		}),
		`tool t: result: field Depth: tag "min" is unknown`: declare(func(d *thing.Device) {
			thing.Tool(d, "t", "", func(context.Context, struct{}) (inner, error) { return inner{}, nil })
		}),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := declare(func(d *thing.Device) {
		thing.Tool(d, "t", "", func(context.Context, struct {
			At     time.Time `json:"at,omitzero" yaml:"at" xml:"at,attr"`
			Hidden inner     `json:"-"`
		}) (bool, error) {
			return true, nil
		})
	}); got != "" {
		t.Errorf("got %q", got)
	}
}

// TestPinTools checks that pins have tools in protocols that call tools by name.
func TestPinTools(t *testing.T) {
	d := board()
	var names []string
	for _, tool := range d.Tools() {
		names = append(names, tool.Name)
	}
	if got := strings.Join(names, " "); got != "greet refuse fail panic gpio_write gpio_read pwm_write adc_read get_pin_summary get_pin_buffer get_pin_events" {
		t.Errorf("got %s", got)
	}
	for _, test := range []struct{ tool, args, want string }{
		{"gpio_write", `{"pin":2,"value":true}`, `{"pin":2,"name":"led","value":true}`},
		{"gpio_read", `{"pin":2}`, `{"pin":2,"name":"led","value":true}`},
		{"get_pin_buffer", `{"pin":34,"limit":1}`, `{"pin":"light","count":2,"values":[2]}`},
		{"gpio_write", `{"pin":34,"value":1}`, `Bad params: pin must be one of [2], got 34; value must be true or false, got a number`},
		{"pwm_write", `{"pin":18,"duty":300}`, `Bad params: duty must be at most 255, got 300`},
		{"get_info", `{}`, `Unknown tool: get_info`},
	} {
		result, err := d.Call(t.Context(), test.tool, json.RawMessage(test.args))
		got, _ := json.Marshal(result)
		var refused *thing.RefusedError
		if errors.As(err, &refused) {
			got = []byte(refused.Reason)
		}
		if string(got) != test.want {
			t.Errorf("%s %s: got %s, %v", test.tool, test.args, got, err)
		}
	}
	if tools := thing.New("d", "1").Tools(); tools != nil {
		t.Errorf("a device without pins has %v", tools)
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

// TestToolTwice: of several declarations of a name at the same time, one counts.
func TestToolTwice(t *testing.T) {
	for range 200 {
		d := thing.New("d", "1")
		var declared atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				defer func() {
					if recover() == nil {
						declared.Add(1)
					}
				}()
				thing.Tool(d, "stop", "Stop", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
			})
		}
		wg.Wait()
		if n := declared.Load(); n != 1 || len(d.Tools()) != 1 {
			t.Fatalf("declared %d times; tools: %+v", n, d.Tools())
		}
	}
}
