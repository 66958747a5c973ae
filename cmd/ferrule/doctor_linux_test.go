package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
)

// TestDoctorPorts checks the findings on a machine with two boards: what they are and which
// process uses them. The doctor opens neither.
func TestDoctorPorts(t *testing.T) {
	if !inNamespace(t, 0) {
		return
	}
	usb := newBus(t)
	arduino, clone := uno.Start(t, uno.Options{BootTime: 200 * time.Millisecond}), uno.Start(t, uno.Options{BootTime: 200 * time.Millisecond})
	usb.plug(usbBoard{idVendor: "2341", idProduct: "0043", serial: "95530343834351A0B091", product: "Arduino Uno", place: "1-1"}, "ttyACM0", arduino.Path())
	usb.plug(usbBoard{idVendor: "1a86", idProduct: "7523", product: "USB Serial", place: "1-2"}, "ttyUSB0", clone.Path())
	c := newCommandLine(t)
	opened, cloneOpened := watchOpen(t, arduino.Path()), watchOpen(t, clone.Path())
	const isUno = `/dev/ttyACM0 ("Arduino Uno"), a board by Arduino: `
	c.want(0, "  fine   "+isUno+"can be opened\n", "doctor", "--all")
	c.want(0, "  fine   /dev/ttyUSB0 (\"USB Serial\"), USB bridge WCH CH340: can be opened; `auto` lists it, and `ferrule adopt` connects to it\n", "doctor", "--all")
	c.want(0, "\nNothing is wrong.\n", "doctor")

	if opened() {
		t.Error("the doctor has opened a board")
	}

	// Another program, ModemManager, uses the port.
	other, letGo := holdPort(t, usb, "/dev/ttyACM0")
	if !opened() {
		t.Error("the test does not notice that a board is opened")
	}
	c.want(exitOther, fmt.Sprintf("  wrong  %sin use by ModemManager (process %d)\n", isUno, other), "doctor")
	c.want(exitOther, "  note   ModemManager is running: ", "doctor")
	c.want(exitOther, "ferrule: 1 thing is wrong\n", "doctor")
	letGo()
	if opened() || cloneOpened() {
		t.Error("the doctor has opened a board")
	}

	// A gateway uses the port; the clone is not adopted.
	stop := c.up("--serial", "auto")
	c.until("usb:2341:0043:95530343834351A0B091", ferrule.StateOnline)
	c.want(0, "  note   usb:1A86:7523@1-2 was found and is not adopted\n         → run `ferrule adopt usb:1A86:7523@1-2` if it is yours\n", "doctor")
	c.want(0, " is online, with ", "doctor", "--all")
	stop()

	// The data directory cannot be written.
	data := os.Getenv("FERRULE_DATA")
	usb.mount(data, data, "", syscall.MS_BIND, "")
	defer syscall.Unmount(data, syscall.MNT_DETACH)
	usb.mount("", data, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	c.want(exitOther, "  wrong  "+data+" is not writable: read-only file system\n", "doctor")
}

// holdPort starts a process called ModemManager that has a port open.
func holdPort(t *testing.T, usb usbBus, path string) (pid int, letGo func()) {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	usb.must(err)
	text, err := os.ReadFile(sleep)
	usb.must(err)
	name := filepath.Join(t.TempDir(), "ModemManager")
	usb.must(os.WriteFile(name, text, 0o700))
	port, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0)
	usb.must(err)
	defer port.Close()
	cmd := exec.CommandContext(t.Context(), name, "60")
	cmd.Args[0] = "sleep" // busybox needs it
	cmd.Stdin = port
	usb.must(cmd.Start())
	return cmd.Process.Pid, func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
}
