//go:build linux

package usb_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/usb"
)

const (
	onlineWithin  = 3 * time.Second
	offlineWithin = time.Second
)

// TestHotPlug plugs a board into a computer where a gateway runs. Anything may be
// behind such a bridge, so the owner adopts the board; from then on the gateway
// finds it by itself, however often it is pulled out.
func TestHotPlug(t *testing.T) {
	kernel := os.Getenv("FERRULE_RIG_USB")
	if kernel == "" {
		t.Skip("FERRULE_RIG_USB is to be the folder of a kernel: README.md tells how to get one")
	}
	t.Setenv("CI", "1") // what is asked for fails where it cannot be had
	board := uno.Start(t, uno.Options{BootTime: time.Second})
	guest := usb.Boot(t, kernel, map[string]string{"bin/ferrule": buildFerrule(t)})
	r := &rig{t, board, guest}
	r.run("ferrule up --serial auto >/dev/console 2>&1 &")

	guest.Plug(board.Path())
	held := r.await("is found", func(device) bool { return true })
	if want := "usb:0403:6001:" + usb.Serial; held.Address != want {
		t.Errorf("it is at %s, want %s", held.Address, want)
	}
	if held.State != "offline" || held.Trust != "held" || held.Kind != "" || !strings.Contains(held.Reason, "may restart the device on it") {
		t.Errorf("it is to be left alone until it is adopted: %+v", held)
	}
	r.run("ferrule adopt " + held.ID)
	first := r.await("is online", device.online)
	r.blink(first.ID)

	restarted := first.Restarted
	for cycle := 1; cycle <= 2; cycle++ {
		r.unplug(cycle)
		d := r.plug(cycle)
		if d.ID != first.ID || d.Kind != first.Kind {
			t.Errorf("it was %+v, and is %+v", first, d)
		}
		if !d.Restarted.After(restarted) {
			t.Errorf("it was restarted, and the last time is said to be %v", d.Restarted)
		}
		restarted = d.Restarted
		board.WaitPin("B5", false)
		r.blink(d.ID)
	}
}

// buildFerrule builds the program, to run where there is nothing else.
func buildFerrule(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "ferrule")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "github.com/ferrulehq/ferrule/cmd/ferrule")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if says, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building ferrule: %v\n%s", err, says)
	}
	return program
}

// rig is a board, and a guest where ferrule runs.
type rig struct {
	t     *testing.T
	board *uno.Board
	guest *usb.Guest
}

// device is what the gateway tells of the board.
type device struct {
	ID, Address, Kind    string
	State, Reason, Trust string
	Since, Restarted     time.Time
}

func (d device) online() bool  { return d.State == "online" }
func (d device) offline() bool { return d.State == "offline" }

// run runs a command in the guest that must succeed.
func (r *rig) run(command string) string {
	r.t.Helper()
	output, code := r.guest.Run(command)
	if code != 0 {
		r.t.Fatalf("%s: exit code %d\n%s", command, code, output)
	}
	return output
}

// await asks the gateway until its one device is as it should be.
func (r *rig) await(what string, so func(device) bool) device {
	r.t.Helper()
	var output string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var devices []device
		var code int
		if output, code = r.guest.Run("ferrule devices --json"); code != 0 {
			continue // it is not up yet
		}
		if err := json.Unmarshal([]byte(output), &devices); err != nil {
			r.t.Fatal(err)
		}
		if len(devices) == 1 && so(devices[0]) {
			return devices[0]
		}
	}
	r.t.Fatalf("it never came about that the board %s: %s", what, output)
	return device{}
}

// stamp is when a file of the guest was made, by the guest's clock.
func (r *rig) stamp(file string) time.Time {
	r.t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05 -0700", strings.TrimSpace(r.run("stat -c %z "+file)))
	if err != nil {
		r.t.Fatal(err)
	}
	return at
}

// now is the guest's clock. What is measured from here on is rather too long: the
// guest takes a moment to answer.
func (r *rig) now() time.Time {
	r.t.Helper()
	r.run("rm -f /now; touch /now")
	return r.stamp("/now")
}

// unplug pulls the cable.
func (r *rig) unplug(cycle int) {
	r.t.Helper()
	from, start := r.now(), time.Now()
	r.guest.Unplug()
	d := r.await("is offline", device.offline)
	told, took := time.Since(start), d.Since.Sub(from)
	r.t.Logf("unplug %d: offline after %4.2f s; `ferrule devices` has said so after %4.2f s", cycle, took.Seconds(), told.Seconds())
	if took > offlineWithin {
		r.t.Errorf("that is more than %v", offlineWithin)
	}
}

// plug puts the cable back.
func (r *rig) plug(cycle int) device {
	r.t.Helper()
	from, start := r.now(), time.Now()
	r.guest.Plug(r.board.Path())
	d := r.await("is online", device.online)
	told, took := time.Since(start), d.Since.Sub(from)
	port := r.stamp("/dev/ttyUSB*").Sub(from)
	r.t.Logf("plug   %d: online after  %4.2f s; `ferrule devices` has said so after %4.2f s; the kernel had a port after %4.2f s",
		cycle, took.Seconds(), told.Seconds(), port.Seconds())
	if took > onlineWithin {
		r.t.Errorf("that is more than %v", onlineWithin)
	}
	return d
}

// blink switches the LED on, off and on again. It goes out when the board is
// restarted.
func (r *rig) blink(id string) {
	r.t.Helper()
	for _, value := range []string{"true", "false", "true"} {
		r.run("ferrule call " + id + " gpio_write pin=13 value=" + value)
		r.board.WaitPin("B5", value == "true")
	}
}
