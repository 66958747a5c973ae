package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// fleetUpdate is one line about the fleet. One kind of field is set.
type fleetUpdate struct {
	// Manifest is sent once, before the first device that has it. Devices refer to it
	// by Key.
	Manifest *ferrule.Manifest `json:"manifest,omitempty"`
	Key      int               `json:"key,omitempty"`
	Device   *ferrule.Device   `json:"device,omitempty"`
	Gone     string            `json:"gone,omitempty"` // ID of a removed device
	// Synced ends the list of the devices that exist already.
	Synced bool `json:"synced,omitempty"`
	// Requests are all requested devices. Refused is why a device that this caller
	// requested was not accepted.
	Requests []DeviceRequest `json:"requests,omitempty"`
	Refused  string          `json:"refused,omitempty"`
}

// fleetRequest is the body of a request for the fleet.
type fleetRequest struct {
	Requests []DeviceRequest `json:"requests"`
	// Agent is who will see the devices; nil if it is not known yet. Then no device is sent.
	Agent *ferrule.Client `json:"agent"`
	// Session, if it is set, is that of calls whose caller is gone when the request ends.
	Session string `json:"session"`
}

// fleet requests the devices of the caller, then writes the devices that its agent is
// shown, and their changes, until the caller disconnects.
func (s *Server) fleet(w http.ResponseWriter, r *http.Request) {
	var req fleetRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if req.Session != "" && s.parts.SessionEnded != nil {
		defer s.parts.SessionEnded(req.Session)
	}
	if req.Agent != nil {
		client := req.Agent.Bounded()
		defer s.agents.begin(req.Session, principal(r.Context(), &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent}, Client: client}), client)()
	}
	out := newLines(w)
	if err := s.parts.DeviceRequests.Add(r.Context(), req.Requests); err != nil {
		out.write(reply{Fleet: &fleetUpdate{Refused: err.Error()}})
	}
	q := &queue{pending: make(map[string]*change), wake: make(chan struct{}, 1)}
	changed, stop := s.watchFor(req.Agent, q)
	defer func() { stop() }()
	t := fleetWriter{out: out, sent: make(map[*ferrule.Manifest]int), shown: shownManifests{made: make(map[shownKey]*ferrule.Manifest)}}
	var requests []DeviceRequest
	for synced := false; ; synced = true {
		if req.Agent != nil {
			t.seen = s.seenBy(r.Context(), *req.Agent)
		}
		for _, c := range q.take() {
			t.write(c)
		}
		if now := s.parts.DeviceRequests.All(); len(now) > len(requests) {
			requests = now
			out.write(reply{Fleet: &fleetUpdate{Requests: requests}})
		}
		if !synced {
			out.write(reply{Fleet: &fleetUpdate{Synced: true}})
		}
		select {
		case <-q.wake:
		case <-changed: // all devices, as they are shown now
			before := stop
			changed, stop = s.watchFor(req.Agent, q)
			before()
		case <-r.Context().Done():
			return
		}
	}
}

// queue holds changes to write. It keeps only the last change of each device, so a
// slow reader cannot make it grow.
type queue struct {
	wake chan struct{}

	mu      sync.Mutex
	pending map[string]*change // by ID
	order   []*change
}

// change is the last change of a device.
type change struct {
	id       string
	device   *ferrule.Device // nil if it was removed
	manifest *ferrule.Manifest
}

// Put implements ferrule.DeviceWatcher.
func (q *queue) Put(dev *ferrule.Device, m *ferrule.Manifest) { q.add(change{dev.ID, dev, m}) }

// Remove implements ferrule.DeviceWatcher.
func (q *queue) Remove(id string) { q.add(change{id: id}) }

func (q *queue) add(c change) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if waiting := q.pending[c.id]; waiting != nil {
		*waiting = c
	} else {
		q.pending[c.id] = &c
		q.order = append(q.order, &c)
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take empties the queue and returns its changes in order.
func (q *queue) take() []*change {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.order
	q.order = nil
	clear(q.pending)
	return all
}

// maxManifests is how many sent manifests both ends remember. When there are more,
// both ends forget all of them.
const maxManifests = 4096

// fleetWriter writes changes, as an agent sees them. It sends a manifest that many devices
// share once.
type fleetWriter struct {
	out   *lines
	seen  ferrule.Visibility
	shown shownManifests
	sent  map[*ferrule.Manifest]int
	last  int
}

func (t *fleetWriter) write(c *change) {
	if c.device == nil || c.id != ferrule.GatewayID && !t.seen.Device(c.device, c.manifest) {
		t.out.write(reply{Fleet: &fleetUpdate{Gone: c.id}})
		return
	}
	n := &fleetUpdate{Device: c.device}
	if c.manifest != nil {
		manifest := t.shown.of(c.device, c.manifest, t.seen)
		key, known := t.sent[manifest]
		if !known {
			if len(t.sent) >= maxManifests {
				clear(t.sent)
			}
			t.last++
			key = t.last
			t.sent[manifest] = key
			t.out.write(reply{Fleet: &fleetUpdate{Manifest: manifest, Key: key}})
		}
		n.Key = key
	}
	t.out.write(reply{Fleet: n})
}

// FleetWatcher receives the devices of a gateway and their changes.
type FleetWatcher interface {
	ferrule.DeviceWatcher
	// Requested is called with all requested devices whenever one was added.
	Requested(requests []DeviceRequest)
	// Refused is called with the reason if a requested device was not accepted.
	Refused(reason string)
	// Synced is called once, after all existing devices were reported.
	Synced()
}

// WatchFleet requests devices, reports the devices of the gateway to v as an agent sees
// them, and then every change, until ctx ends or the connection is lost. If agent is nil,
// no devices are reported. The session, if it is not empty, is the Session of calls whose
// caller is gone then. It never returns nil.
func (c *Client) WatchFleet(ctx context.Context, requests []DeviceRequest, agent *ferrule.Client, session string, v FleetWatcher) error {
	body, err := json.Marshal(fleetRequest{requests, agent, session})
	if err != nil {
		return err
	}
	resp, err := c.send(ctx, http.MethodPost, "/fleet", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: it does not list its devices (%s)", ErrVersion, resp.Status)
	}
	manifests := make(map[int]*ferrule.Manifest)
	for in := json.NewDecoder(resp.Body); ; {
		var r reply
		if err := in.Decode(&r); err != nil {
			return fmt.Errorf("connection to the gateway lost: %w", err)
		}
		n := r.Fleet
		switch {
		case n == nil:
		case n.Manifest != nil:
			if len(manifests) >= maxManifests { // the server has cleared its list, too
				clear(manifests)
			}
			manifests[n.Key] = n.Manifest
		case n.Device != nil:
			v.Put(n.Device, manifests[n.Key])
		case n.Gone != "":
			v.Remove(n.Gone)
		case n.Synced:
			v.Synced()
		case n.Refused != "":
			v.Refused(n.Refused)
		default:
			v.Requested(n.Requests)
		}
	}
}
