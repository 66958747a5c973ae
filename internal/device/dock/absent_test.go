package dock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestUnplugged: a configured port that was opened, never admitted and then unplugged stays
// in the list, with the reason.
func TestUnplugged(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "usb:1", model: "demo", alien: fmt.Errorf("it says nothing")}
		w.transport.see("serial", named(b, "robot"))
		time.Sleep(time.Minute)
		s := named(b, "robot")
		s.Instance, s.Absent = 2, "unplugged: port /dev/ttyUSB0 does not exist"
		w.transport.see("serial", s)
		time.Sleep(time.Minute)
		if dev := w.device("robot"); dev.State != ferrule.StateOffline || dev.Reason != s.Absent {
			t.Errorf("got %+v", dev)
		}
		b.set(func(b *board) { b.alien = nil })
		s.Instance, s.Absent = 3, ""
		w.transport.see("serial", s)
		w.wantIDs("robot:online")
		s.Instance, s.Absent = 4, "unplugged again"
		w.transport.see("serial", s)
		if dev := w.device("robot"); dev.State != ferrule.StateOffline || dev.Reason != s.Absent || w.logged.count("reconnecting") != 0 {
			t.Errorf("got %+v", dev)
		}
	})
}
