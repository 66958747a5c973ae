package cluster

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// recordingMeter records the parents of calls, and changes the parent of calls to other
// nodes.
type recordingMeter struct {
	at, part, parent string
	mu               *sync.Mutex
	all              *[]string
}

func (h recordingMeter) Begin(ctx context.Context, call *ferrule.Call) (context.Context, ferrule.Span) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*h.all = append(*h.all, h.at+" "+h.part+" "+call.Parent)
	if h.part == ferrule.PartNode && h.parent != "" {
		call.Parent = h.parent
	}
	return ctx, ferrule.Span{}
}

func (h recordingMeter) End(_ ferrule.Span, _ *ferrule.Call, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	line := h.at + " " + h.part + " ends"
	if err != nil {
		line += " " + string(ferrule.AsError(err).Code)
	}
	*h.all = append(*h.all, line)
}

// TestMeters checks that calls are measured at both nodes, and that the other node
// continues a valid span.
func TestMeters(t *testing.T) {
	const before, after = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
	for name, test := range map[string]struct {
		parent string // set by the Meter of the caller's node
		came   string // at the holder
	}{
		"traced":     {after, after},
		"not traced": {"", before},
		"hostile":    {strings.Repeat("x", 100_000), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var all []string
			meters := func(at string) ferrule.Meters {
				return func(part string) ferrule.Meter { return recordingMeter{at, part, test.parent, &mu, &all} }
			}
			cfg := clustertest.OneServer(t)
			a := nodeWith(t, "a", cfg, noJournal{}, t.TempDir(), func(p *Parts) { p.Meters = meters("a") })
			b := nodeWith(t, "b", cfg, noJournal{}, t.TempDir(), func(p *Parts) { p.Meters = meters("b") })
			b.serve = func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
				if call.Tool == "move" {
					return nil, ferrule.Errorf(ferrule.Refused, "no")
				}
				return &ferrule.Result{Value: json.RawMessage("1")}, nil
			}
			b.putDevice("robot", "arm", ferrule.StateOnline)
			wait.For(t, "a sees robot", func() bool { return a.seen("robot") != nil })
			for tool, end := range map[string]string{"look": " ends", "move": " ends refused"} {
				all = nil
				call := a.newCall("robot", tool)
				call.Parent = before
				ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
				_, err := a.cluster.call(ctx, call)
				cancel()
				if call.Parent != before {
					t.Errorf("the parent is %q after the call", call.Parent)
				}
				if want := []string{"a node " + before, "b serve " + test.came, "b serve" + end, "a node" + end}; !slices.Equal(all, want) {
					t.Errorf("got %q, %v, want %q", all, err, want)
				}
			}
		})
	}
}

// TestStats checks that running calls are counted at both nodes.
func TestStats(t *testing.T) {
	a, b, _ := pair(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	b.serve = func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		close(begun)
		<-goOn
		return &ferrule.Result{Value: json.RawMessage("1")}, nil
	}
	ended := make(chan error, 1)
	call := a.newCall("robot", "move")
	go func() {
		_, err := a.cluster.call(t.Context(), call)
		ended <- err
	}()
	<-begun
	if here, there := a.cluster.Stats(), b.cluster.Stats(); here.Sending != 1 || here.Serving != 0 || there.Sending != 0 || there.Serving != 1 {
		t.Errorf("a counts %+v, b counts %+v", here, there)
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	wait.For(t, "no call is running", func() bool { return a.cluster.Stats().Sending == 0 && b.cluster.Stats().Serving == 0 })
}
