package dock

import (
	"context"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Rename gives a device another ID. The old one stays as an alias.
func (d *Dock) Rename(id, name string) error {
	r := d.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.renameDevice(r.current(id), name)
}

// CheckRename returns the error that Rename would return.
func (d *Dock) CheckRename(id, name string) error {
	r := d.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.checkRename(r.current(id), name)
	return err
}

// adoptWait is how long AdoptAndConnect waits for a device to connect.
const adoptWait = 3 * time.Second

// AdoptAndConnect adopts a device and returns it. A device that connects only now has its
// final ID, if it connects in time.
func (d *Dock) AdoptAndConnect(ctx context.Context, id string) (*ferrule.Device, error) {
	r := d.registry
	r.mu.Lock()
	address := r.ids[r.current(id)]
	r.mu.Unlock()
	if err := d.Adopt(id); err != nil {
		return nil, err
	}
	d.waitFor(ctx, address)
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.slots[address]; at != nil {
		return at.device.Load(), nil
	}
	dev, ok := r.store.At(address)
	if !ok {
		return nil, ferrule.UnknownDevice(id)
	}
	return dev, nil
}

// waitFor waits a moment until a device is connected.
func (d *Dock) waitFor(ctx context.Context, address string) {
	c := d.supervisor(address)
	if c == nil {
		return
	}
	c.mu.Lock()
	connected := c.connected
	c.mu.Unlock()
	select {
	case <-connected:
	case <-ctx.Done():
	case <-time.After(adoptWait):
	}
}

// CheckName returns an error if the device at an address may not have a name.
func (d *Dock) CheckName(name, address string) error {
	d.registry.mu.Lock()
	defer d.registry.mu.Unlock()
	return d.registry.checkName(name, address)
}

// Reserve names an adopted device that has yet to connect for the first time.
func (d *Dock) Reserve(address, transport, model, name string) error {
	r := d.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if dev, ok := r.store.At(address); ok {
		return r.renameDevice(dev.ID, name)
	}
	if err := r.checkName(name, address); err != nil {
		return err
	}
	dev := &ferrule.Device{
		ID: name, Named: true, Address: address, Transport: transport, Model: model, Trust: ferrule.TrustAdopted,
		State: ferrule.StateOffline, Since: time.Now(), Reason: "has not connected yet",
	}
	if err := r.store.Keep(dev, nil); err != nil {
		return err
	}
	r.publishAbsent(dev)
	return nil
}

// InSight reports whether a device is in sight, so that it comes back after it was
// forgotten, and whether that is because its owner configured it.
func (d *Dock) InSight(id string) (inSight, configured bool) {
	r := d.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.slots[r.ids[r.current(id)]]
	if at == nil || at.sighting.Inbound { // a device that dials in is disconnected
		return false, false
	}
	return true, at.sighting.AdoptFirst == "" && at.sighting.Hub == ""
}

// current returns the ID of a device that was given by its ID or by an alias.
func (r *registry) current(id string) string {
	if r.ids[id] != "" {
		return id
	}
	address := r.aliases[id]
	if at := r.slots[address]; at != nil {
		return at.device.Load().ID
	}
	if dev, ok := r.store.At(address); ok {
		return dev.ID
	}
	return id
}

// checkRename returns the address of a device, or an error if it may not be renamed.
func (r *registry) checkRename(id, name string) (address string, err error) {
	address, ok := r.ids[id]
	if !ok {
		return "", ferrule.UnknownDevice(id)
	}
	if err := r.checkHeldHere(id); err != nil {
		return "", err
	}
	if err := r.checkName(name, address); err != nil {
		return "", err
	}
	if r.ownerNames[id] == address {
		return "", ferrule.Errorf(ferrule.Invalid, "%s has its name from the configuration", id).
			WithHint("change its name in ferrule.yaml and run `ferrule reload`, or in the flags of `ferrule up` and restart the gateway")
	}
	return address, nil
}

// renameDevice gives a device a name that its owner chose.
func (r *registry) renameDevice(id, name string) error {
	address, err := r.checkRename(id, name)
	if err != nil {
		return err
	}
	at := r.slots[address]
	var dev ferrule.Device
	if at != nil {
		dev = *at.device.Load()
	} else if kept, ok := r.store.Get(id); ok {
		dev = *kept
	}
	if id == name && dev.Named {
		return nil
	}
	dev.Named = true
	if id != name {
		dev.Aliases = withAlias(dev.Aliases, id, name)
	}
	renamed := r.rename(&dev, name)
	err = r.store.Keep(renamed, nil) // even if it was never reached
	if at != nil {
		r.publish(at, renamed)
	} else {
		r.publishAbsent(renamed)
	}
	r.log.Info("device renamed to "+name, "device", id)
	return err
}

// withAlias returns the aliases of a device that had one ID and gets another.
func withAlias(aliases []string, id, name string) []string {
	aliases = slices.DeleteFunc(slices.Clone(aliases), func(alias string) bool { return alias == name })
	if ferrule.CheckID(id) == nil { // an address was never a name
		aliases = slices.Insert(aliases, 0, id)
	}
	return aliases[:min(len(aliases), ferrule.MaxAliases)]
}

// checkName returns an error if a device may not have a name.
func (r *registry) checkName(name, address string) error {
	if err := ferrule.CheckID(name); err != nil {
		return ferrule.Errorf(ferrule.Invalid, "%w", err)
	}
	taken := name == ferrule.GatewayID
	for _, at := range []string{r.ids[name], r.ownerNames[name], r.aliases[name]} {
		taken = taken || at != "" && at != address
	}
	if there := r.remote(name); there != nil && there.Address != address {
		taken = true
	}
	if taken {
		return ferrule.Errorf(ferrule.Invalid, "%s is the name of another device, or was", name).WithHint("choose another name; to list the devices, run `ferrule devices`")
	}
	return nil
}

// indexAliases makes the aliases of a published device findable.
func (r *registry) indexAliases(dev *ferrule.Device) {
	for _, alias := range dev.Aliases {
		r.aliases[alias] = dev.Address
	}
}

// dropAliases forgets the aliases of a device that is no longer published under an ID.
func (r *registry) dropAliases(id string) {
	for alias, address := range r.aliases {
		if address == r.ids[id] {
			delete(r.aliases, alias)
		}
	}
}
