package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// many returns the arguments of call_many for n devices, d0 and so on.
func many(n int, more string) string {
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprintf("%q", fmt.Sprint("d", i)))
	}
	return fmt.Sprintf(`{"tool":"look","devices":[%s]%s}`, strings.Join(ids, ","), more)
}

func TestCallMany(t *testing.T) {
	for _, test := range []struct {
		more string
		want int64 // at the same time
	}{{"", 8}, {`,"parallel":1`, 1}, {`,"parallel":3`, 3}, {`,"parallel":32`, 32}, {`,"parallel":100`, 32}, {`,"parallel":-5`, 8}} {
		synctest.Test(t, func(t *testing.T) {
			var now, most atomic.Int64
			road := func(_ context.Context, c *ferrule.Call) (*ferrule.Result, error) {
				n := now.Add(1)
				defer now.Add(-1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				time.Sleep(time.Duration(len(c.Device)*7%5) * time.Second) // they end in another order
				return &ferrule.Result{Value: json.RawMessage(fmt.Sprintf(`{"device":%q,"tool":%q,"args":%s,"by":%q}`, c.Device, c.Tool, c.Args, c.Principal.Name))}, nil
			}
			b := newSet(t, builtin.CallMany(road))
			var told []ferrule.Progress
			result, err := b.Handle(t.Context(), &ferrule.Call{
				Principal: ferrule.Principal{Role: ferrule.Agent, Name: "robby"}, Tool: "call_many",
				Args:     json.RawMessage(many(200, test.more+`,"arguments":{"pin":1.50}`)),
				Progress: func(p ferrule.Progress) { told = append(told, p) }, // not locked: it is one goroutine
			})
			if err != nil {
				t.Fatal(err)
			}
			var out builtin.CallManyOutput
			if err := json.Unmarshal(result.Value, &out); err != nil || out.Succeeded != 200 || out.Failed != 0 || len(out.Results) != 200 {
				t.Fatalf("%+v %v", out, err)
			}
			for i, r := range out.Results {
				id := fmt.Sprint("d", i)
				if want := fmt.Sprintf(`{"device":%q,"tool":"look","args":{"pin":1.50},"by":"robby"}`, id); r.Device != id || string(r.Value) != want || r.Error != nil {
					t.Fatalf("%d: %+v", i, r)
				}
			}
			if most.Load() != test.want {
				t.Errorf("%s: %d at once", test.more, most.Load())
			}
			for i, p := range told {
				if p.Done != float64(i+1) || p.Total != 200 || p.Message != fmt.Sprintf("%d of 200 devices, 0 failed", i+1) {
					t.Fatalf("%d: %+v", i, p)
				}
			}
			if len(told) != 200 {
				t.Errorf("told %d times", len(told))
			}
		})
	}
}

func TestCallManyIsRefused(t *testing.T) {
	b := newSet(t, builtin.CallMany(func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		t.Error("a device was called")
		return &ferrule.Result{}, nil
	}))
	for _, test := range []struct{ args, want string }{
		{`{"tool":"look","devices":[]}`, "devices: must be 1 to 200, got 0"},
		{`{"tool":"look","devices":null}`, "devices: must be 1 to 200, got 0"},
		{many(201, ""), "devices: must be 1 to 200, got 201"},
		{`{"tool":"look","devices":["a","b","a"]}`, `devices: duplicate ID "a"`},
		{`{"tool":"look","devices":["a","gateway"]}`, "devices: gateway is not a device"},
	} {
		var out builtin.CallManyOutput
		err := call(t, b, ferrule.Agent, "call_many", test.args, &out)
		if err == nil || ferrule.AsError(err).Code != ferrule.Invalid || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%.60s: %v", test.args, err)
		}
	}
	tool := b.Manifest().Tool("call_many")
	if tool.Effect != ferrule.Endangers || tool.Deadline == 0 {
		t.Errorf("%+v", tool)
	}
	if wrong := tool.Check(map[string]any{"tool": "look", "devices": []any{"a"}, "arguments": map[string]any{"pin": json.Number("1"), "text": "x"}}); wrong != nil {
		t.Errorf("%q", wrong)
	}
	if wrong := tool.Check(map[string]any{"tool": "look", "devices": []any{"a"}, "arguments": "pin=1"}); len(wrong) != 1 {
		t.Errorf("%q", wrong)
	}
}

