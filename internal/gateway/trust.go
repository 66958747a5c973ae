package gateway

import "github.com/ferrulehq/ferrule/internal/ferrule"

// trust adopts and forgets devices, including those that dial in.
type trust struct{ *Gateway }

// Adopt implements builtin.Trust. A device that was never admitted has no ID yet and is
// named by the code that it shows.
func (t trust) Adopt(id string) error {
	err := t.Dock.Adopt(id)
	if t.DialIn == nil || err == nil || ferrule.AsError(err).Code != ferrule.NotFound {
		return err
	}
	if ok, refused := t.DialIn.activate(id); ok {
		return refused
	}
	return err
}

// Forget implements builtin.Trust. A device that dials in can also be named by its
// address, which is all that is known of one that was never online. Its credential is
// revoked first, so that it cannot reconnect meanwhile.
func (t trust) Forget(id string) error {
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
