// Package meter is the control socket of a gateway with one device whose measurements a
// test makes up.
package meter

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/fleet"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// Meter sends readings to its subscribers.
type Meter struct {
	mu          sync.Mutex
	subscribers map[*func(ferrule.Reading)]string // device by callback
}

// Samples implements server.Sampler and control.Sampler. Like the cluster's, stop waits
// for a callback that is running.
func (m *Meter) Samples(device, _ string, fn func(ferrule.Reading)) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.subscribers == nil {
		m.subscribers = make(map[*func(ferrule.Reading)]string)
	}
	m.subscribers[&fn] = device
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.subscribers, &fn)
	}
}

// Measure sends a reading and returns the number of subscribers of its device.
func (m *Meter) Measure(r ferrule.Reading) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for fn, device := range m.subscribers {
		if device == r.Device {
			(*fn)(r)
			n++
		}
	}
	return n
}

// Subscribers returns the number of subscribers of all devices.
func (m *Meter) Subscribers() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.subscribers)
}

// Reading returns samples of a signal, a second apart, up to now.
func Reading(device, signal string, values ...float64) ferrule.Reading {
	s := ferrule.SampleBatch{Signal: signal, Unit: "°C"}
	now := time.Now()
	for i, v := range values {
		s.Samples = append(s.Samples, ferrule.Sample{Time: now.Add(time.Duration(i+1-len(values)) * time.Second), Value: v})
	}
	return ferrule.Reading{Device: device, Node: "north", Poll: "a0", Time: now, Batches: []ferrule.SampleBatch{s}}
}

type signal struct {
	Name  string    `json:"name"`
	Value float64   `json:"value"`
	Unit  string    `json:"unit"`
	Time  time.Time `json:"time"`
}

// latest returns a tool like the gateway's: every device has one signal, measured an hour
// ago.
func latest() builtin.Tool {
	type input struct {
		Device string `json:"device"`
		Signal string `json:"signal,omitempty"`
	}
	type output struct {
		Signals []signal `json:"signals"`
	}
	return builtin.Typed("latest", "Returns the latest value of each signal.", ferrule.Reads, func(_ context.Context, _ *ferrule.Call, in input) (output, error) {
		if in.Signal != "" && in.Signal != "heat" {
			return output{}, ferrule.Errorf(ferrule.NotFound, "unknown signal %s", in.Signal)
		}
		return output{[]signal{{"heat", 21.5, "°C", time.Now().Add(-time.Hour)}}}, nil
	})
}

// noEvents is a control.Watcher without events.
type noEvents struct{}

func (noEvents) Watch(string, func(ferrule.Event)) (stop func(), err error) { return func() {}, nil }

// noRequests is a control.DeviceRequests that ignores requests.
type noRequests struct{}

func (noRequests) Add(context.Context, []control.DeviceRequest) error { return nil }
func (noRequests) All() []control.DeviceRequest                       { return nil }

// Serve serves the control socket of a data directory, with a device called robot whose
// readings m sends. It ends with the test, or by stop.
func Serve(t *testing.T, data string, m *Meter) (stop func()) {
	t.Helper()
	tools, err := builtin.New("1", latest())
	if err != nil {
		t.Fatal(err)
	}
	devices := fleet.New(func(string) (fleet.Record, bool) { return fleet.Record{}, false })
	devices.PutBuiltin(tools.Device(), tools.Manifest(), tools.Handle)
	robot := &ferrule.Device{ID: "robot", Kind: "k", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}
	devices.Put(robot, &ferrule.Manifest{}, func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		return nil, ferrule.Errorf(ferrule.Refused, "it has no tools")
	})
	socket, err := control.SocketPath(data)
	if err != nil {
		t.Fatal(err)
	}
	server, err := control.Listen(socket, control.Parts{
		Handle: tools.Handle, Watcher: noEvents{}, Samples: m, Fleet: devices, DeviceRequests: noRequests{}, Log: slog.New(slog.DiscardHandler),
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
			t.Errorf("control socket: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
