package catalog

import (
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestCountsFor checks that a caller who is limited to some devices learns of no others, not
// even how many there are.
func TestCountsFor(t *testing.T) {
	c := New(DefaultConfig())
	c.Put(&ferrule.Device{ID: ferrule.GatewayID, Kind: "g", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, &ferrule.Manifest{Model: "ferrule"})
	for id, dev := range map[string]ferrule.Device{
		"lamp-1": {Kind: "lamp", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, "lamp-2": {Kind: "lamp", State: ferrule.StateReleased, Trust: ferrule.TrustAdopted},
		"lock-1": {Kind: "lock", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, "lock-2": {Kind: "lock", State: ferrule.StateOnline, Trust: ferrule.TrustPending},
		"lock-3": {Kind: "lock", State: ferrule.StateOffline, Trust: ferrule.TrustAdopted},
	} {
		dev.ID = id
		c.Put(&dev, &ferrule.Manifest{Model: string(dev.Kind), Tools: []ferrule.Tool{{Name: "look", Effect: ferrule.Reads}}})
	}
	for devices, want := range map[string]Counts{
		"lamp-*": {Online: 1, Released: 1, Kinds: 1}, "lock-2": {Pending: 1}, "lock-1,lamp-1": {Online: 2, Kinds: 2}, "ghost": {}, "": c.Counts(),
	} {
		if got := c.CountsFor(ferrule.Principal{Role: ferrule.Agent, Devices: devices}); got != want {
			t.Errorf("%q: %+v, want %+v", devices, got, want)
		}
	}
}
