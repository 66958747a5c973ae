package ferrule

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Device is an admitted device. It is plain data that can be stored and sent.
type Device struct {
	// ID is the device's name in the gateway: unique, never moved to other hardware.
	// It is not the name that the device gives itself.
	ID string `json:"id"`
	// Named reports whether the owner chose the ID with a command. Aliases are earlier
	// IDs, latest first, under which agents may still call the device.
	Named   bool     `json:"named,omitempty"`
	Aliases []string `json:"aliases,omitempty"`
	// Title is what the device calls itself now; empty if it does not. The ID was made
	// from it, and stays when it changes.
	Title string `json:"title,omitempty"`
	// Address identifies the hardware: a USB serial number, a MAC, host:port.
	Address string `json:"address"`
	// Local reports whether Address is unique on its node only. The same address
	// on another node is then another device.
	Local bool `json:"local,omitempty"`
	// Hub is the name of what the device is behind, such as a broker; empty if it is
	// reached directly.
	Hub       string `json:"hub,omitempty"`
	Transport string `json:"transport"`
	Protocol  string `json:"protocol,omitempty"`
	// Node is the node that holds the device, or held it last. Epoch grows each
	// time that another node takes the device, so that stale claims are detected.
	Node  string `json:"node,omitempty"`
	Epoch uint64 `json:"epoch,omitempty"`
	// Kind is empty for a configured device that was never reached.
	Kind    Kind   `json:"kind,omitempty"`
	Model   string `json:"model,omitempty"`
	Version string `json:"version,omitempty"`

	State State `json:"state"`
	// Since is when State began.
	Since time.Time `json:"since"`
	// Reason says why the device is not online.
	Reason string `json:"reason,omitempty"`
	// Restarted is when opening the connection last may have restarted the
	// device. A restart resets its outputs.
	Restarted time.Time `json:"restarted,omitzero"`
	Trust     Trust     `json:"trust"`
	// Sensor reports that nobody has adopted the device: it is adopted only as long as all
	// of its tools read.
	Sensor bool `json:"sensor,omitempty"`
	// Trusted is where a device was last trusted, and as which Kind. It is set only if an
	// unverified announcement says where the device is.
	Trusted *Contact `json:"trusted,omitempty"`
	// Accepted is the Kind that the owner accepted: the reference for what the device
	// says about itself later. AcceptedAt is when; it is zero if the device was accepted
	// as it was first found.
	Accepted   Kind      `json:"accepted,omitempty"`
	AcceptedAt time.Time `json:"accepted_at,omitzero"`
	// Offered is what the device says about itself now. It is empty if Kind is that.
	// Otherwise Kind is the part of it that the owner accepted, and Waiting is the number
	// of changes that are not in use until the owner accepts them.
	Offered Kind `json:"offered,omitempty"`
	Waiting int  `json:"waiting,omitempty"`
	// Vouched reports that a node of this tenant wrote what a record of another node
	// says about Trust and Accepted. It is false for all other records.
	Vouched bool `json:"-"`
	// Changed is when the device last changed its Kind; Previous is the Kind
	// before that.
	Changed  time.Time `json:"changed,omitzero"`
	Previous Kind      `json:"previous,omitempty"`

	// Notes are problems that the gateway noticed: an incomplete list, tools that
	// disappeared.
	Notes []string `json:"notes,omitempty"`
	// Labels are the owner's; policies use them. Claims are what the device says about
	// itself in the same form, to find it by; they grant nothing.
	Labels map[string]string `json:"labels,omitempty"`
	Claims map[string]string `json:"claims,omitempty"`
}

// Contact is a device as it was found at a network endpoint.
type Contact struct {
	// Endpoint is empty if it is unknown.
	Endpoint string `json:"endpoint,omitempty"`
	Kind     Kind   `json:"kind"`
}

// Says returns the Kind of what the device says about itself now, accepted or not.
func (d *Device) Says() Kind {
	if d.Offered != "" {
		return d.Offered
	}
	return d.Kind
}

// WaitingNote returns a note on changes that wait for the owner, or "".
func (d *Device) WaitingNote() string {
	switch d.Waiting {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("1 change waits until you accept it; to see it, run `ferrule diff %s`", d.ID)
	}
	return fmt.Sprintf("%d changes wait until you accept them; to see them, run `ferrule diff %s`", d.Waiting, d.ID)
}

