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

	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/usb"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestHotPlug plugs a board into a computer that runs a gateway. Anything may be behind
// such a bridge, so the owner must adopt the board. From then on the gateway finds it by
// itself after each unplug.
func TestHotPlug(t *testing.T) {
	kernel := os.Getenv("FERRULE_TEST_USB")
	if kernel == "" {
		t.Skip("set FERRULE_TEST_USB to the folder of a kernel; see README.md")
	}
	t.Setenv("CI", "1") // a missing tool is an error
	board := uno.Start(t, uno.Options{BootTime: time.Second})
	guest := usb.Boot(t, kernel, map[string]string{"bin/ferrule": buildFerrule(t)})
	r := &env{t, board, guest}
	r.run("ferrule up --serial auto >/dev/console 2>&1 &")

	guest.Plug(board.Path())
	found := r.await("is listed", func(device) bool { return true })
	if want := "usb:0403:6001:" + usb.Serial; found.Address != want {
		t.Errorf("address is %s, want %s", found.Address, want)
	}
	if found.State != "offline" || found.Trust != "pending" || found.Kind != "" || !strings.Contains(found.Reason, "may restart the device on it") {
		t.Errorf("the board was opened before it was adopted: %+v", found)
	}
	r.run("ferrule adopt " + found.ID)
	first := r.await("is online", device.online)
	r.blink(first.ID)

	restarted := first.Restarted
	var offline, online time.Duration
	for cycle := 1; cycle <= 2; cycle++ {
		offline = max(offline, r.unplug(cycle))
		d, took := r.plug(cycle)
		online = max(online, took)
		if d.ID != first.ID || d.Kind != first.Kind {
			t.Errorf("the device changed from %+v to %+v", first, d)
		}
		if !d.Restarted.After(restarted) {
			t.Errorf("no new restart was reported; the last is at %v", d.Restarted)
		}
		restarted = d.Restarted
		board.WaitPin("B5", false)
		r.blink(d.ID)
	}
	figure.AtMost(t, "offline after unplugging", offline, time.Second)
	figure.AtMost(t, "online after plugging in", online, 3*time.Second)
}

// buildFerrule builds ferrule as a static binary.
func buildFerrule(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "ferrule")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "github.com/ferrulehq/ferrule/cmd/ferrule")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building ferrule: %v\n%s", err, out)
	}
	return program
}

// env is a board and a guest that runs ferrule.
type env struct {
	t     *testing.T
	board *uno.Board
	guest *usb.Guest
}

// device is the board as the gateway lists it.
type device struct {
	ID, Address, Kind    string
	State, Reason, Trust string
	Since, Restarted     time.Time
}

func (d device) online() bool  { return d.State == "online" }
func (d device) offline() bool { return d.State == "offline" }

// run runs a command in the guest that must succeed.
func (r *env) run(command string) string {
	r.t.Helper()
	output, code := r.guest.Run(command)
	if code != 0 {
		r.t.Fatalf("%s: exit code %d\n%s", command, code, output)
	}
	return output
}

// await polls the gateway until its only device meets a condition.
func (r *env) await(what string, ok func(device) bool) device {
	r.t.Helper()
	var output string
	var devices []device
	defer func() {
		if r.t.Failed() {
			r.t.Log(output)
		}
	}()
	wait.For(r.t, "the board "+what, func() bool {
		time.Sleep(20 * time.Millisecond)
		var code int
		if output, code = r.guest.Run("ferrule devices --json"); code != 0 {
			return false // it is not up yet
		}
		devices = nil
		if err := json.Unmarshal([]byte(output), &devices); err != nil {
			r.t.Fatal(err)
		}
		return len(devices) == 1 && ok(devices[0])
	})
	return devices[0]
}

// stamp returns when a file of the guest was created, by the guest's clock.
func (r *env) stamp(file string) time.Time {
	r.t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05 -0700", strings.TrimSpace(r.run("stat -c %z "+file)))
	if err != nil {
		r.t.Fatal(err)
	}
	return at
}

// now returns the time of the guest's clock. Times measured from it are slightly too
// long, because the guest takes a moment to answer.
func (r *env) now() time.Time {
	r.t.Helper()
	r.run("rm -f /now; touch /now")
	return r.stamp("/now")
}

// unplug unplugs the board, and returns how fast the gateway notices.
func (r *env) unplug(cycle int) time.Duration {
	r.t.Helper()
	from, start := r.now(), time.Now()
	r.guest.Unplug()
	d := r.await("is offline", device.offline)
	shown, took := time.Since(start), d.Since.Sub(from)
	r.t.Logf("unplug %d: offline after %4.2f s; `ferrule devices` showed it after %4.2f s", cycle, took.Seconds(), shown.Seconds())
	return took
}

// plug plugs the board in, and returns how fast it is online.
func (r *env) plug(cycle int) (device, time.Duration) {
	r.t.Helper()
	from, start := r.now(), time.Now()
	r.guest.Plug(r.board.Path())
	d := r.await("is online", device.online)
	shown, took := time.Since(start), d.Since.Sub(from)
	port := r.stamp("/dev/ttyUSB*").Sub(from)
	r.t.Logf("plug   %d: online after  %4.2f s; `ferrule devices` showed it after %4.2f s; the kernel had a port after %4.2f s",
		cycle, took.Seconds(), shown.Seconds(), port.Seconds())
	return d, took
}

// blink switches the LED on, off and on again. A restart switches it off.
func (r *env) blink(id string) {
	r.t.Helper()
	for _, value := range []string{"true", "false", "true"} {
		r.run("ferrule call " + id + " gpio_write pin=13 value=" + value)
		r.board.WaitPin("B5", value == "true")
	}
}
