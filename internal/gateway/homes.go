package gateway

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// homes connects to the configured Home Assistants. Each has one connection, which all its
// devices share.
type homes struct {
	*hubs[config.Home, *homeConnection]
	log *slog.Logger
	// devices returns the IDs of the devices behind a Home Assistant that a caller may see, by
	// address. It must be set before Watch.
	devices func(home string, who ferrule.Principal) map[string]string
}

// homeConnection is a Home Assistant that is in use.
type homeConnection struct {
	*connection
	cfg    config.Home
	client *api.Client
	hub    *homeassistant.Hub
}

func newHomes(all []config.Home, log *slog.Logger) *homes {
	h := &homes{log: log, hubs: newHubs[config.Home, *homeConnection](all, func(cfg config.Home) string { return cfg.Name })}
	h.start = h.connect
	return h
}

// connect connects to a Home Assistant.
func (h *homes) connect(ctx context.Context, cfg config.Home, report reportFunc) *homeConnection {
	log := h.log.With("home", cfg.Name)
	ctx, stop := context.WithCancel(ctx)
	client := api.New(cfg.Client(), log)
	hub := homeassistant.NewHub(homeassistant.HubConfig{
		Home: cfg.Name, Local: cfg.Local(), Adopt: cfg.Adopt, All: cfg.All, Settings: cfg.Settings,
	}, client, log)
	r := &homeConnection{cfg: cfg, client: client, hub: hub, connection: newConnection(cfg.Name, stop, client.Changed())}
	own := homeassistant.NewHomeDevice(homeassistant.HomeConfig{
		Name: cfg.Name, Local: cfg.Local(), Devices: func(who ferrule.Principal) map[string]string { return h.devices(cfg.Name, who) },
	}, hub)
	go r.run(ctx, []func(context.Context) error{client.Run, r.watches(hub, report), r.watches(own, report)}, log)
	return r
}

// hub returns the hub of a Home Assistant that is in use; nil if there is none of that name.
func (h *homes) hub(name string) *homeassistant.Hub {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.running[name]; r != nil {
		return r.hub
	}
	return nil
}

// problem implements hub.
func (r *homeConnection) problem() string {
	failed, status, found := r.failure(), r.client.Status(), r.hub.Status()
	about := fmt.Sprintf("Home Assistant %s at %s ", r.cfg.Name, r.cfg.URL)
	switch {
	case failed != nil:
		return fmt.Sprintf("%scannot be used: %v", about, failed)
	case !r.wasTried():
		return ""
	case status.Refused:
		return fmt.Sprintf("%srefused the access token; run `ferrule setup homeassistant %s` with another one", about, r.cfg.URL)
	case !status.Connected:
		return fmt.Sprintf("%sis not connected since %s: %s", about, ferrule.FormatTime(status.Since), status.Reason)
	case found.Note != "":
		return about + found.Note
	}
	return ""
}

// reading implements hub.
func (r *homeConnection) reading() bool {
	return !r.wasTried() || r.client.Status().Connected && !r.hub.Status().Complete
}

// devicesBehind returns the IDs of this node's devices behind a hub that a caller may see, by
// address.
func (g *Gateway) devicesBehind(hub string, who ferrule.Principal) map[string]string {
	var behind []*ferrule.Device
	g.Fleet.EachOwn(func(dev *ferrule.Device) {
		if dev.Hub == hub && who.CanSee(dev) {
			behind = append(behind, dev)
		}
	})
	seen, all := g.visibility.Of(who), make(map[string]string, len(behind))
	for _, dev := range behind {
		if _, m, ok := g.Fleet.Lookup(dev.ID); ok && seen.Device(dev, m) {
			all[dev.Address] = dev.ID
		}
	}
	return all
}
