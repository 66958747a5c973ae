package discovery

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestHomeUnits: Home Assistant takes each unit together with its class, and the class with
// measurements. It would refuse the entity otherwise.
func TestHomeUnits(t *testing.T) {
	dir := os.Getenv("FERRULE_TEST_HOMEASSISTANT")
	if dir == "" {
		t.Skip("FERRULE_TEST_HOMEASSISTANT is not set: see internal/testenv/homeassistant")
	}
	const program = `
import json
from homeassistant.components.sensor.const import DEVICE_CLASS_UNITS, DEVICE_CLASS_STATE_CLASSES
print(json.dumps({str(c): [str(u) for u in units] for c, units in DEVICE_CLASS_UNITS.items() if "measurement" in DEVICE_CLASS_STATE_CLASSES[c]}))
`
	out, err := exec.Command(filepath.Join(dir, "bin", "python"), "-c", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	var taken map[string][]string
	if err := json.Unmarshal(out, &taken); err != nil {
		t.Fatal(err)
	}
	for _, unit := range slices.Sorted(maps.Keys(units)) {
		if !slices.Contains(taken[units[unit]], unit) {
			t.Errorf("Home Assistant does not take %s for %s", unit, units[unit])
		}
	}
}
