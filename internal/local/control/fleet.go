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

// news is one line about the fleet.
type news struct {
	// Manifest comes before the first device that has it, and Key is what devices
	// call it by.
	Manifest *ferrule.Manifest `json:"manifest,omitempty"`
	Key      int               `json:"key,omitempty"`
	Device   *ferrule.Device   `json:"device,omitempty"`
	Gone     string            `json:"gone,omitempty"` // an ID
	// Synced tells that all that was there has been told.
	Synced bool `json:"synced,omitempty"`
	// Wishes are all devices that are asked for, and Refused is why one that the
	// caller asks for cannot be had.
	Wishes  []DeviceRequest `json:"wishes,omitempty"`
	Refused string          `json:"refused,omitempty"`
}

// fleet sees to the devices that are asked for, and then tells of all, until the
// caller goes away.
func (s *Server) fleet(w http.ResponseWriter, r *http.Request) {
	var asked []DeviceRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out := newLines(w)
	if err := s.parts.Wishes.Wish(r.Context(), asked); err != nil {
		out.write(reply{News: &news{Refused: err.Error()}})
	}
	q := &queue{pending: make(map[string]*change), wake: make(chan struct{}, 1)}
	stop := s.parts.Fleet.WatchDevices(q)
	defer stop()
	t := teller{out: out, keys: make(map[*ferrule.Manifest]int)}
	var wishes []DeviceRequest
	for synced := false; ; synced = true {
		for _, c := range q.take() {
			t.tell(c)
		}
		if now := s.parts.Wishes.Wishes(); len(now) > len(wishes) {
			wishes = now
			out.write(reply{News: &news{Wishes: wishes}})
		}
		if !synced {
			out.write(reply{News: &news{Synced: true}})
		}
		select {
		case <-q.wake:
		case <-r.Context().Done():
			return
		}
	}
}

// queue is what is to be told. Of a device that changes faster than a reader
// reads, the last word counts.
type queue struct {
	wake chan struct{}

	mu      sync.Mutex
	pending map[string]*change // by ID
	order   []*change
}

// change is the last word about a device.
type change struct {
	id       string
	device   *ferrule.Device // nil if it is gone
	manifest *ferrule.Manifest
}

// Put implements ferrule.Follower.
func (q *queue) Put(dev *ferrule.Device, m *ferrule.Manifest) { q.add(change{dev.ID, dev, m}) }

// Remove implements ferrule.Follower.
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

// take empties the queue.
func (q *queue) take() []*change {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.order
	q.order = nil
	clear(q.pending)
	return all
}

// maxKeys is how many manifests a teller remembers to have told.
const maxKeys = 4096

// teller writes what is new. A manifest that many devices share is told once.
type teller struct {
	out  *lines
	keys map[*ferrule.Manifest]int
	last int
}

func (t *teller) tell(c *change) {
	if c.device == nil {
		t.out.write(reply{News: &news{Gone: c.id}})
		return
	}
	n := &news{Device: c.device}
	if c.manifest != nil {
		key, told := t.keys[c.manifest]
		if !told {
			if len(t.keys) >= maxKeys {
				clear(t.keys)
			}
			t.last++
			key = t.last
			t.keys[c.manifest] = key
			t.out.write(reply{News: &news{Manifest: c.manifest, Key: key}})
		}
		n.Key = key
	}
	t.out.write(reply{News: n})
}

// Visitor is told of the fleet of a gateway.
type Visitor interface {
	ferrule.DeviceWatcher
	// Wished tells what devices are asked for by anybody; they only become more.
	Wished(wishes []DeviceRequest)
	// Refused tells why a device that was asked for cannot be had.
	Refused(reason string)
	// Synced is called once, when all that there was has been told.
	Synced()
}

// Follow asks the gateway for devices, tells a visitor of all that it has, and from
// then on of what changes, until ctx ends or the gateway goes away.
func (c *Client) Follow(ctx context.Context, wishes []DeviceRequest, v Visitor) error {
	body, err := json.Marshal(wishes)
	if err != nil {
		return err
	}
	resp, err := c.ask(ctx, http.MethodPost, "/fleet", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: it does not tell of its devices (%s)", ErrVersion, resp.Status)
	}
	manifests := make(map[int]*ferrule.Manifest)
	for in := json.NewDecoder(resp.Body); ; {
		var r reply
		if err := in.Decode(&r); err != nil {
			return fmt.Errorf("the gateway went away: %w", err)
		}
		n := r.News
		switch {
		case n == nil:
		case n.Manifest != nil:
			if len(manifests) >= maxKeys { // the teller has forgotten them, too
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
			v.Wished(n.Wishes)
		}
	}
}
