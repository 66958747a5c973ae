package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// away are reasons to be offline that a board has which is simply not there.
var away = []string{"no longer in reach", "the gateway stopped unexpectedly", "connecting"}

// listDevices asks the gateway for its devices; for the first thousand.
func (d *doctor) listDevices(ctx context.Context) (builtin.ListDevicesOutput, error) {
	client := control.NewClient(d.gateway.socket)
	defer client.Close()
	return callOwn[builtin.ListDevicesOutput](ctx, client, "list_devices", builtin.ListDevicesInput{Limit: 1000})
}

// boards tells of the devices that the gateway has seen, those first with which
// something is wrong.
func (d *doctor) boards(ctx context.Context) []finding {
	const most = 50
	if d.gateway.err != nil {
		return nil // there is nobody to ask, and that is told
	}
	list, err := d.devices(ctx)
	if err != nil {
		return []finding{{Check: "board", State: note, Found: "the gateway does not tell of its boards: " + err.Error(), Next: "try again"}}
	}
	var all []finding
	for _, dev := range list.Devices {
		if dev.ID != ferrule.GatewayID {
			all = append(all, board(dev)...)
		}
	}
	rank := map[health]int{wrong: 0, note: 1, fine: 2}
	slices.SortStableFunc(all, func(a, b finding) int { return cmp.Compare(rank[a.State], rank[b.State]) })
	if rest := list.Total - len(list.Devices) + len(all) - most; rest > 0 && len(all) > most {
		all = append(all[:most], finding{Check: "more", State: fine, Found: fmt.Sprintf("and %d more", rest), Next: "`ferrule devices` lists them"})
	}
	if len(all) == 0 {
		all = append(all, finding{Check: "board", State: note, Found: "the gateway has seen no board", Next: "`ferrule up --serial auto` finds what is plugged in, --tcp HOST:PORT names one"})
	}
	return all
}

// board tells of one device.
func board(dev builtin.DescribedDevice) []finding {
	f := finding{Check: "board", About: dev.ID, State: fine}
	text := remark(dev)
	switch {
	case dev.Trust == string(ferrule.TrustPending):
		f.State, f.Found, f.Next = note, dev.ID+" was found, and waits", fmt.Sprintf("`ferrule adopt %s`, if it is yours", dev.ID)
	case dev.State == string(ferrule.StateReleased):
		f.State, f.Found, f.Next = note, dev.ID+" "+text, fmt.Sprintf("it is taken back by itself; `ferrule release %s --for 0s` does so now", dev.ID)
	case dev.State == string(ferrule.StateOnline):
		f.Found = fmt.Sprintf("%s is online, with %d tools", dev.ID, dev.Tools)
	case slices.Contains(away, dev.Reason):
		f.State, f.Found, f.Next = note, fmt.Sprintf("%s is offline %s", dev.ID, text), fmt.Sprintf("plug it in, or give it power; `ferrule forget %s`, if it is gone for good", dev.ID)
	default:
		f.State, f.Found, f.Next = wrong, fmt.Sprintf("%s is offline, %s", dev.ID, text), "docs/how-to/troubleshooting.md tells what to do, by what it says"
	}
	all := []finding{f}
	if dev.Unusable > 0 {
		all = append(all, finding{
			Check: "tools", About: dev.ID, State: note, Found: fmt.Sprintf("tools of %s that cannot be used: %d", dev.ID, dev.Unusable),
			Next: fmt.Sprintf("`ferrule tools %s` tells why; an overlay may help", dev.ID),
		})
	}
	return all
}
