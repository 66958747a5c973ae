package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unique"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// record is a device in the registry. It is small, because a server keeps all records
// in memory. Manifests are stored once per Kind.
type record struct {
	Address   string        `json:"address"`
	Local     bool          `json:"local,omitempty"`
	Transport string        `json:"transport,omitempty"`
	Protocol  string        `json:"protocol,omitempty"`
	Node      string        `json:"node"`
	Epoch     uint64        `json:"epoch"`
	Kind      ferrule.Kind  `json:"kind"`
	State     ferrule.State `json:"state"`
	Since     int64         `json:"since"` // milliseconds
	Reason    string        `json:"reason,omitempty"`
	Pending   bool          `json:"pending,omitempty"`
	Sensor    bool          `json:"sensor,omitempty"`
	// Model and Version are those of a pending device, whose manifest is not published.
	Model   string            `json:"model,omitempty"`
	Version string            `json:"version,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Title   string            `json:"title,omitempty"`
	Claims  map[string]string `json:"claims,omitempty"`
	Aliases []string          `json:"aliases,omitempty"`
	// Restarted and Changed are in milliseconds too; 0 means never.
	Restarted int64        `json:"restarted,omitempty"`
	Changed   int64        `json:"changed,omitempty"`
	Previous  ferrule.Kind `json:"previous,omitempty"`
	// Accepted is the Kind that the owner accepted, unless it is Kind; AcceptedAt is when,
	// in milliseconds.
	Accepted   ferrule.Kind `json:"accepted,omitempty"`
	AcceptedAt int64        `json:"accepted_at,omitempty"`
	Offered    ferrule.Kind `json:"offered,omitempty"`
	Waiting    int          `json:"waiting,omitempty"`
	// Voucher shows that a node of the tenant wrote what was decided: Pending, Sensor,
	// Accepted and AcceptedAt.
	Voucher string `json:"voucher,omitempty"`
}

// The limits of a record. Records of other nodes are not trusted.
const (
	maxRecord  = 16 << 10
	maxReason  = 200
	maxWaiting = 1 << 20
	maxMillis  = 253_402_300_799_999 // the end of the year 9999: JSON cannot represent later times
)

func recordOf(dev *ferrule.Device, epoch uint64) record {
	r := record{
		Address: dev.Address, Local: dev.Local, Transport: dev.Transport, Protocol: dev.Protocol, Node: dev.Node, Epoch: epoch, Kind: dev.Kind,
		State: dev.State, Since: millis(dev.Since), Reason: ferrule.Clean(dev.Reason, maxReason),
		Pending: dev.Trust == ferrule.TrustPending, Sensor: dev.Sensor, Labels: dev.Labels, Title: dev.Title, Claims: dev.Claims, Aliases: dev.Aliases,
		Restarted: millis(dev.Restarted), Changed: millis(dev.Changed), Previous: dev.Previous,
		AcceptedAt: millis(dev.AcceptedAt), Offered: dev.Offered, Waiting: dev.Waiting,
	}
	if dev.Accepted != dev.Kind || r.Pending {
		r.Accepted = dev.Accepted
	}
	if r.Pending {
		r.Model, r.Version = dev.Model, dev.Version
	}
	return r
}

// device returns the device of a record. Model and version come from its manifest, unless
// it is pending.
func (r *record) device(id string) *ferrule.Device {
	dev := &ferrule.Device{
		ID: id, Address: r.Address, Local: r.Local, Transport: r.Transport, Protocol: r.Protocol, Node: r.Node, Epoch: r.Epoch, Kind: r.Kind,
		State: r.State, Since: moment(r.Since), Reason: r.Reason, Trust: ferrule.TrustAdopted, Sensor: r.Sensor, Labels: r.Labels, Title: r.Title, Claims: r.Claims, Aliases: r.Aliases,
		Restarted: moment(r.Restarted), Changed: moment(r.Changed), Previous: r.Previous,
		Accepted: r.Accepted, AcceptedAt: moment(r.AcceptedAt), Offered: r.Offered, Waiting: r.Waiting,
	}
	if r.Accepted == "" && !r.Pending {
		dev.Accepted = r.Kind
	}
	if r.Pending {
		dev.Trust, dev.Model, dev.Version = ferrule.TrustPending, r.Model, r.Version
	}
	dev.BoundNames()
	return dev
}

// interned returns a string that all records with the same value share in memory.
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

// parseRecord parses a record, and rejects what no node writes.
func parseRecord(data []byte) (*record, error) {
	if len(data) > maxRecord {
		return nil, fmt.Errorf("record has %d bytes, limit is %d", len(data), maxRecord)
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
		return nil, fmt.Errorf("unknown state %q", r.State)
	}
	for _, ms := range []int64{r.Since, r.Restarted, r.Changed, r.AcceptedAt} {
		if ms < 0 || ms > maxMillis {
			return nil, fmt.Errorf("invalid time %d", ms)
		}
	}
	if err := ferrule.CheckID(r.Node); err != nil {
		return nil, err
	}
	if r.Kind == "" || len(r.Kind) > 2*32 {
		return nil, fmt.Errorf("invalid kind %q", ferrule.Clean(string(r.Kind), ferrule.MaxWord))
	}
	if max(len(r.Accepted), len(r.Offered)) > 2*32 || r.Waiting < 0 || r.Waiting > maxWaiting || len(r.Voucher) > 2*voucherSize {
		return nil, errors.New("invalid accepted Kind")
	}
	r.Kind, r.Previous, r.Accepted, r.Offered = interned(r.Kind), interned(r.Previous), interned(r.Accepted), interned(r.Offered)
	r.Node, r.Transport, r.Protocol = interned(r.Node), interned(ferrule.Clean(r.Transport, ferrule.MaxWord)), interned(ferrule.Clean(r.Protocol, ferrule.MaxWord))
	r.Address = ferrule.Clean(r.Address, ferrule.MaxText)
	r.Reason = ferrule.Clean(r.Reason, maxReason)
	r.Model, r.Version = ferrule.Clean(r.Model, ferrule.MaxWord), ferrule.Clean(r.Version, ferrule.MaxWord)
	return r, nil
}
