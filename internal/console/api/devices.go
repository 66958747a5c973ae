package api

import (
	"context"
	"net/http"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// DeviceParts is what the operations on devices need of a gateway.
type DeviceParts struct {
	Fleet interface {
		WatchDevices(w ferrule.DeviceWatcher) (stop func())
		Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool)
	}
	// Visible returns what a caller is shown. If it is nil, everybody is shown everything.
	Visible func(who ferrule.Principal) ferrule.Visibility
	// Codes returns the devices that show a code and are not admitted yet.
	Codes func() []ShownCode
	// Stopped says who stopped a device and why, or returns "".
	Stopped func(dev *ferrule.Device) string
	// Values has the latest measurements; nil if none are recorded.
	Values interface {
		LatestOf(ctx context.Context, devices []string) (map[string][]ferrule.Latest, error)
		Series(ctx context.Context, q ferrule.HistoryQuery) ([]ferrule.Series, error)
	}
	// Listeners are the addresses at which the gateway can be reached.
	Listeners func() Listeners
}

// ShownCode is a device that shows a code until it is adopted.
type ShownCode struct {
	Code   string
	Device *ferrule.Device
}

// deviceOperations returns the operations on the list of devices, and what can be done to a device.
func (a *API) deviceOperations() []Operation {
	if fleet := a.parts.Devices.Fleet; fleet != nil {
		fleet.WatchDevices(&a.devices)
	}
	const admin = ferrule.ScopeAdmin
	return []Operation{
		operation(http.MethodGet, "/devices", "List devices: searched, filtered, sorted, a page at a time.", ferrule.ScopeRead, a.Devices),
		operation(http.MethodGet, "/device-filters", "List the labels, Kinds, nodes and brokers that devices can be filtered by.", ferrule.ScopeRead, a.DeviceFilters),
		operation(http.MethodGet, "/devices/{device}", "Return one device.", ferrule.ScopeRead, a.Device),
		operation(http.MethodGet, "/listeners", "Return the addresses at which devices can reach the gateway.", ferrule.ScopeRead, a.Listeners),
		operation(http.MethodPost, "/devices/{device}/adopt", "Adopt a device that was found, so that agents may use it.", admin, a.Adopt),
		operation(http.MethodPost, "/devices/{device}/rename", "Rename a device. Its earlier name can still be used.", admin, a.Rename),
		operation(http.MethodPost, "/devices/{device}/label", "Set and remove labels of a device.", admin, a.Label),
		operation(http.MethodPost, "/devices/{device}/release", "Release the port of a device for a while, for example to flash it.", admin, a.Release),
		operation(http.MethodPost, "/devices/{device}/retry", "Connect a device that is offline now.", admin, a.Retry),
		operation(http.MethodPost, "/devices/{device}/forget", "Forget a device: its name, trust and manifest.", admin, a.Forget),
		operation(http.MethodPost, "/devices/{device}/accept", "Accept what a device says about itself since it changed.", admin, a.Accept),
	}
}

// DeviceRow is a device, or several of one Kind, in a list.
type DeviceRow struct {
	ID        string            `json:"id"`
	Title     string            `json:"title,omitempty" jsonschema:"what the device calls itself"`
	Status    string            `json:"status" jsonschema:"online, reconnecting, offline, new, changed, stopped or released"`
	State     string            `json:"state" jsonschema:"online, offline, or released to other programs"`
	Since     time.Time         `json:"since" jsonschema:"when state began"`
	Reason    string            `json:"reason,omitempty" jsonschema:"why it is not online"`
	Trust     string            `json:"trust" jsonschema:"adopted or pending"`
	Stopped   string            `json:"stopped,omitempty" jsonschema:"who stopped it and why: changes are denied"`
	Code      string            `json:"code,omitempty" jsonschema:"the code that it shows until it is adopted"`
	Model     string            `json:"model,omitempty"`
	Version   string            `json:"version,omitempty"`
	Kind      string            `json:"kind,omitempty"`
	Previous  string            `json:"previous,omitempty" jsonschema:"Kind before its last change"`
	Changed   time.Time         `json:"changed,omitzero" jsonschema:"when its Kind changed"`
	Waiting   int               `json:"waiting,omitempty" jsonschema:"number of changes that its owner has not accepted yet"`
	Transport string            `json:"transport"`
	Protocol  string            `json:"protocol,omitempty"`
	Address   string            `json:"address"`
	Hub       string            `json:"hub,omitempty" jsonschema:"broker or Home Assistant that the device is behind"`
	Node      string            `json:"node,omitempty" jsonschema:"gateway that holds it"`
	Labels    map[string]string `json:"labels,omitempty"`
	Claims    map[string]string `json:"claims,omitempty" jsonschema:"what the device says about itself in the form of labels"`
	Notes     []string          `json:"notes,omitempty" jsonschema:"problems that the gateway noticed"`
	Tools     int               `json:"tools" jsonschema:"number of usable tools"`
	Values    []DeviceValue     `json:"values,omitempty" jsonschema:"its main values"`
	More      int               `json:"more,omitempty" jsonschema:"number of further values"`
	Heard     time.Time         `json:"heard,omitzero" jsonschema:"time of the latest value"`
	Switch    *DeviceSwitch     `json:"switch,omitempty" jsonschema:"tool that switches it on and off"`
	Fold      *KindFold         `json:"fold,omitempty" jsonschema:"set if the row stands for all devices of a Kind; the other members are of the first"`
}

