package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/fleet"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// meter is where a test measures.
type meter struct {
	mu    sync.Mutex
	heard map[*func(ferrule.Reading)]string // the device, by who listens to it
}

// Samples implements agent.Sampler and control.Sampler. As with the bus, stop waits for
// who is being told.
func (m *meter) Samples(device, _ string, fn func(ferrule.Reading)) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.heard == nil {
		m.heard = make(map[*func(ferrule.Reading)]string)
	}
	m.heard[&fn] = device
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.heard, &fn)
	}
}

// measure tells those who listen to a device, and how many these are.
func (m *meter) measure(r ferrule.Reading) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for fn, device := range m.heard {
		if device == r.Device {
			(*fn)(r)
			n++
		}
	}
	return n
}

// aReading is one with so many samples of a signal, a second apart, up to now.
func aReading(device, signal string, values ...float64) ferrule.Reading {
	s := ferrule.SampleBatch{Signal: signal, Unit: "°C"}
	now := time.Now()
	for i, v := range values {
		s.Samples = append(s.Samples, ferrule.Sample{Time: now.Add(time.Duration(i+1-len(values)) * time.Second), Value: v})
	}
	return ferrule.Reading{Device: device, Node: "north", Poll: "a0", Time: now, Batches: []ferrule.SampleBatch{s}}
}

// TestRelay: what is listened to at one gateway is listened to at the next, and at none
// in the end.
func TestRelay(t *testing.T) {
	var r relay
	var first, second meter
	got := make(map[string]int)
	listen := func(device string) (stop func()) {
		return r.Samples(device, "", func(ferrule.Reading) { got[device]++ })
	}
	stopRobot := listen("robot")
	r.use(&first)
	stopLamp := listen("lamp")
	if first.measure(aReading("robot", "heat", 1)) != 1 || first.measure(aReading("lamp", "heat", 1)) != 1 {
		t.Error("the first is not listened to")
	}
	r.use(&second)
	if len(first.heard) != 0 || second.measure(aReading("robot", "heat", 1)) != 1 || second.measure(aReading("lamp", "heat", 1)) != 1 {
		t.Errorf("the first is listened to by %d, and the second by %d", len(first.heard), len(second.heard))
	}
	stopLamp()
	r.use(nil)
	if len(second.heard) != 0 {
		t.Error("one that has gone is listened to")
	}
	r.use(&first)
	if len(first.heard) != 1 || first.measure(aReading("robot", "heat", 1)) != 1 {
		t.Errorf("the first is listened to by %d", len(first.heard))
	}
	stopRobot()
	if len(first.heard) != 0 || len(r.all) != 0 || got["robot"] != 3 || got["lamp"] != 2 {
		t.Errorf("heard %v, and %d listen", got, len(first.heard))
	}
}

// measuredSignal is what a tool of the test tells of a signal.
type measuredSignal struct {
	Name  string    `json:"name"`
	Value float64   `json:"value"`
	Unit  string    `json:"unit"`
	Time  time.Time `json:"time"`
}

// latestOf is a tool like the gateway's: it tells of one signal of every device, which was
// measured an hour ago.
func latestOf() builtin.Tool {
	type input struct {
		Device string `json:"device"`
		Signal string `json:"signal,omitempty"`
	}
	type output struct {
		Signals []measuredSignal `json:"signals"`
	}
	return builtin.Typed("latest", "Tell what was last measured.", ferrule.Reads, func(_ context.Context, _ *ferrule.Call, in input) (output, error) {
		if in.Signal != "" && in.Signal != "heat" {
			return output{}, ferrule.Errorf(ferrule.NotFound, "nothing is called %s", in.Signal)
		}
		return output{[]measuredSignal{{"heat", 21.5, "°C", time.Now().Add(-time.Hour)}}}, nil
	})
}

// watchers is a gateway to which nothing happens.
type watchers struct{}

func (watchers) Watch(string, func(ferrule.Event)) (stop func(), err error) { return func() {}, nil }

