package gateway

import (
	"net/url"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// deviceParts returns what the pages on devices need.
func (g *Gateway) deviceParts() api.DeviceParts {
	parts := api.DeviceParts{
		Fleet: g.Fleet, Visible: g.visibility.Of, Codes: g.shownCodes, Listeners: g.listeners,
		Stopped: func(dev *ferrule.Device) string { return g.Stop.Stopped().For(dev) },
	}
	if g.History != nil {
		parts.Values = g.History
	}
	return parts
}

// shownCodes returns the devices that show a code.
func (g *Gateway) shownCodes() (all []api.ShownCode) {
	for _, w := range g.waiting() {
		all = append(all, api.ShownCode{Code: w.Code, Device: showingCode(w)})
	}
	return all
}

// listeners returns where devices reach the gateway, and where it looks for them. URLs are
// returned without what may be secret.
func (g *Gateway) listeners() api.Listeners {
	cfg := g.parts.Config
	out := api.Listeners{HTTP: g.URL(), Config: g.parts.ConfigFile}
	if g.DialIn != nil {
		out.Devices, out.Codes = g.DialIn.URL(), g.DialIn.activation != nil
	}
	for _, d := range cfg.Devices.Serial {
		out.Serial = out.Serial || d.Port == config.Auto
	}
	for _, d := range cfg.Devices.TCP {
		out.TCP = append(out.TCP, d.Address)
	}
	for _, d := range cfg.Devices.HTTP {
		if u, err := url.Parse(d.URL); err == nil && u.Host != "" {
			out.URLs = append(out.URLs, u.Scheme+"://"+u.Host+u.Path)
		}
	}
	for _, b := range cfg.Brokers() {
		out.Brokers = append(out.Brokers, b.Name)
	}
	for _, h := range cfg.Homes() {
		out.Homes = append(out.Homes, h.Name)
	}
	return out
}
