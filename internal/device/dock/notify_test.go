package dock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestNotify checks that notifications are forwarded under the present ID of the
// device.
func TestNotify(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		var heard []ferrule.Event
		w := open(t, dir, func(p *dock.Parts) { p.OnEvent = func(e ferrule.Event) { heard = append(heard, e) } })
		b := &board{address: "a", model: "toy", words: make(chan string)}
		say := func(params string) {
			b.words <- params
			synctest.Wait()
		}
		w.transport.see("g", named(b, "doll"))
		say(`{"new": 1}`)
		b.hangUp()
		time.Sleep(time.Minute)
		synctest.Wait()
		say(`2`)
		w.transport.see("g", named(b, "bear"))
		time.Sleep(time.Minute)
		synctest.Wait()
		say(`3`)
		kind := w.device("bear").Kind
		for i, want := range []struct{ device, params string }{{"doll", `{"new":1}`}, {"doll", "2"}, {"bear", "3"}} {
			if i >= len(heard) {
				t.Fatalf("%d things were heard", len(heard))
			}
			if e := heard[i]; e.Type != ferrule.Notified || e.Device != want.device || e.Method != "state" || string(e.Params) != want.params || e.Kind != kind || e.Time.IsZero() {
				t.Errorf("got %+v, want %+v", e, want)
			}
		}
		var notes []string
		ctx, cancel := context.WithCancel(t.Context())
		go w.dock.Trace(ctx, "bear", func(f ferrule.Trace) { notes = append(notes, f.Note) })
		synctest.Wait()
		say(`{`)
		cancel()
		synctest.Wait()
		if len(heard) != 3 || len(notes) != 1 || notes[0] != "notification dropped: params are not JSON: unexpected end of JSON input" {
			t.Errorf("%d were heard, and the trace says %q", len(heard), notes)
		}
	})
}

// TestNotifyPending checks that notifications of pending devices are dropped.
func TestNotifyPending(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		heard := 0
		w := open(t, dir, func(p *dock.Parts) { p.OnEvent = func(ferrule.Event) { heard++ } })
		b := &board{address: "a", model: "toy", words: make(chan string)}
		w.transport.see("g", found(b))
		var notes []string
		ctx, cancel := context.WithCancel(t.Context())
		go w.dock.Trace(ctx, "toy", func(f ferrule.Trace) { notes = append(notes, f.Note) })
		synctest.Wait()
		b.words <- "1"
		synctest.Wait()
		if heard != 0 || len(notes) != 1 || notes[0] != "notification dropped: the device is not adopted" {
			t.Errorf("%d were heard, and the trace says %q", heard, notes)
		}
		if err := w.dock.Adopt("toy"); err != nil {
			t.Fatal(err)
		}
		b.words <- "2"
		synctest.Wait()
		if heard != 1 {
			t.Errorf("%d were heard", heard)
		}
		cancel()
		synctest.Wait()
	})
}
