package streams

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Measured queues a reading of an own device to be stored, and passes it to listeners. It
// does not block. It reports false if too many are waiting; then no listener gets it.
func (s *Streams) Measured(r ferrule.Reading) bool {
	r.Node = s.cfg.Node
	data, err := encodeReading(&r)
	if err == nil {
		err = checkPayload(s.engine.Load(), len(data))
	}
	if err != nil {
		s.rejectReading(r.Device, err)
		return false
	}
	if !s.carrier.backlog.add(s.names.Sample(r.Device, r.Poll, s.leaf()), data) {
		return false
	}
	s.samples.pass(r)
	return true
}

// rejectReading logs the first reading that can never be stored.
func (s *Streams) rejectReading(of string, err error) {
	s.tooLong.Do(func() {
		s.options.Log.Error("cluster: reading of "+of+" cannot be stored, others may follow", "err", err)
	})
}

// maxReading is the maximum size of a reading in bytes. All valid ones are shorter.
const maxReading = 1<<20 - 8<<10

// checkPayload returns an error if the servers do not accept a reading of this length. It
// returns nil while that is unknown.
func checkPayload(e *engine.Engine, length int) error {
	if e == nil {
		return nil
	}
	const headers = 1 << 10 // more than enough
	if limit := int(e.Conn.MaxPayload()); limit > 0 && length+headers > limit {
		return fmt.Errorf("reading has %d bytes, limit of a NATS message is %d; raise max_payload on the servers", length, limit)
	}
	return nil
}

func encodeReading(r *ferrule.Reading) ([]byte, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(r)
	if err == nil && len(data) > maxReading {
		err = fmt.Errorf("reading has %d bytes, limit is %d", len(data), maxReading)
	}
	return data, err
}

// parseReading parses a reading of a node, and rejects what no node sends.
func parseReading(n engine.Names, subject string, data []byte) (r ferrule.Reading, err error) {
	if len(data) > maxReading {
		return r, fmt.Errorf("reading has %d bytes, limit is %d", len(data), maxReading)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, err
	}
	if err := r.Check(); err != nil {
		return r, err
	}
	sender := engine.Names{Tenant: n.Tenant, Node: r.Node}
	if subject != sender.Sample(r.Device, r.Poll, false) && subject != sender.Sample(r.Device, r.Poll, true) {
		return r, fmt.Errorf("reading of %s has subject %q", r.Device, subject)
	}
	return r, nil
}

// readingID returns the ID of a reading: the name of its backlog, and its number in it.
// It is empty if no node wrote the message.
func readingID(h nats.Header) (at mark) {
	id := h.Get(jetstream.MsgIDHeader)
	cut := strings.LastIndexByte(id, '-')
	if cut < 0 || ferrule.CheckSignal(id[:cut]) != nil {
		return mark{}
	}
	n, err := strconv.ParseUint(id[cut+1:], 10, 64)
	if err != nil {
		return mark{}
	}
	return mark{id[:cut], n}
}
