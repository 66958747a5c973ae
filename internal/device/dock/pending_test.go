package dock_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestPendingDisablesNothing checks that a pending device which copies an adopted one,
// and marks a tool as unusable, does not disable that tool of the adopted one.
func TestPendingDisablesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		disabled := usual("demo")
		disabled.Tools[1].Quarantine = "it must be called as a task"
		w.transport.see("g", found(&board{address: "a1", manifest: disabled}))
		w.transport.see("h", named(&board{address: "a2", model: "demo"}, "robot"))
		check := func() {
			t.Helper()
			if _, m, _ := w.fleet.Lookup("robot"); m == nil || m.Tool("move").Quarantine != "" {
				t.Errorf("got %+v", m)
			}
			if w.device("demo").Kind == w.device("robot").Kind {
				t.Error("a disabled tool does not change the Kind")
			}
		}
		check()
		w.stop()
		w = open(t, dir)
		check()
	})
}

// long returns a manifest with tools whose schemas are large.
func long(model string, tools, schema int) *ferrule.Manifest {
	m := &ferrule.Manifest{Model: model, Version: "1"}
	for i := range tools {
		text := fmt.Sprintf(`{"type":"object","description":%q}`, strings.Repeat("x", schema))
		m.Tools = append(m.Tools, ferrule.Tool{Name: fmt.Sprintf("tool%d", i), Text: "One of many", Input: []byte(text)})
	}
	return m
}

// TestPendingOutline checks that only names and texts of a pending device are kept, and
// that its manifest is complete once it was adopted.
func TestPendingOutline(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		small := &board{address: "a1", manifest: long("small", 2, 100)}
		large := &board{address: "a2", manifest: long("large", 20, 10_000)}
		w.transport.see("g", found(small), found(large))
		for id, b := range map[string]*board{"small": small, "large": large} {
			_, m, _ := w.fleet.Lookup(id)
			if len(m.Tools) != len(b.manifest.Tools) || m.Tools[0].Text == "" || m.Tools[0].Input != nil {
				t.Errorf("%s: got %+v", id, m)
			}
			_, err := w.store.Manifest(w.device(id).Kind)
			if notes := fmt.Sprint(w.device(id).Notes); (err == nil) != (b == small) || strings.Contains(notes, "ferrule adopt large") != (b == large) {
				t.Errorf("%s: stored: %v, notes: %s", id, err, notes)
			}
			kind := w.device(id).Kind
			if err := w.dock.Adopt(id); err != nil {
				t.Fatal(err)
			}
			if dev, m, _ := w.fleet.Lookup(id); dev.State == ferrule.StateOnline && m.Tools[0].Input == nil {
				t.Errorf("%s: it is adopted without its schemas", id)
			}
			synctest.Wait()
			dev, m, _ := w.fleet.Lookup(id)
			if dev.State != ferrule.StateOnline || dev.Kind != kind || len(m.Tools) != len(b.manifest.Tools) || m.Tools[0].Input == nil || len(dev.Notes) > 0 {
				t.Errorf("%s: got %+v, %d tools", id, dev, len(m.Tools))
			}
			if _, err := w.store.Manifest(kind); err != nil {
				t.Error(err)
			}
		}
		if small.get(&small.opened) != 1 || large.get(&large.opened) != 2 {
			t.Errorf("opened %d and %d times", small.opened, large.opened)
		}
	})
}

// TestPendingAfterRestart checks that manifests of pending devices are not read at the
// start, and that an absent one can be adopted.
func TestPendingAfterRestart(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		w.transport.see("g", found(&board{address: "a1", model: "demo"}))
		w.stop()
		w = open(t, dir)
		if dev, m, ok := w.fleet.Lookup("demo"); !ok || m != nil || dev.Trust != ferrule.TrustPending {
			t.Errorf("got %+v, %+v", dev, m)
		}
		if err := w.dock.Adopt("demo"); err != nil {
			t.Fatal(err)
		}
		if dev, m, _ := w.fleet.Lookup("demo"); dev.Trust != ferrule.TrustAdopted || m.Tool("move") == nil || m.Tool("move").Effect == "" {
			t.Errorf("got %+v, %+v", dev, m)
		}
	})
}

// TestStrangersWait checks that of the pending devices with large manifests few are read
// at a time, and that nobody else waits for them, nor anybody for one that is slow.
func TestStrangersWait(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		var reading atomic.Int32
		slow := func(ctx context.Context) {
			if protocol.Pace(ctx, 1<<20) == nil {
				reading.Add(1)
				<-ctx.Done()
			}
		}
		for i := range 10 {
			s := found(&board{address: fmt.Sprint("a", i), listing: slow})
			s.Inbound = true
			w.transport.see(fmt.Sprint("a", i), s)
		}
		for i := range 3 {
			w.transport.see(fmt.Sprint("b", i), found(&board{address: fmt.Sprint("b", i), listing: slow}))
		}
		if n := reading.Load(); n != 2 {
			t.Errorf("%d are read at a time", n)
		}
		small := found(&board{address: "small", model: "small", listing: func(ctx context.Context) { protocol.Pace(ctx, 1000) }})
		small.Inbound = true
		w.transport.see("small", small)
		large := func(ctx context.Context) { protocol.Pace(ctx, 1<<20) }
		w.transport.see("robot", named(&board{address: "robot", model: "demo", listing: large}, "robot"))
		for _, id := range []string{"small", "robot"} {
			if dev := w.device(id); dev.State != ferrule.StateOnline {
				t.Errorf("got %+v", dev)
			}
		}
		time.Sleep(16 * time.Second)
		if n := reading.Load(); n != 4 {
			t.Errorf("%d are read after two were slow", n)
		}
	})
}

// TestPendingBudget checks that any number of pending devices shares one budget, which
// is free again when they are gone.
func TestPendingBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		const count = 150 // of 60 KB each
		boards := make([]*board, count)
		see := func(from, to int) {
			for i := from; i < to; i++ {
				boards[i] = &board{address: fmt.Sprint("a", i), manifest: long(fmt.Sprint("toy", i), 6, 10_000)}
				w.transport.see(fmt.Sprint(i), found(boards[i]))
			}
		}
		kept := func() (n int) {
			for _, dev := range w.fleet.Devices() {
				if _, m, _ := w.fleet.Lookup(dev.ID); m != nil {
					n++
				} else if !strings.Contains(fmt.Sprint(dev.Notes), "too many devices wait") {
					t.Errorf("got %+v", dev)
				}
			}
			return n
		}
		see(0, count)
		if n := kept(); n < 100 || n > 140 {
			t.Errorf("%d of %d are kept", n, count)
		}
		for i := range count {
			w.transport.see(fmt.Sprint(i))
			if err := w.dock.Forget(fmt.Sprint("toy", i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		see(0, 50)
		if n := kept(); n != 50 {
			t.Errorf("%d of 50 are kept", n)
		}
	})
}
