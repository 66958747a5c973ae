package builtin_test

import (
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// hiding returns a See that hides a device, or a tool, from callers.
func hiding(name string) builtin.See {
	return func(who ferrule.Principal) ferrule.Visibility {
		return ferrule.Visibility{AllDevices: who.Role == ferrule.Person, Shows: func(dev *ferrule.Device, _ ferrule.Operation, tool *ferrule.Tool) bool {
			return dev.ID != name && tool.Name != name
		}}
	}
}

// TestHidden checks that no tool tells an agent about a device that is hidden from it. A
// person sees the device, but not its tools.
func TestHidden(t *testing.T) {
	signals, devices := someSignals(), someDevices()
	set := func(see builtin.See) *builtin.Set {
		return newSet(t, builtin.ListDevices(devices, see), builtin.DescribeDevice(devices, see), builtin.DeviceState(talkative{devices}, see),
			builtin.Latest(devices, see, signals), builtin.History(devices, see, signals), builtin.SQL(devices, see, answers{}, "samples(value)"),
			builtin.Plot(devices, see, signals, callLog{}, func(builtin.Chart) ([]byte, error) { return nil, nil }))
	}
	b := set(hiding("a"))
	var list builtin.ListDevicesOutput
	if err := call(t, b, ferrule.Agent, "list_devices", `{}`, &list); err != nil || listed(list) != "c next:" || list.Total != 1 {
		t.Errorf("got %v of %d, %v", listed(list), list.Total, err)
	}
	if err := call(t, b, ferrule.Person, "list_devices", `{}`, &list); err != nil || listed(list) != "a b c next:" || list.Devices[0].Tools != 0 || list.Devices[2].Tools != 2 {
		t.Errorf("got %+v, %v", list, err)
	}
	for _, tool := range []string{"describe_device", "device_state", "latest", "history", "plot"} {
		if err := call(t, b, ferrule.Agent, tool, `{"device":"a"}`, &struct{}{}); code(err) != ferrule.NotFound {
			t.Errorf("%s: got %v", tool, err)
		}
	}
	if err := call(t, b, ferrule.Agent, "sql", `{"query":"SELECT 1"}`, &struct{}{}); code(err) != ferrule.Denied || !strings.Contains(err.Error(), "hides some") {
		t.Errorf("got %v", err)
	}
	for role, see := range map[ferrule.Role]builtin.See{ferrule.Person: hiding("a"), ferrule.Agent: hiding("reset")} {
		if err := call(t, set(see), role, "sql", `{"query":"SELECT 1"}`, &struct{}{}); err != nil {
			t.Errorf("%s: got %v", role, err)
		}
	}
	var one builtin.DescribeDeviceOutput
	if err := call(t, b, ferrule.Person, "describe_device", `{"device":"a"}`, &one); err != nil || len(one.Tools) != 0 {
		t.Errorf("got %+v, %v", one.Tools, err)
	}
	if err := call(t, set(hiding("broken")), ferrule.Agent, "describe_device", `{"device":"a"}`, &one); err != nil || len(one.Tools) != 1 || one.Device.Unusable != 0 {
		t.Errorf("got %+v, %v", one, err)
	}
}
