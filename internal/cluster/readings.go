package cluster

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Measured takes in what asking an own device has brought, to be kept, and tells those
// who listen. It does not block; it is false if too much waits to be kept already, and
// then nobody has heard of it.
func (b *Cluster) Measured(r ferrule.Reading) bool {
	r.Node = b.cfg.Node
	data, err := encodeReading(&r)
	if err == nil {
		err = b.engine.Load().takes(len(data))
	}
	if err != nil {
		b.notFit(r.Device, err)
		return false
	}
	if !b.carrier.backlog.add(b.names.sample(r.Device, r.Poll, b.cfg.Mode == Leaf), data) {
		return false
	}
	b.tuner.tell(r)
	return true
}

// notFit tells once of a reading that can never be kept.
func (b *Cluster) notFit(of string, err error) {
	b.unfit.Do(func() { b.parts.Log.Error("bus: a reading of "+of+" cannot be kept, and perhaps others", "err", err) })
}

// maxReading is the longest reading in bytes. All that is well is shorter.
const maxReading = 1<<20 - 8<<10

// takes tells whether servers take a reading that is so long; nil if they do, or cannot be
// asked.
func (e *engine) takes(length int) error {
	if e == nil {
		return nil
	}
	const head = 1 << 10 // with room to spare
	if most := int(e.conn.MaxPayload()); most > 0 && length+head > most {
		return fmt.Errorf("a reading of %d bytes; NATS takes no message of more than %d, and max_payload of its servers allows more", length, most)
	}
	return nil
}

func encodeReading(r *ferrule.Reading) ([]byte, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(r)
	if err == nil && len(data) > maxReading {
		err = fmt.Errorf("a reading of %d bytes", len(data))
	}
	return data, err
}

// parseReading reads a reading as a node has sent it, and refuses what no node sends.
func (n names) parseReading(subject string, data []byte) (r ferrule.Reading, err error) {
	if len(data) > maxReading {
		return r, fmt.Errorf("a reading of %d bytes", len(data))
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, err
	}
	if err := r.Check(); err != nil {
		return r, err
	}
	of := names{n.tenant, r.Node}
	if subject != of.sample(r.Device, r.Poll, false) && subject != of.sample(r.Device, r.Poll, true) {
		return r, fmt.Errorf("a reading of %s is sent as %q", r.Device, subject)
	}
	return r, nil
}

// idOf is what a reading is known by: which backlog it was in, and its number there.
func idOf(h nats.Header) (at mark) {
	id := h.Get(jetstream.MsgIDHeader)
	cut := strings.LastIndexByte(id, '-')
	if cut < 0 || ferrule.CheckSignal(id[:cut]) != nil {
		return mark{} // it is no node's
	}
	n, err := strconv.ParseUint(id[cut+1:], 10, 64)
	if err != nil {
		return mark{}
	}
	return mark{id[:cut], n}
}
