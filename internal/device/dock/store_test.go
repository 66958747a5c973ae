package dock_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestStoreReopened checks that a log whose lines still hold is continued, and that one with
// other lines is rewritten: nothing of it is lost, and nothing changes with the next start.
func TestStoreReopened(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "devices.jsonl")
	// session opens the store, changes it, and reports whether the log is another file then.
	session := func(change func(*dock.Store)) (rewritten bool) {
		t.Helper()
		before, _ := os.Stat(path)
		store, err := dock.OpenStore(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		after, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		change(store)
		return before == nil || !os.SameFile(before, after)
	}
	keep := func(store *dock.Store, id string, state ferrule.State) {
		t.Helper()
		dev := &ferrule.Device{ID: id, Address: "at " + id, Kind: "0a", Accepted: "0a", Trust: ferrule.TrustAdopted, State: state, Since: time.Unix(1, 0), Reason: "gone"}
		if err := store.Keep(dev, nil); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want map[string]string) func(*dock.Store) {
		return func(store *dock.Store) {
			t.Helper()
			got := make(map[string]string)
			for _, dev := range store.Devices() {
				got[dev.ID] = fmt.Sprint(dev.State, " ", dev.Reason)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
	}
	session(func(store *dock.Store) {
		keep(store, "a", ferrule.StateOnline)
		keep(store, "a", ferrule.StateOffline)
		keep(store, "b", ferrule.StateOffline)
		keep(store, "c", ferrule.StateOnline)
		if err := store.Forget("c"); err != nil {
			t.Fatal(err)
		}
	})
	want := map[string]string{"a": "offline gone", "b": "offline gone"}
	if session(check(want)) {
		t.Error("a log whose last lines hold was rewritten")
	}
	session(func(store *dock.Store) { keep(store, "d", ferrule.StateOnline) }) // and a crash
	want["d"] = "offline the gateway stopped unexpectedly"
	if !session(check(want)) {
		t.Error("a log with a device that was online was not rewritten")
	}
	if session(check(want)) {
		t.Error("it was rewritten twice")
	}
	log, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	log.WriteString(`{"forget":"a"}`) // without the end of the line
	log.Close()
	delete(want, "a")
	if !session(check(want)) {
		t.Error("a log that ends within a line was continued")
	}
	session(check(want))
}