// DeviceValue is the latest value of a signal.
type DeviceValue struct {
	Signal string    `json:"signal"`
	Value  float64   `json:"value"`
	Unit   string    `json:"unit,omitempty"`
	State  bool      `json:"state,omitempty" jsonschema:"whether the value is a state, such as 1 for on"`
	Time   time.Time `json:"time"`
}

// DeviceSwitch is a tool with one boolean argument, and what the device last reported.
type DeviceSwitch struct {
	Tool     string `json:"tool"`
	Argument string `json:"argument"`
	On       bool   `json:"on"`
}

// KindFold has counts of the devices of one Kind.
type KindFold struct {
	Devices int `json:"devices"`
	Online  int `json:"online"`
	Offline int `json:"offline"`
	Needs   int `json:"needs" jsonschema:"number of those that need a person"`
}

// DeviceInput names a device.
type DeviceInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
}

// Device returns one device that a person is shown.
func (a *API) Device(ctx context.Context, who ferrule.Principal, in DeviceInput) (DeviceRow, error) {
	for _, e := range a.codeEntries(who) {
		if e.dev.ID == in.Device {
			return a.row(e, ferrule.Visibility{}), nil
		}
	}
	dev, manifest, seen, err := a.lookup(who, in.Device)
	if err != nil {
		return DeviceRow{}, err
	}
	rows := []DeviceRow{a.row(&deviceEntry{dev: dev, manifest: manifest}, seen)}
	err = a.addValues(ctx, rows, func(int) (*ferrule.Manifest, ferrule.Visibility) { return manifest, seen }, []*ferrule.Device{dev}, who)
	return rows[0], err
}

// DeviceRow returns one device without its values, and whether the person is shown it.
func (a *API) DeviceRow(who ferrule.Principal, id string) (DeviceRow, bool) {
	dev, manifest, seen, err := a.lookup(who, id)
	if err != nil {
		return DeviceRow{}, false
	}
	return a.row(&deviceEntry{dev: dev, manifest: manifest}, seen), true
}

// Recent returns a signal in a time range. It does not check whether a person is shown the
// device: it is for the values of a DeviceRow.
func (a *API) Recent(ctx context.Context, device, signal string, from, to time.Time) (ferrule.Series, error) {
	if a.parts.Devices.Values == nil {
		return ferrule.Series{}, nil
	}
	all, err := a.parts.Devices.Values.Series(ctx, ferrule.HistoryQuery{Device: device, Signals: []string{signal}, From: from, To: to, Points: 120})
	if err != nil || len(all) == 0 {
		return ferrule.Series{}, err
	}
	return all[0], nil
}

// lookup returns a device that a person is shown, and its effective manifest, which is nil
// if the device was never reached.
func (a *API) lookup(who ferrule.Principal, id string) (*ferrule.Device, *ferrule.Manifest, ferrule.Visibility, error) {
	seen := a.visible(who)
	dev, manifest, ok := a.parts.Devices.Fleet.Lookup(id)
	if !ok || dev.ID == ferrule.GatewayID || !who.CanSee(dev) || !seen.Device(dev, manifest) {
		return nil, nil, seen, ferrule.UnknownDevice(id)
	}
	return dev, manifest, seen, nil
}

func (a *API) visible(who ferrule.Principal) ferrule.Visibility {
	if a.parts.Devices.Visible == nil {
		return ferrule.Visibility{}
	}
	return a.parts.Devices.Visible(who)
}