// SameHardware reports whether two records describe the same hardware.
func (d *Device) SameHardware(other *Device) bool {
	return d.Address == other.Address && (d.Node == other.Node || !d.Local && !other.Local)
}

// GatewayID is the ID under which the gateway's own tools are called. No device
// has it.
const GatewayID = "gateway"

// UnknownDevice returns the error for an ID that no device has.
func UnknownDevice(id string) *Error {
	return Errorf(NotFound, "there is no device %q", Clean(id, MaxWord)).WithHint("to list the devices, run `ferrule devices`")
}

// OfflineError returns the error for a device that cannot be reached.
func (d *Device) OfflineError() *Error {
	if d.State == StateReleased {
		return Errorf(Busy, "%s %s", d.ID, d.Reason).WithHint("Ferrule reconnects by itself; to reconnect now, run `ferrule release %s --for 0s`", d.ID)
	}
	if d.Kind == "" {
		return Errorf(Offline, "%s was never reached: %s", d.ID, d.Reason).
			WithHint("check that it is on and that %s is its address", d.Address)
	}
	err := Errorf(Offline, "%s is offline since %s: %s", d.ID, FormatTime(d.Since), d.Reason)
	if d.Transport == "homeassistant" {
		return err.WithHint("check that Home Assistant runs, and that it has the device and exposes it to Assist; Ferrule reconnects by itself")
	}
	return err.WithHint("check that it is on and connected; Ferrule reconnects by itself. It was last connected over %s at %s", d.Transport, d.Address)
}

// State says whether a device can be reached.
type State string

// The states.
const (
	StateOnline   State = "online"
	StateOffline  State = "offline"
	StateReleased State = "released" // for a while, for another program
)

// MaxRelease is how long a device can be released.
const MaxRelease = 24 * time.Hour

// Trust says whether the owner has accepted a device.
type Trust string

// The states of trust. A device that the owner configured is adopted. A device
// that was only discovered is pending: people see it, agents do not.
const (
	TrustAdopted Trust = "adopted"
	TrustPending Trust = "pending"
)

// MaxID is the length of the longest device ID.
const MaxID = 32

// CheckID returns an error if id cannot be the ID of a device. An ID is letters
// and digits with single - or _ between them. Two underscores in a row separate
// a device from its tool.
func CheckID(id string) error {
	if len(id) > MaxID {
		return fmt.Errorf("name %q has %d characters; limit is %d", id, len(id), MaxID)
	}
	if !validID(id) {
		return fmt.Errorf("name %q must be letters and digits, with single - or _ between them", id)
	}
	return nil
}

func validID(id string) bool {
	separator := true // a letter or a digit must follow
	for _, c := range []byte(id) {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9':
			separator = false
		case (c == '-' || c == '_') && !separator:
			separator = true
		default:
			return false
		}
	}
	return !separator
}

// Slug turns the name that a device gives itself into an ID. It returns "" if
// nothing of the name is usable.
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

// Duration is a time.Duration that is text in JSON and in files, for example "2s"
// or "1m30s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) {
	return []byte(time.Duration(d).String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// ParseDuration is time.ParseDuration with weeks and days before the other units: 2w, 7d,
// 1d12h. It is used wherever people write durations.
func ParseDuration(text string) (time.Duration, error) {
	rest, sum := text, time.Duration(0)
	for _, unit := range []struct {
		name  string
		hours float64
	}{{"w", 7 * 24}, {"d", 24}} {
		digits, after, found := strings.Cut(rest, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseFloat(digits, 64)
		if err != nil || strings.Trim(digits, "0123456789.") != "" || n*unit.hours > maxHours {
			return 0, errDuration(text)
		}
		sum += time.Duration(n * unit.hours * float64(time.Hour))
		rest = after
	}
	if rest == "" && rest != text {
		return sum, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || rest != text && d < 0 || sum+d < sum && d > 0 {
		return 0, errDuration(text)
	}
	return sum + d, nil
}

// maxHours is the longest duration with weeks and days: a hundred years.
const maxHours = 100 * 366 * 24

func errDuration(text string) error {
	return fmt.Errorf("must be a duration such as 30s, 5m, 12h or 7d, got %q", Clean(text, MaxWord))
}

func (d Duration) String() string { return time.Duration(d).String() }

// FormatTime formats a time for people: the time of day if it is today, else the
// date too.
func FormatTime(t time.Time) string { return formatTime(t, time.Now()) }

func formatTime(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04")
}
