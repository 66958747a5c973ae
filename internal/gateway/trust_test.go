package gateway

import (
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestAdoptedNote checks what is said about a device without a model.
func TestAdoptedNote(t *testing.T) {
	for want, dev := range map[string]ferrule.Device{
		"It is a lamp at home/1.":      {Model: "lamp", Address: "home/1", State: ferrule.StateOnline},
		"It is at home/1.":             {Address: "home/1", State: ferrule.StateOnline},
		"It is not connected: no one.": {Address: "home/1", State: ferrule.StateOffline, Reason: "no one"},
	} {
		if got := adoptedNote(&dev); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
