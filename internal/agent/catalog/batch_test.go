package catalog_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestRun checks that changes are reported in batches.
func TestRun(t *testing.T) {
	m := manifest("board", "read")
	for _, test := range []struct {
		name   string
		change func(c *catalog.Catalog)
		want   []time.Duration
	}{
		{"none", func(*catalog.Catalog) {}, nil},
		{"one", func(c *catalog.Catalog) { put(c, "a", 1, m) }, []time.Duration{250 * time.Millisecond}},
		{"nothing that a list would show", func(c *catalog.Catalog) {
			put(c, "a", 1, m)
			time.Sleep(time.Second)
			dev := online("a-0", m)
			dev.Labels = map[string]string{"room": "attic"}
			c.Put(dev, m)
			c.Remove("nobody")
		}, []time.Duration{250 * time.Millisecond}},
		{"a burst", func(c *catalog.Catalog) { put(c, "a", 1000, m) }, []time.Duration{250 * time.Millisecond}},
		{"two, soon", func(c *catalog.Catalog) {
			put(c, "a", 1, m)
			time.Sleep(200 * time.Millisecond)
			put(c, "b", 1, m)
		}, []time.Duration{450 * time.Millisecond}},
		{"two, later", func(c *catalog.Catalog) {
			put(c, "a", 1, m)
			time.Sleep(time.Second)
			c.Remove("a-0")
		}, []time.Duration{250 * time.Millisecond, 1250 * time.Millisecond}},
		{"all the time", func(c *catalog.Catalog) {
			for i := range 500 { // five seconds
				c.Put(online(fmt.Sprintf("a-%d", i%7), m), m)
				time.Sleep(10 * time.Millisecond)
				c.Remove(fmt.Sprintf("a-%d", i%7))
			}
		}, []time.Duration{2 * time.Second, 4 * time.Second, 5250 * time.Millisecond}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := catalog.New(catalog.DefaultConfig())
				start := time.Now()
				var told []time.Duration
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() {
					done <- c.Run(ctx, func() { told = append(told, time.Since(start).Round(50*time.Millisecond)) })
				}()
				synctest.Wait()
				test.change(c)
				time.Sleep(time.Minute)
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				if !slices.Equal(told, test.want) {
					t.Errorf("told after %v, want %v", told, test.want)
				}
			})
		})
	}
}

// TestRunEnds checks that Run ends at once, and that the next Run reports pending changes.
func TestRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := catalog.New(catalog.DefaultConfig())
		m := manifest("board", "read")
		put(c, "a", 1, m)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		if err := c.Run(ctx, func() { t.Error("told") }); err != nil || time.Since(start) != 100*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if _, shape := c.List(); shape != catalog.Plain {
			t.Errorf("got %s", shape)
		}
		c.Put(as(online("a-0", m), ferrule.StateOffline, ferrule.TrustAdopted), m)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		told := 0
		if err := c.Run(ctx, func() { told++ }); err != nil || told != 1 {
			t.Errorf("%v, told %d times", err, told)
		}
	})
}
