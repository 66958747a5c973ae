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
	var pending, away []string
	for _, dev := range list.Devices {
		switch {
		case dev.ID == ferrule.GatewayID:
		case dev.Trust == string(ferrule.TrustPending):
			pending = append(pending, dev.ID)
		case dev.Protocol == "homeassistant" && dev.State == string(ferrule.StateOffline):
			away = append(away, dev.ID)
		default:
			all = append(all, device(dev)...)
		}
	}
	all = append(all, strangers(pending)...)
	if len(away) > 0 {
		all = append(all, Finding{
			Check: "board", State: Note, Found: "offline devices of Home Assistant: " + builtin.FirstOf(away),
			Next: "`ferrule devices` says why; run `ferrule forget DEVICE...` with those that are gone for good",
		})
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

// strangers reports the devices that are not adopted: each by itself if they are few, because a
// Home Assistant or a broker has many.
func strangers(ids []string) (all []Finding) {
	const few = 3
	if len(ids) > few {
		return []Finding{{
			Check: "board", State: Note, Found: fmt.Sprintf("%d devices were found and are not adopted: %s", len(ids), builtin.FirstOf(ids)),
			Next: "run `ferrule adopt DEVICE...` with those that agents may use; `ferrule devices` lists them. For all devices of a Home Assistant or a broker, set adopt: all in ferrule.yaml",
		}}
	}
	for _, id := range ids {
		all = append(all, Finding{
			Check: "board", About: id, State: Note, Found: id + " was found and is not adopted",
			Next: fmt.Sprintf("run `ferrule adopt %s` if it is yours", id),
		})
	}
	return all
}

// device checks one device that is adopted.
func device(dev builtin.DescribedDevice) []Finding {
	f := Finding{Check: "board", About: dev.ID, State: Fine}
	text := dev.Remark()
	switch {
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
	if dev.Unusable > 0 {
		all = append(all, Finding{
			Check: "tools", About: dev.ID, State: Note, Found: fmt.Sprintf("%s has tools that cannot be used: %d", dev.ID, dev.Unusable),
			Next: fmt.Sprintf("run `ferrule tools %s` to see why; an overlay may help", dev.ID),
		})
	}
	return all
}
