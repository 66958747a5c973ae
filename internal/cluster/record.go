package cluster

import (
	"encoding/json"
	"fmt"
	"time"
	"unique"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// record is a device as the registry keeps it: small, because a server has all of
// them in memory. What the device says of itself is kept once a Kind.
type record struct {
	Address   string            `json:"address"`
	Local     bool              `json:"local,omitempty"`
	Transport string            `json:"transport,omitempty"`
	Protocol  string            `json:"protocol,omitempty"`
	Node      string            `json:"node"`
	Epoch     uint64            `json:"epoch"`
	Kind      ferrule.Kind      `json:"kind"`
	State     ferrule.State     `json:"state"`
	Since     int64             `json:"since"` // milliseconds
	Reason    string            `json:"reason,omitempty"`
	Pending   bool              `json:"pending,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	// Restarted and Changed are in milliseconds, too; 0 is never.
	Restarted int64        `json:"restarted,omitempty"`
	Changed   int64        `json:"changed,omitempty"`
	Previous  ferrule.Kind `json:"previous,omitempty"`
}

// The bounds of a record: of others' bytes nothing is taken on trust.
const (
	maxRecord = 16 << 10
	maxReason = 200
	maxMillis = 253_402_300_799_999 // the last moment of the year 9999: what is later cannot be written as JSON
)

func recordOf(dev *ferrule.Device, epoch uint64) record {
	return record{
		Address: dev.Address, Local: dev.Local, Transport: dev.Transport, Protocol: dev.Protocol, Node: dev.Node, Epoch: epoch, Kind: dev.Kind,
		State: dev.State, Since: millis(dev.Since), Reason: ferrule.Clean(dev.Reason, maxReason),
		Pending: dev.Trust == ferrule.TrustPending, Labels: dev.Labels,
		Restarted: millis(dev.Restarted), Changed: millis(dev.Changed), Previous: dev.Previous,
	}
}

// device is what a record tells of the device with an ID; model and version are
// its manifest's to tell.
func (r *record) device(id string) *ferrule.Device {
	dev := &ferrule.Device{
		ID: id, Address: r.Address, Local: r.Local, Transport: r.Transport, Protocol: r.Protocol, Node: r.Node, Epoch: r.Epoch, Kind: r.Kind,
		State: r.State, Since: moment(r.Since), Reason: r.Reason, Trust: ferrule.TrustAdopted, Labels: r.Labels,
		Restarted: moment(r.Restarted), Changed: moment(r.Changed), Previous: r.Previous,
	}
	if r.Pending {
		dev.Trust = ferrule.TrustPending
	}
	return dev
}

// interned is a word of which there is one in memory, however many records have it.
func interned[S ~string](s S) S { return unique.Make(s).Value() }

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// parseRecord reads a record, and refuses what no node writes.
func parseRecord(data []byte) (*record, error) {
	if len(data) > maxRecord {
		return nil, fmt.Errorf("a record of %d bytes", len(data))
	}
	r := &record{}
	if !r.scan(data) {
		*r = record{}
		if err := json.Unmarshal(data, r); err != nil {
			return nil, err
		}
	}
	switch r.State {
	case ferrule.StateOnline, ferrule.StateOffline, ferrule.StateReleased:
	default:
		return nil, fmt.Errorf("state %q", r.State)
	}
	for _, ms := range []int64{r.Since, r.Restarted, r.Changed} {
		if ms < 0 || ms > maxMillis {
			return nil, fmt.Errorf("a time of %d", ms)
		}
	}
	if err := ferrule.CheckID(r.Node); err != nil {
		return nil, err
	}
	if r.Kind == "" || len(r.Kind) > 2*32 {
		return nil, fmt.Errorf("kind %q", ferrule.Clean(string(r.Kind), ferrule.MaxWord))
	}
	r.Kind, r.Previous = interned(r.Kind), interned(r.Previous)
	r.Node, r.Transport, r.Protocol = interned(r.Node), interned(ferrule.Clean(r.Transport, ferrule.MaxWord)), interned(ferrule.Clean(r.Protocol, ferrule.MaxWord))
	r.Address = ferrule.Clean(r.Address, ferrule.MaxText)
	r.Reason = ferrule.Clean(r.Reason, maxReason)
	return r, nil
}