// TestCallManyOutcomes checks that a failing device does not hide the others.
func TestCallManyOutcomes(t *testing.T) {
	b := newSet(t, builtin.CallMany(func(_ context.Context, c *ferrule.Call) (*ferrule.Result, error) {
		if string(c.Args) != "{}" {
			t.Errorf("called with %s", c.Args)
		}
		switch c.Device {
		case "gone":
			return nil, ferrule.Errorf(ferrule.Offline, "gone is offline")
		case "mute":
			return nil, ferrule.Errorf(ferrule.Unanswered, "no answer").AfterSend()
		case "bug":
			return nil, errors.New("a fault")
		case "odd":
			return &ferrule.Result{Value: []byte("no\x1bJSON")}, nil
		case "eye":
			return &ferrule.Result{Content: []ferrule.Content{
				{Type: ferrule.TextContent, Text: "a picture"}, {Type: ferrule.ImageContent, Data: make([]byte, 9), MIME: "image/png"},
			}}, nil
		}
		return &ferrule.Result{Value: json.RawMessage(`[1]`)}, nil
	}))
	var out builtin.CallManyOutput
	if err := call(t, b, ferrule.Agent, "call_many", `{"tool":"look","devices":["a","gone","mute","bug","odd","eye","z"]}`, &out); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range out.Results {
		text := fmt.Sprintf("%s %s%s", r.Device, r.Value, r.Text)
		if r.Error != nil {
			text += r.Error.Code + ": " + r.Error.Certainty
		}
		got = append(got, text)
	}
	want := []string{
		"a [1]",
		"gone offline: Nothing was sent.",
		"mute unanswered: The action may have run.",
		"bug internal: The action may have run.",
		"odd no JSON",
		"eye a picture\n(image of 9 bytes; call the tool on this device alone to get it)",
		"z [1]",
	}
	if !slices.Equal(got, want) || out.Succeeded != 4 || out.Failed != 3 {
		t.Errorf("got %d, %d and\n%s", out.Succeeded, out.Failed, strings.Join(got, "\n"))
	}
}

// TestCallManyIsCancelled checks that no further device is called after cancellation.
func TestCallManyIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var called []string
		b := newSet(t, builtin.CallMany(func(ctx context.Context, c *ferrule.Call) (*ferrule.Result, error) {
			mu.Lock()
			called = append(called, c.Device)
			mu.Unlock()
			select {
			case <-ctx.Done():
				return nil, ferrule.Errorf(ferrule.Cancelled, "the caller went away").AfterSend()
			case <-time.After(time.Second):
				return &ferrule.Result{Value: json.RawMessage(`1`)}, nil
			}
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		result, err := b.Handle(ctx, &ferrule.Call{Tool: "call_many", Args: json.RawMessage(many(10, `,"parallel":2`))})
		if err != nil {
			t.Fatal(err)
		}
		var out builtin.CallManyOutput
		if err := json.Unmarshal(result.Value, &out); err != nil {
			t.Fatal(err)
		}
		for i, r := range out.Results {
			switch {
			case i < 4 && r.Error == nil:
			case i >= 4 && i < 6 && r.Error != nil && r.Error.Code == "cancelled" && r.Error.Certainty == "The action may have run.":
			case i >= 6 && r.Error != nil && r.Error.Code == "cancelled" && strings.HasPrefix(r.Error.Certainty, "Nothing was sent"):
			default:
				t.Errorf("%d: %+v %+v", i, r, r.Error)
			}
		}
		if out.Succeeded != 4 || out.Failed != 6 || len(called) != 6 {
			t.Errorf("%d, %d; called %q", out.Succeeded, out.Failed, called)
		}
	})
}
