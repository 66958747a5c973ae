package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// homes lists what is wrong with the gateway's connections to Home Assistants.
func (d *Doctor) homes(context.Context) []Finding {
	var all []Finding
	for _, problem := range d.gateway.status.Homes {
		all = append(all, Finding{
			Check: "homes", State: Wrong, Found: problem,
			Next: "agents do not see all devices there. The gateway keeps trying, except with a token that was refused; see docs/how-to/home-assistant.md",
		})
	}
	return all
}

// homeAssistants checks the configured Home Assistants, all at the same time.
func (d *Doctor) homeAssistants(ctx context.Context) []Finding {
	list := d.settings().Homes()
	results := make([][]Finding, len(list))
	var tasks sync.WaitGroup
	for i, h := range list {
		tasks.Go(func() { results[i] = checkHome(ctx, h) })
	}
	tasks.Wait()
	var all []Finding
	for i, found := range results {
		for _, f := range found {
			f.About = list[i].Name
			all = append(all, f)
		}
	}
	return all
}

// checkHome connects to a Home Assistant without logging in: it warns its owner of each token
// that is wrong, and may ban this machine.
func checkHome(ctx context.Context, h config.Home) []Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTime-lateTime)
	defer cancel()
	about := fmt.Sprintf("Home Assistant %s at %s", h.Name, h.URL)
	reach := Finding{Check: "reach", State: Fine}
	if version, err := api.Probe(ctx, h.Client()); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = errors.New("no answer in time")
		}
		reach.State, reach.Found = Wrong, fmt.Sprintf("%s: %v", about, err)
		reach.Next = "start Home Assistant, or correct devices.homeassistant in the configuration; then run `ferrule doctor` again"
	} else {
		reach.Found = fmt.Sprintf("%s answers, with version %s", about, version)
	}
	all := []Finding{reach}
	if _, err := h.ReadToken(); err != nil {
		all = append(all, Finding{
			Check: "token", State: Wrong, Found: fmt.Sprintf("%s: %v", about, err),
			Next: fmt.Sprintf("run `ferrule setup homeassistant %s --name %s --file %s`", h.URL, h.Name, h.File),
		})
	}
	if u, err := url.Parse(h.URL); err == nil && u.Scheme == "http" && !h.Local() {
		all = append(all, Finding{
			Check: "tls", State: Note, Found: fmt.Sprintf("%s is used without TLS: others on the network can read its access token", about),
			Next: "give Home Assistant a certificate, or use it in a network that you trust",
		})
	}
	return all
}
