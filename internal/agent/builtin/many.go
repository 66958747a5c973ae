package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// The bounds of call_many.
const (
	maxMany     = 200
	usualAtOnce = 8
	maxAtOnce   = 32
)

// CallManyInput is the arguments of call_many.
type CallManyInput struct {
	Tool      string           `json:"tool" jsonschema:"the tool's own name, such as gpio_write"`
	Devices   []string         `json:"devices" jsonschema:"IDs of the devices, at most 200"`
	Arguments schema.AnyObject `json:"arguments,omitempty" jsonschema:"what the tool takes; the same for each device"`
	AtOnce    int              `json:"at_once,omitempty" jsonschema:"how many devices are called at the same time, 8 unless said, at most 32"`
}

// CallManyOutput is the result of call_many.
type CallManyOutput struct {
	Results   []CallOutcome `json:"results" jsonschema:"one for each device, in the order that was given"`
	Succeeded int           `json:"succeeded"`
	Failed    int           `json:"failed"`
}

// CallOutcome is what came of the call to one device.
type CallOutcome struct {
	Device string          `json:"device"`
	Value  json.RawMessage `json:"value,omitempty" jsonschema:"what it answered"`
	Text   string          `json:"text,omitempty" jsonschema:"what it answered for people to read"`
	Error  *OutcomeError   `json:"error,omitempty" jsonschema:"why it did not succeed"`
}

// OutcomeError is why a call did not succeed.
type OutcomeError struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Certainty string `json:"certainty" jsonschema:"whether it may have run"`
}

// CallMany is the tool that calls one tool on many devices. Each call takes the
// whole road, as if it had been made alone.
func CallMany(road ferrule.Handler) Tool {
	const text = "Call one tool on many devices, some at a time, and tell what came of it on each."
	return Typed("call_many", text, ferrule.Endangers, func(ctx context.Context, call *ferrule.Call, in CallManyInput) (CallManyOutput, error) {
		if err := in.check(); err != nil {
			return CallManyOutput{}, err
		}
		out := CallManyOutput{Results: make([]CallOutcome, len(in.Devices))}
		for i := range each(len(in.Devices), in.AtOnce, func(i int) {
			out.Results[i] = in.on(ctx, road, call.Principal, in.Devices[i])
		}) {
			if out.Results[i].Error == nil {
				out.Succeeded++
			} else {
				out.Failed++
			}
			done := out.Succeeded + out.Failed
			call.Report(ferrule.Progress{
				Message: fmt.Sprintf("%d of %d devices, %d failed", done, len(in.Devices), out.Failed),
				Done:    float64(done), Total: float64(len(in.Devices)),
			})
		}
		return out, nil
	}).Within(5 * time.Minute)
}

func (in *CallManyInput) check() error {
	if len(in.Arguments) == 0 {
		in.Arguments = schema.AnyObject("{}")
	}
	if in.AtOnce <= 0 {
		in.AtOnce = usualAtOnce
	}
	in.AtOnce = min(in.AtOnce, maxAtOnce)
	seen := make(map[string]bool)
	for _, id := range in.Devices {
		switch {
		case id == ferrule.GatewayID:
			return ferrule.Errorf(ferrule.Invalid, "devices: %s is no device", id)
		case seen[id]:
			return ferrule.Errorf(ferrule.Invalid, "devices: %q is given twice", ferrule.Clean(id, ferrule.MaxWord))
		}
		seen[id] = true
	}
	if n := len(in.Devices); n == 0 || n > maxMany {
		return ferrule.Errorf(ferrule.Invalid, "devices: want 1 to %d, got %d", maxMany, n)
	}
	return nil
}

// on makes the call to one device.
func (in *CallManyInput) on(ctx context.Context, road ferrule.Handler, who ferrule.Principal, device string) CallOutcome {
	if ctx.Err() != nil { // whoever asked has gone: nothing more moves
		e := ferrule.Errorf(ferrule.Cancelled, "the call was over before it was the turn of %s", ferrule.Clean(device, ferrule.MaxWord))
		return CallOutcome{Device: device, Error: &OutcomeError{string(e.Code), e.Message, e.Certainty()}}
	}
	result, err := road(ctx, &ferrule.Call{Principal: who, Device: device, Tool: in.Tool, Args: json.RawMessage(in.Arguments)})
	if err != nil {
		e := ferrule.AsError(err)
		return CallOutcome{Device: device, Error: &OutcomeError{string(e.Code), e.Message, e.Certainty()}}
	}
	out := CallOutcome{Device: device, Value: result.Value, Text: textOf(result.Content)}
	if len(out.Value) > 0 && !json.Valid(out.Value) { // one odd answer must not hide the others
		out.Value, out.Text = nil, ferrule.Clean(string(out.Value), ferrule.MaxText)
	}
	return out
}

// textOf is the text in what a device gave to look at, and what else there is.
func textOf(content []ferrule.Content) string {
	var parts []string
	for _, part := range content {
		if part.Text != "" {
			parts = append(parts, part.Text)
		} else {
			parts = append(parts, fmt.Sprintf("(%s of %d bytes: call the tool on this device alone to have it)", part.Type, len(part.Data)))
		}
	}
	return strings.Join(parts, "\n")
}

// each calls do for 0 to n-1, some at a time, and yields each when it is done.
func each(n, atOnce int, do func(i int)) <-chan int {
	next, done := make(chan int, n), make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	var wg sync.WaitGroup
	for range min(n, atOnce) {
		wg.Go(func() {
			for i := range next {
				do(i)
				done <- i
			}
		})
	}
	go func() {
		wg.Wait()
		close(done)
	}()
	return done
}
