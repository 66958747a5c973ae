package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestManifestsMissing: that some manifests never come does not keep others from being
// fetched, and who waits for one waits once, however often it is told of.
func TestManifestsMissing(t *testing.T) {
	a, b, _ := pair(t)
	for n := range 2 * fetchesAtOnce {
		dev := *a.sees("robot")
		dev.ID, dev.Kind = fmt.Sprint("lost", n), ferrule.Kind(fmt.Sprint("lost", n))
		for revision := range uint64(5) {
			a.bus.view.update(dev.ID, entry{&dev, 1000 + revision})
		}
	}
	time.Sleep(100 * time.Millisecond)
	b.has("lamp", "lamp", ferrule.StateOnline)
	eventually(t, 5*time.Second, "a sees lamp", func() bool { return a.sees("lamp") != nil })
	a.bus.kinds.mu.Lock()
	defer a.bus.kinds.mu.Unlock()
	for key, ids := range a.bus.kinds.waiting {
		if len(ids) != 1 {
			t.Errorf("%d wait for %s", len(ids), key.kind)
		}
	}
}
