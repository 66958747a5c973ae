package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/device/protocol/xiaozhi/provision"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// trust adopts and forgets devices, including those that dial in.
type trust struct{ *Gateway }

// Adopt implements builtin.Trust. A device that was never admitted has no ID yet and is
// named by the code that it shows.
func (t trust) Adopt(ctx context.Context, id, name string) (builtin.TrustOutput, error) {
	if _, _, known := t.Fleet.Lookup(id); !known {
		// A device is listed by its address until it has said what it is. A person may have
		// seen it just before.
		if dev, ok := t.Devices.At(id); ok {
			id = dev.ID
		}
	}
	adopted := id
	if _, _, known := t.Fleet.Lookup(id); known && name != "" {
		if err := names(t).Rename(id, name); err != nil {
			return builtin.TrustOutput{}, err
		}
		adopted = name
	}
	dev, err := t.Dock.AdoptAndConnect(ctx, adopted)
	if err == nil {
		return builtin.TrustOutput{Device: dev.ID, Note: adoptedNote(dev)}, nil
	}
	if ferrule.AsError(err).Code != ferrule.NotFound {
		return builtin.TrustOutput{}, err
	}
	for _, w := range t.waiting() {
		switch id {
		case w.Code:
			return t.activate(w.Code, w.Identity.Address, ferrule.Clean(w.Identity.Board, ferrule.MaxWord), name)
		case w.Identity.Address:
			return builtin.TrustOutput{}, ferrule.Errorf(ferrule.Invalid, "%s shows a code, which proves that it is yours", id).
				WithHint("run `ferrule adopt CODE` with the code that the device shows or speaks")
		}
	}
	return builtin.TrustOutput{}, err
}

// AdoptKind implements builtin.Trust.
func (t trust) AdoptKind(ctx context.Context, id, name string) (builtin.TrustOutput, error) {
	others, err := t.Dock.AdoptKind(id)
	if err != nil {
		return builtin.TrustOutput{}, err
	}
	out, err := t.Adopt(ctx, id, name)
	if len(others) > 0 {
		out.Note += " The others of its Kind there are adopted too: " + builtin.FirstOf(others) + "."
	}
	out.Note += " Others of its Kind are adopted when they are found."
	return out, err
}

// ForgetKind implements builtin.Trust.
func (t trust) ForgetKind(id string) (builtin.TrustOutput, error) {
	others, err := t.Dock.ForgetKind(id)
	if err != nil {
		return builtin.TrustOutput{}, err
	}
	out := builtin.TrustOutput{Device: id, Note: "Devices of its Kind on the same broker or Home Assistant wait to be adopted when they are found."}
	if len(others) > 0 {
		out.Note = "So are the others of its Kind there: " + builtin.FirstOf(others) + ". " + out.Note
	}
	for _, forgotten := range append(others, id) {
		if t.History != nil {
			t.History.Forget(forgotten)
		}
		t.Leases.Forget(forgotten)
	}
	return out, nil
}

// adoptedNote says what happens after a device was adopted.
func adoptedNote(dev *ferrule.Device) string {
	switch {
	case dev.State == ferrule.StateOnline && dev.Model == "":
		return fmt.Sprintf("It is at %s.", dev.Address)
	case dev.State == ferrule.StateOnline:
		return fmt.Sprintf("It is a %s at %s.", dev.Model, dev.Address)
	}
	return "It is not connected: " + dev.Reason + "."
}

// activate admits the device that shows a code, under a name if that is not empty.
func (t trust) activate(code, address, board, name string) (builtin.TrustOutput, error) {
	out := builtin.TrustOutput{Device: address, Note: fmt.Sprintf("It is a %s at %s and connects within a few seconds.", board, address)}
	if name != "" {
		if err := t.Dock.CheckName(name, address); err != nil {
			return builtin.TrustOutput{}, err
		}
	}
	if ok, err := t.DialIn.activate(code); !ok || err != nil {
		if err == nil {
			err = ferrule.UnknownDevice(code) // it expired just now
		}
		return builtin.TrustOutput{}, err
	}
	if name == "" {
		return out, nil
	}
	out.Device = name
	return out, t.Dock.Reserve(address, dialInTransport, board, name)
}

