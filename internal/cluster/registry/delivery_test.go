//go:build bench

package registry

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// TestDelivery measures how many records one server delivers in a second to watchers on
// the same cores: stored records that all watchers read at once, and changes one by one.
// The storm simulation takes its rates from here, so a server must deliver at least as many.
func TestDelivery(t *testing.T) {
	const watchers, stored, changes = 100, 10_000, 1000
	cfg := clustertest.OneServer(t)
	open := func() jetstream.KeyValue {
		kv, err := clustertest.Connect(t, cfg.Servers[0]).CreateOrUpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "records"})
		if err != nil {
			t.Fatal(err)
		}
		return kv
	}
	record := []byte(strings.Repeat("x", 217)) // the size in docs/figures/nodes.md
	kv := open()
	for i := range stored {
		if _, err := kv.Put(t.Context(), fmt.Sprintf("tenant.sensor-%06d", i), record); err != nil {
			t.Fatal(err)
		}
	}
	all := make([]jetstream.KeyValue, watchers)
	for i := range all {
		all[i] = open()
	}
	var reading, following sync.WaitGroup
	reading.Add(watchers)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	start := time.Now()
	for _, kv := range all {
		following.Go(func() {
			w, err := kv.Watch(ctx, "tenant.*")
			if err != nil {
				t.Error(err)
				reading.Done()
				return
			}
			defer w.Stop()
			for n := 0; n < stored+changes; n++ {
				if e := <-w.Updates(); e == nil {
					reading.Done()
					n--
				}
			}
		})
	}
	reading.Wait()
	took := time.Since(start)
	t.Logf("one server delivers %.0f stored records a second, to %d watchers", watchers*stored/took.Seconds(), watchers)
	figure.AtMost(t, "delivering a stored record, limit what the simulation expects", took/(watchers*stored), time.Second/storedRate)
	start = time.Now()
	for i := range changes { // of different keys: a watcher that is behind misses overwritten values
		if _, err := kv.Put(ctx, fmt.Sprintf("tenant.sensor-%06d", i), record); err != nil {
			t.Fatal(err)
		}
	}
	following.Wait()
	took = time.Since(start)
	t.Logf("one server delivers %.0f changes a second, to %d watchers", watchers*changes/took.Seconds(), watchers)
	figure.AtMost(t, "delivering a change, limit what the simulation expects", took/(watchers*changes), time.Second/changedRate)
}
