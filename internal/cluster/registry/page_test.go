package registry

import (
	"fmt"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestPage checks what the reference page says about buckets, records and leases.
func TestPage(t *testing.T) {
	page := clustertest.OpenPage(t)
	n := engine.Names{Tenant: "TENANT", Node: "NODE"}
	page.Names(engine.NodesBucket, engine.KindsBucket, engine.DevicesBucket(0), n.Key("ID"), n.Key("NODE"), n.Key("KIND"), engine.LayoutKey)
	page.Says(
		fmt.Sprintf("%d MiB", maxLeasesBytes>>20), fmt.Sprintf("%d GiB", maxKindsBytes>>30), fmt.Sprintf("%d KiB", maxRecord>>10), fmt.Sprintf("%d KiB", maxPacked>>10),
		fmt.Sprintf("%v seconds", LeaseTTL.Seconds()), fmt.Sprintf("every %v", LeaseRenew.Seconds()),
	)
	pump := &ferrule.Device{
		ID: "pump", Address: "usb:2341:0043:85735313", Transport: "serial", Protocol: "mcpu", Node: "north",
		Kind:  "cb80d5cc8edddbc90f8b2000a71eb73c321bb340a27432434e19b109bfefd752",
		State: ferrule.StateOnline, Since: time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC), Trust: ferrule.TrustAdopted,
	}
	page.Shows(recordOf(pump, 7), lease{"k3v7m2q6x4t5w2a3b7c6", "h5d2n7c4qa", "1.4.0"}, layout{16})
	page.Explains(record{}, lease{}, layout{})
}
