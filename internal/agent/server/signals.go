package server

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// latestTool is the gateway's tool that returns the latest samples. Without it, agents
// do not see signals.
const latestTool = "latest"

// signalTemplate is the resource template of signals.
var signalTemplate = &mcp.ResourceTemplate{
	Name: "signal", URITemplate: scheme + "devices/{device}/signals/{signal}", MIMEType: jsonType,
	Description: "The latest measured value of a signal of a device, with its age and uncertainty. It can be subscribed to.",
}

const signalsPart = "/signals/"

// signalURI returns the URI of a signal.
func signalURI(device, signal string) string { return devicesURI + "/" + device + signalsPart + signal }

// signalIn returns the device and the signal in the URI of a signal.
func signalIn(uri string) (device, signal string, ok bool) {
	path, below := strings.CutPrefix(uri, devicesURI+"/")
	device, signal, ok = strings.Cut(path, signalsPart)
	return device, signal, below && ok && ferrule.CheckSignal(signal) == nil
}

// measures reports whether agents see signals.
func (s *Server) measures() bool {
	_, manifest, ok := s.parts.Catalog.Lookup(ferrule.GatewayID)
	return ok && manifest != nil && manifest.Tool(latestTool) != nil
}

// live reports whether agents can subscribe to signals.
func (s *Server) live() bool { return s.measures() && s.notifier.HasSignals() }

// latest is the part of latestTool's result that is used here.
type latest struct {
	Signals []struct {
		Name string `json:"name"`
	} `json:"signals"`
}

// readSignal reads the latest sample of a signal.
func (v *view) readSignal(ctx context.Context, uri, device, signal string) (json.RawMessage, error) {
	if !v.server.measures() || ferrule.CheckSignal(signal) != nil {
		return nil, noResource(uri)
	}
	value, err := v.readTool(ctx, uri, ferrule.GatewayID, latestTool, map[string]any{"device": device, "signal": signal})
	if err != nil {
		return nil, err
	}
	var result latest
	if err := json.Unmarshal(value, &result); err != nil || len(result.Signals) == 0 {
		return nil, noResource(uri) // no such signal
	}
	return value, nil
}

// Limits of asking for the names of signals.
const (
	signalsMaxAge     = 2 * time.Second // names this young are not asked for again
	signalsTimeout    = time.Second     // for all devices of a list together
	signalsParallel   = 8               // devices at the same time
	signalsMaxDevices = 4096
)

// signalNames caches the names of each device's signals, for lists. Signals are known
// from measurements, which the catalog does not see.
type signalNames struct {
	ask func(ctx context.Context, device string) ([]string, error)

	mu    sync.Mutex
	known map[string]knownSignals // by device
}

type knownSignals struct {
	names []string // shared and read-only
	asked time.Time
}

// of returns the signals of a device, as far as they are known.
func (s *signalNames) of(device string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[device].names
}

// update asks for the signals of devices, unless that was done a moment ago, and
// reports whether any has changed. If a device does not answer in time, its names stay.
func (s *signalNames) update(ctx context.Context, devices []string) (changed bool) {
	ctx, cancel := context.WithTimeout(ctx, signalsTimeout)
	defer cancel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, signalsParallel)
	var mu sync.Mutex
	for _, device := range devices {
		if !s.due(device) {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			names, err := s.ask(ctx, device)
			if s.store(device, names, err) {
				mu.Lock()
				changed = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return changed
}

// due reports whether a device must be asked, and records that it is.
func (s *signalNames) due(device string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.known[device]
	if ok && time.Since(known.asked) < signalsMaxAge {
		return false
	}
	if !ok && len(s.known) >= signalsMaxDevices {
		clear(s.known)
	}
	known.asked = time.Now()
	s.known[device] = known
	return true
}

// store records the answer of a device, and reports whether its signals have changed.
func (s *signalNames) store(device string, names []string, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.known[device]
	changed := err == nil && !slices.Equal(known.names, names)
	if changed {
		known.names = names
	}
	known.asked = time.Now()
	s.known[device] = known
	return changed
}

// listPrincipal makes the calls for lists that all agents see.
var listPrincipal = ferrule.Principal{Role: ferrule.Gateway, Name: "lists"}

// askSignals asks the gateway for the signals of a device.
func (s *Server) askSignals(ctx context.Context, device string) ([]string, error) {
	args, err := json.Marshal(map[string]string{"device": device})
	if err != nil {
		return nil, err
	}
	result, err := s.handle(ctx, &ferrule.Call{Principal: listPrincipal, Device: ferrule.GatewayID, Tool: latestTool, Args: args})
	if err != nil {
		return nil, err
	}
	var latest latest
	if err := json.Unmarshal(result.Value, &latest); err != nil {
		return nil, err
	}
	var names []string
	for _, signal := range latest.Signals[:min(len(latest.Signals), ferrule.MaxItems)] {
		if ferrule.CheckSignal(signal.Name) == nil {
			names = append(names, signal.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// updateSignals asks for the signals of devices, and notifies agents if they have
// changed.
func (s *Server) updateSignals(ctx context.Context, devices ...string) {
	if s.measures() && s.signals.update(ctx, devices) {
		s.changed()
	}
}

// listedSignals returns the signals in the list of this view, by device.
func (v *view) listedSignals(see catalog.View) map[string][]string {
	if !v.server.measures() {
		return nil
	}
	left := listedItems
	listed := make(map[string][]string)
	for _, dev := range v.devices(see) {
		names := v.server.signals.of(dev.ID)
		names = names[:min(len(names), left)]
		listed[dev.ID], left = names, left-len(names)
	}
	return listed
}
