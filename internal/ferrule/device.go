package ferrule

import (
	"fmt"
	"strings"
	"time"
)

// Device is an admitted device: plain data that can be stored and sent. It
// holds no socket, goroutine or lock.
type Device struct {
	// ID is the device's name here: unique, chosen once, never moved to other
	// hardware. It is not what the device calls itself.
	ID string `json:"id"`
	// Address tells the hardware: a USB serial number, a MAC, host:port.
	Address string `json:"address"`
	// Local tells that Address does so on its own node only: what has the same one
	// on another node is another device.
	Local     bool   `json:"local,omitempty"`
	Transport string `json:"transport"`
	Protocol  string `json:"protocol,omitempty"`
	// Node is the node that holds the device, or was the last to; Epoch grows with
	// each that takes it, so that one which has lost it can be told apart.
	Node  string `json:"node,omitempty"`
	Epoch uint64 `json:"epoch,omitempty"`
	// Kind is empty for a device that was named and has never been reached.
	Kind    Kind   `json:"kind,omitempty"`
	Model   string `json:"model,omitempty"`
	Version string `json:"version,omitempty"`

	State State `json:"state"`
	// Since is when State began.
	Since time.Time `json:"since"`
	// Reason says why the device is not online.
	Reason string `json:"reason,omitempty"`
	// Restarted is when opening the device last may have restarted it, which
	// puts its outputs into their first state.
	Restarted time.Time `json:"restarted,omitzero"`
	Trust     Trust     `json:"trust"`
	// Changed is when the device was last seen to have become another Kind, and
	// Previous the Kind that it was.
	Changed  time.Time `json:"changed,omitzero"`
	Previous Kind      `json:"previous,omitempty"`

	// Notes is what the gateway noticed about the device: a list that came
	// incomplete, tools that have gone.
	Notes  []string          `json:"notes,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Same tells whether two records are of the same hardware.
func (d *Device) SameHardware(other *Device) bool {
	return d.Address == other.Address && (d.Node == other.Node || !d.Local && !other.Local)
}

// GatewayID is the ID under which the gateway's own tools are called. No device
// has it.
const GatewayID = "gateway"

// NoDevice says that there is no device with an ID.
func UnknownDevice(id string) *Error {
	return Errorf(NotFound, "there is no device %q", Clean(id, MaxWord)).WithHint("`ferrule devices` lists the devices")
}

// OfflineError says that a device cannot be reached, since when and why.
func (d *Device) OfflineError() *Error {
	if d.State == StateReleased {
		return Errorf(Busy, "%s %s", d.ID, d.Reason).WithHint("it is taken back by itself; `ferrule release %s --for 0s` does so now", d.ID)
	}
	if d.Kind == "" {
		return Errorf(Offline, "%s has not been reached yet: %s", d.ID, d.Reason).
			WithHint("is it on, and is %s its address?", d.Address)
	}
	return Errorf(Offline, "%s is offline since %s: %s", d.ID, FormatTime(d.Since), d.Reason).
		WithHint("it was last on %s at %s", d.Transport, d.Address)
}

// Moment is a time as people say it: the clock today, else the day too.
func FormatTime(t time.Time) string { return moment(t, time.Now()) }

func moment(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04")
}

// State tells whether a device can be reached.
type State string

// The states.
const (
	StateOnline   State = "online"
	StateOffline  State = "offline"
	StateReleased State = "released" // for a while, to whoever else wants it
)

// Trust tells whether the owner has accepted a device.
type Trust string

// The states of trust. A device that was named by its owner is adopted; one
// that was merely found is held: people see it, agents do not.
const (
	TrustAdopted Trust = "adopted"
	TrustPending Trust = "pending"
)

// MaxID is the longest device ID.
const MaxID = 32

// validID tells whether id is letters and digits, with single - or _ between them.
func validID(id string) bool {
	between := true // the start is like a - : a letter or a digit must follow
	for _, c := range []byte(id) {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9':
			between = false
		case (c == '-' || c == '_') && !between:
			between = true
		default:
			return false
		}
	}
	return !between
}

// CheckID tells whether id can name a device. Two underscores in a row are left
// to separate a device from its tool.
func CheckID(id string) error {
	if len(id) > MaxID {
		return fmt.Errorf("name %q has %d characters; at most %d are possible", id, len(id), MaxID)
	}
	if !validID(id) {
		return fmt.Errorf("name %q: letters and digits are possible, with single - or _ between them", id)
	}
	return nil
}

// Slug makes an ID out of what a device calls itself; it is empty where nothing
// of the name can be used.
func Slug(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case b.Len() == MaxID:
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	return strings.Trim(b.String(), "-")
}