// dialInTransport is shown for a device that has yet to dial in.
const dialInTransport = "dial-in"

// Forget implements builtin.Trust. A device that dials in can also be named by its
// address, which is all that is known of one that was never online. Its credential is
// revoked first, so that it cannot reconnect meanwhile.
func (t trust) Forget(id string) (builtin.TrustOutput, error) {
	inSight, configured := t.Dock.InSight(id)
	out := builtin.TrustOutput{Device: id}
	switch {
	case t.Dock.AdoptsKind(id):
		out.Note = "You adopted its Kind, so it is adopted again when it is found. To undo that, run `ferrule forget DEVICE --kind` with any device of that Kind."
	case configured:
		out.Note = "It is configured, so it comes back as a new device. To prevent that, remove it from `devices` in ferrule.yaml, or its flag from `ferrule up`, then run `ferrule reload`; after a change of flags, restart the gateway."
	case inSight:
		out.Note = "It is still in reach, so it is listed again, as a new device."
	}
	dev, _, known := t.Fleet.Lookup(id)
	if !known {
		dev, known = t.Devices.At(id)
	}
	if known && t.History != nil {
		defer t.History.Forget(dev.ID)
	}
	err := t.forget(id)
	if err == nil && known {
		t.Leases.Forget(append([]string{dev.ID}, dev.Aliases...)...)
	}
	return out, err
}

func (t trust) forget(id string) error {
	if t.DialIn == nil {
		return t.Dock.Forget(id)
	}
	address := id
	if dev, _, known := t.Fleet.Lookup(id); known {
		address = dev.Address
	}
	dev, remembered := t.Devices.At(address)
	if remembered {
		id = dev.ID
	}
	revoked, err := t.DialIn.forget(address)
	if err != nil {
		return err
	}
	if err = t.Dock.Forget(id); revoked && !remembered {
		return nil // the credential was all there was to forget
	}
	return err
}

// listed is the fleet with the devices that show a code. They are not admitted yet, but
// their owner looks for them in the list.
type listed struct{ *Gateway }

// Lookup implements builtin.Fleet.
func (l listed) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	if dev, manifest, ok := l.Fleet.Lookup(id); ok {
		return dev, manifest, ok
	}
	for _, dev := range l.showingCodes() {
		if dev.ID == id {
			return dev, nil, true
		}
	}
	return nil, nil, false
}

// Devices implements builtin.Fleet.
func (l listed) Devices() []*ferrule.Device {
	all := l.Fleet.Devices()
	waiting := l.showingCodes()
	if len(waiting) == 0 {
		return all
	}
	known := make(map[string]bool)
	for _, dev := range all {
		known[dev.Address] = true
	}
	for _, dev := range waiting {
		if !known[dev.Address] {
			known[dev.Address] = true
			all = append(all, dev)
		}
	}
	slices.SortFunc(all, func(a, b *ferrule.Device) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// showingCodes returns the devices that show a code, by their addresses.
func (l listed) showingCodes() (all []*ferrule.Device) {
	for _, w := range l.waiting() {
		all = append(all, showingCode(w))
	}
	return all
}

// showingCode returns a device that shows a code.
func showingCode(w provision.Waiting) *ferrule.Device {
	return &ferrule.Device{
		ID: w.Identity.Address, Address: w.Identity.Address, Transport: dialInTransport,
		Model: ferrule.Clean(w.Identity.Board, ferrule.MaxWord), Version: ferrule.Clean(w.Identity.Version, ferrule.MaxWord),
		State: ferrule.StateOffline, Since: w.Since, Trust: ferrule.TrustPending,
		Reason: fmt.Sprintf("it shows the code %s; if yours does, run `ferrule adopt %s`", w.Code, w.Code),
	}
}
