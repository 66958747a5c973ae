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

// Limits of call_many.
const (
	maxMany         = 200
	defaultParallel = 8
	maxParallel     = 32
)

// CallManyInput has the arguments of call_many.
type CallManyInput struct {
	Tool      string           `json:"tool" jsonschema:"the device's own name of the tool, such as gpio_write"`
	Devices   []string         `json:"devices" jsonschema:"device IDs, at most 200"`
	Arguments schema.AnyObject `json:"arguments,omitempty" jsonschema:"arguments, the same for each device"`
	Parallel  int              `json:"parallel,omitempty" jsonschema:"devices called at the same time, default 8, at most 32"`
}

// CallManyOutput is the result of call_many.
type CallManyOutput struct {
	Results   []CallOutcome `json:"results" jsonschema:"one per device, in the given order"`
	Succeeded int           `json:"succeeded"`
	Failed    int           `json:"failed"`
}

// CallOutcome is the result of the call to one device.
type CallOutcome struct {
	Device string          `json:"device"`
	Value  json.RawMessage `json:"value,omitempty" jsonschema:"result"`
	Text   string          `json:"text,omitempty" jsonschema:"result as text"`
	Error  *OutcomeError   `json:"error,omitempty" jsonschema:"why the call failed"`
}

// OutcomeError is why a call failed.
type OutcomeError struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Certainty string `json:"certainty" jsonschema:"whether the action may have run"`
}

// CallMany returns the tool call_many. Each of its calls passes the whole pipeline.
func CallMany(pipeline ferrule.Handler) Tool {
	const text = "Calls one tool on many devices, some in parallel, and returns the result for each."
	return Typed("call_many", text, ferrule.Endangers, func(ctx context.Context, call *ferrule.Call, in CallManyInput) (CallManyOutput, error) {
		if err := in.check(); err != nil {
			return CallManyOutput{}, err
		}
		out := CallManyOutput{Results: make([]CallOutcome, len(in.Devices))}
		for i := range each(len(in.Devices), in.Parallel, func(i int) {
			out.Results[i] = in.on(ctx, pipeline, call, in.Devices[i])
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
	}).WithDeadline(5 * time.Minute)
}

func (in *CallManyInput) check() error {
	if len(in.Arguments) == 0 {
		in.Arguments = schema.AnyObject("{}")
	}
	if in.Parallel <= 0 {
		in.Parallel = defaultParallel
	}
	in.Parallel = min(in.Parallel, maxParallel)
	seen := make(map[string]bool)
	for _, id := range in.Devices {
		switch {
		case id == ferrule.GatewayID:
			return ferrule.Errorf(ferrule.Invalid, "devices: %s is not a device", id)
		case seen[id]:
			return ferrule.Errorf(ferrule.Invalid, "devices: duplicate ID %q", ferrule.Clean(id, ferrule.MaxWord))
		}
		seen[id] = true
	}
	if n := len(in.Devices); n == 0 || n > maxMany {
		return ferrule.Errorf(ferrule.Invalid, "devices: must be 1 to %d, got %d", maxMany, n)
	}
	return nil
}

// on calls the tool on one device.
func (in *CallManyInput) on(ctx context.Context, pipeline ferrule.Handler, by *ferrule.Call, device string) CallOutcome {
	if ctx.Err() != nil { // the caller left: nothing more may move
		e := ferrule.Errorf(ferrule.Cancelled, "cancelled before %s was called", ferrule.Clean(device, ferrule.MaxWord))
		return CallOutcome{Device: device, Error: &OutcomeError{string(e.Code), e.Message, e.Certainty()}}
	}
	result, err := pipeline(ctx, &ferrule.Call{Principal: by.Principal, Client: by.Client, Session: by.Session, Device: device, Tool: in.Tool, Args: json.RawMessage(in.Arguments)})
	if err != nil {
		e := ferrule.AsError(err)
		return CallOutcome{Device: device, Error: &OutcomeError{string(e.Code), e.Message, e.Certainty()}}
	}
	out := CallOutcome{Device: device, Value: result.Value, Text: contentText(result.Content)}
	if len(out.Value) > 0 && !json.Valid(out.Value) { // one invalid result must not hide the others
		out.Value, out.Text = nil, ferrule.Clean(string(out.Value), ferrule.MaxText)
	}
	return out
}

// contentText returns the text of content, with a note for other parts.
func contentText(content []ferrule.Content) string {
	var parts []string
	for _, part := range content {
		if part.Text != "" {
			parts = append(parts, part.Text)
		} else {
			parts = append(parts, fmt.Sprintf("(%s of %d bytes; call the tool on this device alone to get it)", part.Type, len(part.Data)))
		}
	}
	return strings.Join(parts, "\n")
}

// each calls do for 0 to n-1, some in parallel, and sends each index when it is done.
func each(n, parallel int, do func(i int)) <-chan int {
	next, done := make(chan int, n), make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	var wg sync.WaitGroup
	for range min(n, parallel) {
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
