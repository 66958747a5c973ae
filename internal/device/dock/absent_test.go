package dock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/dock"
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

// TestWithdrawn: a device that its owner has withdrawn has no tools at once, and no call waits
// for it, also under another name. It is as before when it is back.
func TestWithdrawn(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir, func(p *dock.Parts) { p.Config.Wait = time.Second })
		b := &board{address: "home/1", model: "bulb"}
		s := behind("home", b, "lamp")
		s.Instance, s.Adopted = 1, true
		w.transport.see("g", s)
		w.wantIDs("lamp:online")
		var target ferrule.Target
		call := func(id string) (took time.Duration, err error) {
			began := time.Now()
			_, err = target.Handle(t.Context(), &ferrule.Call{Device: id, Tool: "read", Principal: ferrule.Principal{Role: ferrule.Agent}, Target: target})
			return time.Since(began), err
		}
		// One that is only gone may be back in a moment.
		w.transport.see("g")
		target, _ = w.fleet.Target("lamp") // also of calls that began now and wait
		target.Tool = &ferrule.Tool{Name: "read", Effect: ferrule.Reads}
		if took, err := call("lamp"); took != time.Second || codeOf(err) != ferrule.Offline {
			t.Errorf("gone: %v after %v", err, took)
		}
		s.Instance++
		w.transport.see("g", s)
		w.wantIDs("lamp:online")

		withdrawn := s
		withdrawn.Absent, withdrawn.Withdrawn = "no longer exposed", true
		w.transport.see("g", withdrawn)
		w.transport.see("g")
		if dev := w.device("lamp"); dev.State != ferrule.StateOffline || dev.Reason != "no longer exposed" || dev.Trust != ferrule.TrustAdopted {
			t.Errorf("got %+v", dev)
		}
		if _, m, _ := w.fleet.Lookup("lamp"); m != nil {
			t.Errorf("it has tools: %+v", m)
		}
		if took, err := call("lamp"); took > time.Second/10 || codeOf(err) != ferrule.Offline {
			t.Errorf("withdrawn: %v after %v", err, took)
		}
		if err := w.dock.Rename("lamp", "desk"); err != nil {
			t.Fatal(err)
		}
		if _, m, _ := w.fleet.Lookup("desk"); m != nil {
			t.Errorf("it has tools under its new name: %+v", m)
		}
		if took, err := call("desk"); took > time.Second/10 || codeOf(err) != ferrule.Offline {
			t.Errorf("renamed: %v after %v", err, took)
		}
		s.Instance++
		w.transport.see("g", s)
		w.wantIDs("desk:online")
		if _, m, _ := w.fleet.Lookup("desk"); m == nil || len(m.Tools) == 0 {
			t.Error("it has no tools")
		}
	})
}
