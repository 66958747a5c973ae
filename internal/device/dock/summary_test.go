package dock

import (
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestSummary checks the log line of a device without a model or a version.
func TestSummary(t *testing.T) {
	for want, dev := range map[string]ferrule.Device{
		"arm 1.0, adopted, tools: 2": {Model: "arm", Version: "1.0", Trust: ferrule.TrustAdopted},
		"arm, adopted, tools: 2":     {Model: "arm", Trust: ferrule.TrustAdopted},
		"pending, tools: 2":          {Trust: ferrule.TrustPending},
	} {
		if got := summary(&dev, 2); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
