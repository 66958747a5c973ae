package gateway

import (
	"slices"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant"
)

// TestFromHome: nothing that comes from Home Assistant is published there, not even the home
// itself, whose tools would then appear in it as entities.
func TestFromHome(t *testing.T) {
	for _, name := range []string{hass.Name, homeassistant.Name, homeassistant.HomeName} {
		if !slices.Contains(fromHome, name) {
			t.Errorf("%s is published", name)
		}
	}
}
