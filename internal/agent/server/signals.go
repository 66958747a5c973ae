package server

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// latestTool is the tool of the gateway that tells what was last measured. Where it has
// none, nothing is offered of what devices measure.
const latestTool = "latest"

// signalTemplate is what a device measures.
var signalTemplate = &mcp.ResourceTemplate{
	Name: "signal", URITemplate: scheme + "devices/{device}/signals/{signal}", MIMEType: jsonType,
	Description: "What was last measured of a signal of a device, when, and how sure that is. It can be subscribed to.",
}

const signalsPart = "/signals/"

// signalURI is the resource that tells what was last measured of a signal.
func signalURI(device, signal string) string { return devicesURI + "/" + device + signalsPart + signal }

// signalIn is the device and the signal in such a URI.
func signalIn(uri string) (device, signal string, ok bool) {
	path, below := strings.CutPrefix(uri, devicesURI+"/")
	device, signal, ok = strings.Cut(path, signalsPart)
	return device, signal, below && ok && ferrule.CheckSignal(signal) == nil
}

// measures tells whether it is known what devices measure.
func (f *Server) measures() bool {
	_, manifest, ok := f.parts.Catalog.Lookup(ferrule.GatewayID)
	return ok && manifest != nil && manifest.Tool(latestTool) != nil
}

// live tells whether agents can subscribe to what devices measure.
func (f *Server) live() bool { return f.measures() && f.ears.possible() }

// latest is what the tool answers, as far as it is read here.
type latest struct {
	Signals []struct {
		Name string `json:"name"`
	} `json:"signals"`
}

// readSignal is what was last measured of a signal.
func (v *view) readSignal(ctx context.Context, uri, device, signal string) (json.RawMessage, error) {
	if !v.front.measures() || ferrule.CheckSignal(signal) != nil {
		return nil, noResource(uri)
	}
	value, err := v.ask(ctx, uri, ferrule.GatewayID, latestTool, map[string]any{"device": device, "signal": signal})
	if err != nil {
		return nil, err
	}
	var told latest
	if err := json.Unmarshal(value, &told); err != nil || len(told.Signals) == 0 {
		return nil, noResource(uri) // nothing was measured under that name
	}
	return value, nil
}

// The bounds of asking which signals there are.
const (
	signalsKept  = 2 * time.Second // what is known is not asked again so soon
	signalsTime  = time.Second     // for all devices of a list together
	signalsAsked = 8               // devices at once
	maxKnown     = 4096            // devices
)

// signals is which signals devices have, as far as that was asked for lists. They come
// with what is measured, of which the catalog is not told.
type signals struct {
	ask func(ctx context.Context, device string) ([]string, error)

	mu    sync.Mutex
	known map[string]known // by device
}

type known struct {
	names []string // shared, and read only
	asked time.Time
}

// of is the signals of a device, as far as they are known.
func (s *signals) of(device string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[device].names
}

// learn asks which signals devices have, unless that was done a moment ago, and tells
// whether any has others than were known. What cannot be had in time stays as it was.
func (s *signals) learn(ctx context.Context, devices []string) (changed bool) {
	ctx, cancel := context.WithTimeout(ctx, signalsTime)
	defer cancel()
	var wg sync.WaitGroup
	free := make(chan struct{}, signalsAsked)
	var mu sync.Mutex
	for _, device := range devices {
		if !s.due(device) {
			continue
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			names, err := s.ask(ctx, device)
			if s.note(device, names, err) {
				mu.Lock()
				changed = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return changed
}

// due tells whether a device is to be asked for; from then on it is not.
func (s *signals) due(device string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, there := s.known[device]
	if there && time.Since(one.asked) < signalsKept {
		return false
	}
	if !there && len(s.known) >= maxKnown {
		clear(s.known)
	}
	one.asked = time.Now()
	s.known[device] = one
	return true
}

// note keeps the signals of a device, if they could be had, and tells whether they are
// others.
func (s *signals) note(device string, names []string, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.known[device]
	changed := err == nil && !slices.Equal(one.names, names)
	if changed {
		one.names = names
	}
	one.asked = time.Now()
	s.known[device] = one
	return changed
}

// forLists is who asks for what every agent sees.
var forLists = ferrule.Principal{Role: ferrule.Gateway, Name: "lists"}

// askSignals asks the gateway which signals a device has.
func (f *Server) askSignals(ctx context.Context, device string) ([]string, error) {
	args, err := json.Marshal(map[string]string{"device": device})
	if err != nil {
		return nil, err
	}
	result, err := f.handle(ctx, &ferrule.Call{Principal: forLists, Device: ferrule.GatewayID, Tool: latestTool, Args: args})
	if err != nil {
		return nil, err
	}
	var told latest
	if err := json.Unmarshal(result.Value, &told); err != nil {
		return nil, err
	}
	var names []string
	for _, s := range told.Signals[:min(len(told.Signals), ferrule.MaxItems)] {
		if ferrule.CheckSignal(s.Name) == nil {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// learn asks which signals devices have. Where they are others than before, agents are
// told so.
func (f *Server) learn(ctx context.Context, devices ...string) {
	if f.measures() && f.signals.learn(ctx, devices) {
		f.tell()
	}
}

// listedSignals are those that stand in the list here, by device.
func (v *view) listedSignals() map[string][]string {
	if !v.front.measures() {
		return nil
	}
	left := listedItems
	listed := make(map[string][]string)
	for _, dev := range v.devices() {
		names := v.front.signals.of(dev.ID)
		names = names[:min(len(names), left)]
		listed[dev.ID], left = names, left-len(names)
	}
	return listed
}
