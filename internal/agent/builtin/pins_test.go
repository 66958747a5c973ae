package builtin_test

import (
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// boardOf is a fleet of one board with some tools.
type boardOf struct {
	fleetOf
	tools []ferrule.Tool
}

func (b boardOf) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	d, _, ok := b.fleetOf.Lookup(id)
	return d, &ferrule.Manifest{Tools: b.tools}, ok
}

// TestToolsWithoutPins checks that a built-in tool for pins that the board does not have is
// counted neither as a tool nor as an unusable one.
func TestToolsWithoutPins(t *testing.T) {
	board := boardOf{someDevices()[:1], []ferrule.Tool{
		{Name: "gpio_write"}, {Name: "pwm_write", Quarantine: "the device has no pin of type pwm_output"}, {Name: "odd", Quarantine: "no name"},
	}}
	var one builtin.DescribeDeviceOutput
	everything := func(ferrule.Principal) ferrule.Visibility { return ferrule.Visibility{AllDevices: true} }
	if err := call(t, newSet(t, builtin.DescribeDevice(board, everything)), ferrule.Person, "describe_device", `{"device":"a"}`, &one); err != nil {
		t.Fatal(err)
	}
	if one.Device.Tools != 1 || one.Device.Unusable != 1 || len(one.Tools) != 3 {
		t.Errorf("got %d tools, %d unusable, %d in the list", one.Device.Tools, one.Device.Unusable, len(one.Tools))
	}
}
