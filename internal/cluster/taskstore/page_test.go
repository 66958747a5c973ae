package taskstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
)

// TestPage checks what the reference page says about the records of tasks.
func TestPage(t *testing.T) {
	page := clustertest.OpenPage(t)
	page.Names(engine.TasksBucket)
	page.Says(
		fmt.Sprintf("%d MiB; %d MiB each", maxBytes>>20, MaxRecord>>20), fmt.Sprintf("at most %d days", maxTTL/(24*time.Hour)),
		fmt.Sprintf("parts of %d KiB", partSize>>10),
	)
}
