package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// absent lists the offline reasons of a device that is not plugged in or has no power.
var absent = []string{"no longer in reach", "the gateway stopped unexpectedly", "connecting"}

// listDevices asks the gateway for its first thousand devices.
func (d *Doctor) listDevices(ctx context.Context) (builtin.ListDevicesOutput, error) {
	client := control.NewClient(d.gateway.socket)
	defer client.Close()
	return control.CallBuiltin[builtin.ListDevicesOutput](ctx, client, "list_devices", builtin.ListDevicesInput{Limit: 1000})
}

// devices checks the devices of the gateway. Those with problems come first.
func (d *Doctor) devices(ctx context.Context) []Finding {
	const limit = 50
	if d.gateway.err != nil {
		return nil // running reports that
	}
	list, err := d.list(ctx)
	if err != nil {
		return []Finding{{Check: "board", State: Note, Found: "the gateway did not list its devices: " + err.Error(), Next: "try again"}}
	}
	var all []Finding
	for _, dev := range list.Devices {
		if dev.ID != ferrule.GatewayID {
			all = append(all, device(dev)...)
		}
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(rank[a.State], rank[b.State]) })
	if rest := list.Total - len(list.Devices) + len(all) - limit; rest > 0 && len(all) > limit {
		all = append(all[:limit], Finding{Check: "more", State: Fine, Found: fmt.Sprintf("and %d more", rest), Next: "run `ferrule devices` to list them"})
	}
	if len(all) == 0 {
		all = append(all, Finding{Check: "board", State: Note, Found: "the gateway has no devices", Next: "run `ferrule up --serial auto` to use boards that are plugged in, or add --tcp HOST:PORT"})
	}
	return all
}

// device checks one device.
func device(dev builtin.DescribedDevice) []Finding {
	f := Finding{Check: "board", About: dev.ID, State: Fine}
	text := dev.Remark()
	switch {
	case dev.Trust == string(ferrule.TrustPending):
		f.State, f.Found, f.Next = Note, dev.ID+" was found and is not adopted", fmt.Sprintf("run `ferrule adopt %s` if it is yours", dev.ID)
	case dev.State == string(ferrule.StateReleased):
		f.State, f.Found, f.Next = Note, dev.ID+" "+text, fmt.Sprintf("it reconnects by itself; run `ferrule release %s --for 0s` to reconnect now", dev.ID)
	case dev.State == string(ferrule.StateOnline):
		f.Found = fmt.Sprintf("%s is online, with %d tools", dev.ID, dev.Tools)
	case slices.Contains(absent, dev.Reason):
		f.State, f.Found, f.Next = Note, fmt.Sprintf("%s is offline %s", dev.ID, text), fmt.Sprintf("plug it in or power it up; run `ferrule forget %s` if it is gone for good", dev.ID)
	case dev.Protocol == "hass":
		f.State, f.Found, f.Next = Note, fmt.Sprintf("%s is offline %s", dev.ID, text), fmt.Sprintf("check it, and Zigbee2MQTT or what else speaks for it; run `ferrule forget %s` if it is gone for good", dev.ID)
	default:
		f.State, f.Found, f.Next = Wrong, fmt.Sprintf("%s is offline, %s", dev.ID, text), "look up this message in docs/how-to/troubleshooting.md"
	}
	all := []Finding{f}
	if dev.Unusable > 0 && dev.Trust != string(ferrule.TrustPending) {
		all = append(all, Finding{
			Check: "tools", About: dev.ID, State: Note, Found: fmt.Sprintf("%s has tools that cannot be used: %d", dev.ID, dev.Unusable),
			Next: fmt.Sprintf("run `ferrule tools %s` to see why; an overlay may help", dev.ID),
		})
	}
	return all
}