// wishless is a gateway that is asked for nothing.
type wishless struct{}

func (wishless) Add(context.Context, []control.DeviceRequest) error { return nil }
func (wishless) All() []control.DeviceRequest                       { return nil }

// measuringAt runs the local end of a gateway whose devices measure when the test says
// so, in a data directory. It ends with the test, or by stop.
func measuringAt(t *testing.T, data string, m *meter) (stop func()) {
	t.Helper()
	box, err := builtin.New("1", latestOf())
	if err != nil {
		t.Fatal(err)
	}
	devices := fleet.New(func(string) (fleet.Record, bool) { return fleet.Record{}, false })
	devices.PutBuiltin(box.Device(), box.Manifest(), box.Handle)
	dev, manifest := robot()
	devices.Put(dev, manifest, func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		return nil, ferrule.Errorf(ferrule.Refused, "it only measures")
	})
	socket, err := control.SocketPath(data)
	if err != nil {
		t.Fatal(err)
	}
	server, err := control.Listen(socket, control.Parts{
		Handle: box.Handle, Watcher: watchers{}, Samples: m, Fleet: devices, DeviceRequests: wishless{}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the gateway: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// TestJoinedSignals: an agent of a process that has joined a gateway reads what devices
// measure there and subscribes to it, in each era, and goes on hearing of it when the
// gateway has changed hands. Nobody listens when it has gone.
func TestJoinedSignals(t *testing.T) {
	const heat = "ferrule://devices/robot/signals/heat"
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			var m meter
			a := &app{data: t.TempDir()}
			stop := measuringAt(t, a.data, &m)
			cfg := config.Default()
			cfg.Listen = ""
			log := slog.New(slog.NewTextHandler(t.Output(), nil))
			d := newDesk(cfg, log)
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() {
				ended <- runParts(ctx, d.front.Run, func(ctx context.Context) error {
					for ctx.Err() == nil {
						if err := a.join(ctx, d, cfg, log); err != nil {
							return err
						}
						time.Sleep(10 * time.Millisecond)
					}
					return nil
				})
			}()
			t.Cleanup(func() {
				cancel()
				if err := <-ended; err != nil {
					t.Errorf("the desk: %v", err)
				}
			})
			agent := pipeTo(t, d.front, era)
			eventually(t, ample, "the signal is listed", func() bool { return slices.Contains(agent.uris(), heat) })
			got, err := agent.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: heat})
			if err != nil || !strings.HasPrefix(got.Contents[0].Text, `{"signals":[{"name":"heat","value":21.5,"unit":"°C","time":"`) {
				t.Errorf("%+v, %v", got, err)
			}
			if err := agent.Subscribe(t.Context(), &mcp.SubscribeParams{URI: heat}); err != nil {
				t.Fatal(err)
			}
			told := func(why string) {
				t.Helper()
				for end := time.Now().Add(ample); ; {
					m.measure(aReading("robot", "heat", 21.5))
					select {
					case uri := <-agent.updates:
						if uri != heat {
							t.Errorf("told of %s", uri)
						}
						return
					case <-time.After(20 * time.Millisecond):
					}
					if time.Now().After(end) {
						t.Fatalf("%s: the agent is told nothing", why)
					}
				}
			}
			told("a gateway was joined")
			stop()
			if n := m.measure(aReading("robot", "heat", 21.5)); n != 0 {
				t.Errorf("%d listen to a gateway that has gone", n)
			}
			measuringAt(t, a.data, &m)
			eventually(t, ample, "the next gateway is listened to", func() bool { return m.measure(aReading("robot", "heat", 21.5)) == 1 })
			told("the gateway has changed hands")
			if err := agent.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: heat}); err != nil {
				t.Fatal(err)
			}
			eventually(t, ample, "nobody listens", func() bool { return m.measure(aReading("robot", "heat", 21.5)) == 0 })
		})
	}
}
