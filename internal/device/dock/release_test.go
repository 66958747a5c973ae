package dock_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestReleaseSurvivesRestart: a release lasts until its time is up, or is ended, however
// often the gateway is restarted. The port is not opened meanwhile.
func TestReleaseSurvivesRestart(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		b := &board{address: "a1", model: "demo"}
		begin := func() *world {
			w := open(t, dir)
			w.transport.see("g", named(b, "robot"))
			synctest.Wait()
			return w
		}
		w := begin()
		w.wantIDs("robot:online")
		if err := w.dock.Release(t.Context(), "robot", 10*time.Minute); err != nil {
			t.Fatal(err)
		}
		opened := b.get(&b.opened)
		for range 2 {
			w.stop()
			time.Sleep(time.Minute)
			w = begin()
			w.wantIDs("robot:released")
			if _, err := w.call(t.Context(), ferrule.Agent, "robot", "read"); ferrule.AsError(err).Code != ferrule.Busy {
				t.Errorf("got %v", err)
			}
		}
		if b.get(&b.opened) != opened {
			t.Error("it was opened while it was released")
		}
		time.Sleep(8 * time.Minute)
		synctest.Wait()
		w.wantIDs("robot:online")
		w.stop()
		w = begin()
		w.wantIDs("robot:online")

		// A release that was ended is not remembered.
		for _, length := range []time.Duration{time.Hour, 0} {
			if err := w.dock.Release(t.Context(), "robot", length); err != nil {
				t.Fatal(err)
			}
		}
		w.stop()
		w = begin()
		w.wantIDs("robot:online")
		w.stop()
	})
}

// TestStoredReleases: a file that cannot be read releases nothing, and one that was written
// with a wrong clock does not last for longer than a release can.
func TestStoredReleases(t *testing.T) {
	for text, want := range map[string]string{
		`{"a1":"%s"`: "robot:online", `[]`: "robot:online", `{"a1":7}`: "robot:online", `{"a1":"1999-01-01T00:00:00Z"}`: "robot:online", `{"b2":"%s"}`: "robot:online", `{"a1":"%s"}`: "robot:released",
	} {
		bubble(t, func(t *testing.T, dir string) {
			w := open(t, dir)
			w.transport.see("g", named(&board{address: "a1", model: "demo"}, "robot"))
			synctest.Wait()
			w.stop()
			if strings.Contains(text, "%s") {
				text = fmt.Sprintf(text, time.Now().Add(10000*time.Hour).Format(time.RFC3339))
			}
			found, _ := filepath.Glob(filepath.Join(dir, "devices.jsonl"))
			if len(found) != 1 {
				t.Fatalf("the store is not in %s", dir)
			}
			if err := os.WriteFile(filepath.Join(dir, "releases.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			w = open(t, dir)
			w.transport.see("g", named(&board{address: "a1", model: "demo"}, "robot"))
			synctest.Wait()
			w.wantIDs(want)
			time.Sleep(25 * time.Hour)
			synctest.Wait()
			w.wantIDs("robot:online")
			w.stop()
		})
	}
}

// TestChangesSince: what a device was before is kept, so that its owner sees what new
// firmware changed although the change was accepted at once.
func TestChangesSince(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "demo"}
		s := named(b, "robot")
		s.Attached = true
		w.transport.see("g", s)
		synctest.Wait()
		before := w.device("robot").Kind
		same, err := w.dock.Changes("robot", before)
		if err != nil || same.Now != before || len(same.Changes) != 0 {
			t.Errorf("got %+v, %v", same, err)
		}
		b.set(func(b *board) { b.model = "other" })
		s.Instance++
		w.transport.see("g", s)
		synctest.Wait()
		dev := w.device("robot")
		report, err := w.dock.Changes("robot", before)
		if err != nil || dev.Kind == before || report.Since != before || report.Now != dev.Kind || len(report.Changes) == 0 || report.Waiting != 0 || report.Note != "" {
			t.Errorf("got %+v, %v of %+v", report, err, dev)
		}
		w.transport.see("g", s, named(&board{address: "a2", model: "secret"}, "safe"))
		synctest.Wait()
		foreign := w.device("safe").Kind
		for _, since := range []ferrule.Kind{foreign, ferrule.Kind(strings.Repeat("0", 64))} {
			if report, err := w.dock.Changes("robot", since); err != nil || report.Note == "" || strings.Contains(fmt.Sprint(report.Changes), "secret") {
				t.Errorf("since %s: %+v, %v", since.Short(), report, err)
			}
		}
		for _, since := range []ferrule.Kind{"x/" + foreign, "../" + foreign, foreign[:12], ferrule.Kind(strings.ToUpper(string(foreign)))} {
			if report, err := w.dock.Changes("robot", since); err == nil || ferrule.AsError(err).Code != ferrule.Invalid {
				t.Errorf("since %s: %+v, %v", since, report, err)
			}
			if m, err := w.store.Manifest(since); err == nil {
				t.Errorf("%s has the manifest %+v", since, m)
			}
		}
		if _, err := w.store.Manifest(foreign); err != nil {
			t.Errorf("the manifest of another device is gone: %v", err)
		}
		w.stop()
	})
}