// AdoptInput has the arguments of Adopt.
type AdoptInput struct {
	Device string            `json:"device" jsonschema:"ID of the device, or the code that it shows"`
	Name   string            `json:"name,omitempty" jsonschema:"new ID of the device; default: as it is"`
	Kind   bool              `json:"kind,omitempty" jsonschema:"also adopt all devices of its Kind behind its broker or Home Assistant, now and later"`
	Labels map[string]string `json:"labels,omitempty" jsonschema:"labels to set"`
}

// Adopt lets agents use a pending device.
func (a *API) Adopt(ctx context.Context, who ferrule.Principal, in AdoptInput) (builtin.TrustOutput, error) {
	for key, value := range in.Labels { // before anything is adopted
		if err := ferrule.CheckLabel(key, value); err != nil {
			return builtin.TrustOutput{}, ferrule.Errorf(ferrule.Invalid, "%w", err)
		}
	}
	out, err := Builtin[builtin.TrustOutput](ctx, a, who, "adopt_device", builtin.AdoptInput{Device: in.Device, Name: in.Name, Kind: in.Kind})
	if err != nil || len(in.Labels) == 0 {
		return out, err
	}
	if _, err := a.Label(ctx, who, builtin.LabelInput{Device: out.Device, Set: in.Labels}); err != nil {
		return out, ferrule.Errorf(ferrule.AsError(err).Code, "%s is adopted, but has no labels yet: %s", out.Device, ferrule.AsError(err).Message)
	}
	return out, nil
}

// Rename gives a device another ID.
func (a *API) Rename(ctx context.Context, who ferrule.Principal, in builtin.RenameInput) (builtin.RenameOutput, error) {
	return Builtin[builtin.RenameOutput](ctx, a, who, "rename_device", in)
}

// Label sets and removes labels of a device.
func (a *API) Label(ctx context.Context, who ferrule.Principal, in builtin.LabelInput) (builtin.LabelOutput, error) {
	return Builtin[builtin.LabelOutput](ctx, a, who, "label_device", in)
}

// Release releases the port of a device for a while.
func (a *API) Release(ctx context.Context, who ferrule.Principal, in builtin.ReleaseDeviceInput) (builtin.ReleaseDeviceOutput, error) {
	return Builtin[builtin.ReleaseDeviceOutput](ctx, a, who, "release_device", in)
}

// Retry connects a device now.
func (a *API) Retry(ctx context.Context, who ferrule.Principal, in builtin.RetryDeviceInput) (builtin.RetryDeviceOutput, error) {
	return Builtin[builtin.RetryDeviceOutput](ctx, a, who, "retry_device", in)
}

// Forget removes everything that is stored about a device.
func (a *API) Forget(ctx context.Context, who ferrule.Principal, in builtin.TrustInput) (builtin.TrustOutput, error) {
	return Builtin[builtin.TrustOutput](ctx, a, who, "forget_device", in)
}

// Accept accepts what a device offers.
func (a *API) Accept(ctx context.Context, who ferrule.Principal, in builtin.AcceptInput) (builtin.TrustOutput, error) {
	return Builtin[builtin.TrustOutput](ctx, a, who, "accept_device", in)
}

// Listeners are the addresses at which devices can reach the gateway.
type Listeners struct {
	HTTP    string   `json:"http,omitempty" jsonschema:"address of the console and of agents"`
	Devices string   `json:"devices,omitempty" jsonschema:"URL that voice toys are pointed at"`
	Codes   bool     `json:"codes,omitempty" jsonschema:"whether new voice toys show a code"`
	Serial  bool     `json:"serial,omitempty" jsonschema:"whether boards on USB are found"`
	TCP     []string `json:"tcp,omitempty" jsonschema:"configured devices on TCP"`
	URLs    []string `json:"urls,omitempty" jsonschema:"configured MCP servers"`
	Brokers []string `json:"brokers,omitempty" jsonschema:"names of the MQTT brokers"`
	Homes   []string `json:"homes,omitempty" jsonschema:"names of the Home Assistants"`
	Config  string   `json:"config,omitempty" jsonschema:"path of the configuration file"`
}

// NoInput is the input of an operation without one.
type NoInput struct{}

// Listeners returns the addresses at which devices can reach the gateway. Only an owner sees
// where it connects to, and the path of its configuration.
func (a *API) Listeners(_ context.Context, who ferrule.Principal, _ NoInput) (Listeners, error) {
	if a.parts.Devices.Listeners == nil {
		return Listeners{}, nil
	}
	out := a.parts.Devices.Listeners()
	if !who.Scopes.Has(ferrule.ScopeAdmin) {
		out.TCP, out.URLs, out.Config = nil, nil, ""
	}
	return out, nil
}
