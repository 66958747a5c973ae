package gateway

import (
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestOwnToolsHaveNoBounds checks that the gateway's own tools, stop among them, do not
// wait for leases or limits: those of this test cannot even be called.
func TestOwnToolsHaveNoBounds(t *testing.T) {
	call := &ferrule.Call{Device: ferrule.GatewayID, Tool: ferrule.StopTool, Target: ferrule.Target{
		Device: &ferrule.Device{ID: ferrule.GatewayID}, Tool: &ferrule.Tool{Name: ferrule.StopTool, Effect: ferrule.Changes},
	}}
	leave, err := bounds{}.Enter(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	leave(nil)
}
