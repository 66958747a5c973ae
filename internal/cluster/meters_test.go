package cluster

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// heard is a Meter that writes down what calls are a part of, and puts another Parent
// into those that leave.
type heard struct {
	at, part, parent string
	mu               *sync.Mutex
	all              *[]string
}

func (h heard) Begin(ctx context.Context, call *ferrule.Call) (context.Context, ferrule.Span) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*h.all = append(*h.all, h.at+" "+h.part+" "+call.Parent)
	if h.part == ferrule.PartNode && h.parent != "" {
		call.Parent = h.parent
	}
	return ctx, ferrule.Span{}
}

func (h heard) End(_ ferrule.Span, _ *ferrule.Call, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	line := h.at + " " + h.part + " ends"
	if err != nil {
		line += " " + string(ferrule.AsError(err).Code)
	}
	*h.all = append(*h.all, line)
}

// TestMeters: calls to another node are measured here and there, and go on there with the
// span of here. What is no span is not taken for one.
func TestMeters(t *testing.T) {
	const before, after = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
	for name, test := range map[string]struct {
		parent string // that the Meter of the caller's node puts there
		came   string // what comes of it
	}{
		"followed":     {after, after},
		"not followed": {"", before},
		"hostile":      {strings.Repeat("x", 100_000), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var all []string
			meters := func(at string) ferrule.Meters {
				return func(part string) ferrule.Meter { return heard{at, part, test.parent, &mu, &all} }
			}
			cfg := oneServer(t)
			a := nodeWith(t, "a", cfg, noJournal{}, t.TempDir(), func(p *Parts) { p.Meters = meters("a") })
			b := nodeWith(t, "b", cfg, noJournal{}, t.TempDir(), func(p *Parts) { p.Meters = meters("b") })
			b.serve = func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
				if call.Tool == "move" {
					return nil, ferrule.Errorf(ferrule.Refused, "no")
				}
				return &ferrule.Result{Value: json.RawMessage("1")}, nil
			}
			b.has("robot", "arm", ferrule.StateOnline)
			eventually(t, 10*time.Second, "a sees robot", func() bool { return a.sees("robot") != nil })
			for tool, end := range map[string]string{"look": " ends", "move": " ends refused"} {
				all = nil
				call := a.call("robot", tool)
				call.Parent = before
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				_, err := a.bus.call(ctx, call)
				cancel()
				if call.Parent != before {
					t.Errorf("the call is a part of %q afterwards", call.Parent)
				}
				if want := []string{"a node " + before, "b serve " + test.came, "b serve" + end, "a node" + end}; !slices.Equal(all, want) {
					t.Errorf("got %q, %v, want %q", all, err, want)
				}
			}
		})
	}
}

// TestStats: calls that are under way are counted at both ends, and so is what was lost.
func TestStats(t *testing.T) {
	a, b, _ := pair(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	b.serve = func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		close(begun)
		<-goOn
		return &ferrule.Result{Value: json.RawMessage("1")}, nil
	}
	ended := make(chan error, 1)
	call := a.call("robot", "move")
	go func() {
		_, err := a.bus.call(t.Context(), call)
		ended <- err
	}()
	<-begun
	if here, there := a.bus.Stats(), b.bus.Stats(); here.Sending != 1 || here.Serving != 0 || there.Sending != 0 || there.Serving != 1 {
		t.Errorf("a counts %+v, b counts %+v", here, there)
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "nothing is under way", func() bool { return a.bus.Stats().Sending == 0 && b.bus.Stats().Serving == 0 })
}

// TestLostIsCounted: what a spool has lost is counted, whoever was told of it.
func TestLostIsCounted(t *testing.T) {
	s := newSpool("one")
	s.add(ferrule.Event{Type: ferrule.Appeared})
	s.lose()
	s.lose()
	if waiting, lost := s.count(); waiting != 1 || lost != 2 {
		t.Errorf("%d wait, %d are lost", waiting, lost)
	}
	if n := s.dropped(); n != 2 {
		t.Errorf("told of %d", n)
	}
	s.lose()
	if _, lost := s.count(); lost != 3 {
		t.Errorf("%d are lost", lost)
	}
}
