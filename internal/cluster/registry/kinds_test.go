package registry

import (
	"fmt"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestRequestOnce checks that a device waits for its manifest once, however often its
// record changes.
func TestRequestOnce(t *testing.T) {
	r := testRegistry()
	for n := range 3 {
		dev := robotAt("b", ferrule.StateOnline, 1)
		dev.ID, dev.Kind = fmt.Sprint("lost", n), ferrule.Kind(fmt.Sprint("lost", n))
		for revision := range uint64(5) {
			r.view.update(dev.ID, entry{device: dev, revision: 1000 + revision})
		}
	}
	if len(r.kinds.waiting) != 3 {
		t.Errorf("%d manifests are requested, want 3", len(r.kinds.waiting))
	}
	for key, ids := range r.kinds.waiting {
		if len(ids) != 1 {
			t.Errorf("%d devices wait for %s, want 1", len(ids), key.kind)
		}
	}
}
