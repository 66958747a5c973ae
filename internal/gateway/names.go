package gateway

import (
	"context"
	"time"
)

// names renames and labels devices.
type names struct{ *Gateway }

// renameTime limits how long the history may take to rename a device.
const renameTime = 5 * time.Second

// Rename implements builtin.Names. The measurements of the device move first, so that new
// ones continue them.
func (n names) Rename(id, name string) error {
	if err := n.Dock.CheckRename(id, name); err != nil {
		return err
	}
	dev, _, known := n.Fleet.Lookup(id)
	if !known || dev.ID == name {
		return n.Dock.Rename(id, name)
	}
	n.moveHistory(dev.ID, name)
	err := n.Dock.Rename(id, name)
	if err != nil {
		n.moveHistory(name, dev.ID)
	}
	if now, _, ok := n.Fleet.Lookup(name); ok {
		n.Stop.Follow(now)
	}
	return err
}

// moveHistory moves the measurements of a device to its new name. Without them the device
// is renamed all the same.
func (n names) moveHistory(from, to string) {
	if n.History == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), renameTime)
	defer cancel()
	if err := n.History.Rename(ctx, from, to); err != nil {
		n.parts.Log.Warn("earlier measurements stay under the name "+from, "device", to, "err", err)
	}
}

// Label implements builtin.Names.
func (n names) Label(id string, set map[string]string, remove []string) (map[string]string, error) {
	return n.Dock.Label(id, set, remove)
}
