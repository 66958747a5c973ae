package cluster

import (
	"errors"
	"sync"
	"testing"

	"github.com/ferrulehq/ferrule/internal/cluster/shared"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestSharedAlone checks that a single node has its shared records after a restart.
func TestSharedAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, want := range []string{"", "v"} {
		a := nodeWith(t, "a", DefaultConfig(), noJournal{}, dir)
		var mu sync.Mutex
		got := ""
		a.cluster.Shared().Watch(func(key string, value []byte) {
			mu.Lock()
			defer mu.Unlock()
			got = string(value)
		})
		wait.For(t, "the record is there: "+want, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return got == want && a.cluster.State().Working
		})
		if err := a.cluster.Shared().Put("k", []byte("v")); err != nil && !errors.Is(err, shared.ErrNotWritten) {
			t.Fatal(err)
		}
		wait.For(t, "written", func() bool { return a.cluster.Shared().Unsaved() == 0 })
		a.stop()
	}
}
