package fleet

import "github.com/ferrulehq/ferrule/internal/ferrule"

// entry is what is known of one ID. There may be very many, mostly with one record.
type entry struct {
	own       *Record // as this node knows it; nil if it does not
	elsewhere *Record // as other nodes do
}

// seen returns the record that counts, or nil if there is none: that of the node
// which holds the device, else that of the node which held it last.
func (e entry) seen() *Record {
	switch {
	case e.elsewhere == nil:
		return e.own
	case e.own == nil:
		return e.elsewhere
	}
	own, other := e.own.Device, e.elsewhere.Device
	switch {
	case own.State == ferrule.StateOnline:
		return e.own
	case other.State == ferrule.StateOnline:
		return e.elsewhere
	case own.State == ferrule.StateReleased || !other.Since.After(own.Since):
		return e.own
	}
	return e.elsewhere
}
