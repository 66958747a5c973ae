package fleet

import "github.com/ferrulehq/ferrule/internal/ferrule"

// entry holds the records of one ID. There may be a million; most have one record.
type entry struct {
	own    *Record // nil if this node does not know the device
	remote *Record // as other nodes know it
}

// current returns the record that counts, or nil if there is none: that of the
// node which holds the device, else of the node which held it last.
func (e entry) current() *Record {
	switch {
	case e.remote == nil:
		return e.own
	case e.own == nil:
		return e.remote
	}
	own, remote := e.own.Device, e.remote.Device
	switch {
	case own.State == ferrule.StateOnline:
		return e.own
	case remote.State == ferrule.StateOnline:
		return e.remote
	case own.State == ferrule.StateReleased || !remote.Since.After(own.Since):
		return e.own
	}
	return e.remote
}
