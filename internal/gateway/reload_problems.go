package gateway

import (
	"fmt"
	"os"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// readFrom says which files a reload has read.
func readFrom(file, overlays string) (all []string) {
	for _, path := range []string{file, overlays} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			path += " (does not exist)"
		}
		all = append(all, path)
	}
	return all
}

// unmatchedOverlays says which overlays name a device that the gateway does not know.
func (g *Gateway) unmatchedOverlays(files []*overlay.File) (problems []string) {
	for _, f := range files {
		id := f.Match.Device
		if id == "" || len(problems) == maxNamed {
			continue
		}
		dev, _, ok := g.Fleet.Lookup(id)
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("an overlay is for the device %s, which is not known; to list the devices, run `ferrule devices`", id))
		case dev.ID != id:
			problems = append(problems, fmt.Sprintf("an overlay is for the device %s, which is now called %s; change match.device", id, dev.ID))
		}
	}
	return problems
}

// unusable says which tools of devices cannot be called, and what their overlays name that they
// do not have.
func (g *Gateway) unusable(devices []string) (problems []string) {
	for _, id := range devices {
		dev, m, ok := g.Fleet.Lookup(id)
		if !ok || m == nil {
			continue
		}
		for i := range m.Tools {
			if t := &m.Tools[i]; t.Quarantine != "" {
				problems = append(problems, fmt.Sprintf("%s: %s cannot be called: %s", id, t.Name, t.Quarantine))
			}
		}
		for _, note := range g.overlays.UnknownTools(dev.Protocol, dev.Kind, id, m) {
			problems = append(problems, id+": "+note)
		}
	}
	if n := len(problems); n > maxNamed {
		problems = append(problems[:maxNamed], fmt.Sprintf("%d more; to see them, run `ferrule describe DEVICE`", n-maxNamed))
	}
	for i, text := range problems { // names come from devices
		problems[i] = ferrule.OneLine(ferrule.Clean(text, ferrule.MaxText), ferrule.MaxText)
	}
	return problems
}
