package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestPluggedIn checks that two boards are found through USB. A board with its maker's
// ID is used at once; one behind a common bridge is not opened before it is adopted.
func TestPluggedIn(t *testing.T) {
	if !inNamespace(t, 0) {
		return
	}
	usb := newBus(t)
	arduino, clone := uno.Start(t, uno.Options{BootTime: 200 * time.Millisecond}), uno.Start(t, uno.Options{BootTime: 200 * time.Millisecond})
	original := usbBoard{idVendor: "2341", idProduct: "0043", serial: "95530343834351A0B091", product: "Arduino Uno", place: "1-1"}
	usb.plug(original, "ttyACM0", arduino.Path())
	usb.plug(usbBoard{idVendor: "1a86", idProduct: "7523", product: "USB Serial", place: "1-2"}, "ttyUSB0", clone.Path())
	opened := watchOpen(t, clone.Path())
	const originalAt, cloneAt = "usb:2341:0043:95530343834351A0B091", "usb:1A86:7523@1-2"

	c := newCommandLine(t)
	stop := c.up("--serial", "auto")
	first := c.until(originalAt, ferrule.StateOnline)
	if first.Trust != string(ferrule.TrustAdopted) || first.Restarted == nil {
		t.Errorf("got %+v", first)
	}
	c.want(0, `"value":true`, "call", first.ID, "gpio_write", "pin=13", "value=true")
	arduino.WaitPin("B5", true)

	// The clone is listed, with the next step.
	wait.For(t, "the clone is listed", func() bool { return c.device(cloneAt).ID != "" })
	time.Sleep(1500 * time.Millisecond) // three rounds of discovery, which must not open it
	if d := c.device(cloneAt); d.ID != cloneAt || d.State != string(ferrule.StateOffline) || d.Trust != string(ferrule.TrustPending) {
		t.Errorf("got %+v", d)
	}
	c.want(0, "not reached yet: opening /dev/ttyUSB0 (\"USB Serial\") may restart the device on it; to connect it, run `ferrule adopt "+cloneAt+"`\n", "devices")
	c.want(exitNotRun, "was found but is not adopted", "call", cloneAt, "gpio_read", "pin=13")
	if opened() || clone.Resets() != 0 {
		t.Fatal("a board was opened that may have been a 3D printer")
	}
	c.want(0, "is adopted.\n", "adopt", cloneAt)
	second := c.until(cloneAt, ferrule.StateOnline)
	if second.ID == cloneAt || second.ID == first.ID || second.Trust != string(ferrule.TrustAdopted) || !opened() || clone.Resets() == 0 {
		t.Errorf("got %+v", second)
	}
	c.want(0, `"value":false`, "call", second.ID, "gpio_read", "pin=13")

	// The Arduino is unplugged and comes back with another port name.
	arduino.Hangup()
	usb.unplug(original, "ttyACM0")
	wait.For(t, "it is reported missing", func() bool { return c.device(originalAt).Reason == "no longer in reach" })
	c.want(exitNotReached, first.ID+" is offline since", "call", first.ID, "gpio_read", "pin=13")
	arduino.Replug()
	usb.plug(original, "ttyACM7", arduino.Path())
	if d := c.until(originalAt, ferrule.StateOnline); d.ID != first.ID || d.Kind != first.Kind || !d.Restarted.After(*first.Restarted) {
		t.Errorf("got %+v, want %+v", d, first)
	}
	c.want(0, `"value":false`, "call", first.ID, "gpio_read", "pin=13") // the board was reset

	// Names and trust outlive the gateway.
	stop()
	stop = c.up("--serial", "auto")
	for address, id := range map[string]string{originalAt: first.ID, cloneAt: second.ID} {
		if d := c.until(address, ferrule.StateOnline); d.ID != id || d.Trust != string(ferrule.TrustAdopted) {
			t.Errorf("got %+v", d)
		}
		c.want(0, `"value":true`, "call", id, "gpio_write", "pin=13", "value=true")
	}
	stop()
}

// TestPortInUse checks that a port that another program has open is left alone, even
// without a lock.
func TestPortInUse(t *testing.T) {
	if !inNamespace(t, 0) {
		return
	}
	usb, board := newBus(t), uno.Start(t, uno.Options{BootTime: 200 * time.Millisecond})
	usb.plug(usbBoard{idVendor: "2e8a", idProduct: "000a", serial: "E6614103E73F2A36", product: "Pico", place: "1-1"}, "ttyACM0", board.Path())
	port, err := os.OpenFile("/dev/ttyACM0", os.O_RDWR|syscall.O_NOCTTY, 0)
	usb.must(err)
	other := exec.CommandContext(t.Context(), "sleep", "600")
	other.Stdin = port
	usb.must(other.Start())
	usb.must(port.Close())

	c := newCommandLine(t)
	c.up("--serial", "robot=/dev/ttyACM0")
	want := fmt.Sprintf("opening /dev/ttyACM0: in use by sleep (process %d)", other.Process.Pid)
	wait.For(t, want, func() bool { return c.device("robot").Reason == want })
	other.Process.Kill()
	other.Wait()
	c.until("robot", ferrule.StateOnline)
}

// namespaceMark is set in the environment of a test that was run again in a namespace.
const namespaceMark = "FERRULE_TEST_NAMESPACE"

// inNamespace runs the test again in a process with its own mounts and other namespaces.
// It reports whether this is that process.
func inNamespace(t *testing.T, unshare uintptr, args ...string) bool {
	t.Helper()
	if os.Getenv(namespaceMark) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", append([]string{"-test.run", "^" + t.Name() + "$", "-test.v"}, args...)...)
	cmd.Env = append(os.Environ(), namespaceMark+"=1")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | unshare, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		says := t.Skipf
		if os.Getenv("CI") != "" {
			says = t.Fatalf
		}
		says("mounts or a network of its own need the right to make a namespace: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error("it failed in the namespace: ", err)
	}
	return false
}

// usbBus is a simulated USB bus: /dev and /sys as the kernel would show them, for this
// process and its children.
type usbBus struct{ t *testing.T }

// usbBoard is a board as the kernel describes it.
type usbBoard struct {
	idVendor, idProduct, serial, product string
	place                                string
}

// newBus mounts an empty /dev and /sys, with pseudo terminals.
func newBus(t *testing.T) usbBus {
	b := usbBus{t}
	dev := t.TempDir()
	b.mount("tmpfs", dev, "tmpfs", 0, "")
	b.must(os.Mkdir(dev+"/pts", 0o755))
	b.mount("devpts", dev+"/pts", "devpts", 0, "newinstance,ptmxmode=0666")
	b.must(os.Symlink("pts/ptmx", dev+"/ptmx"))
	b.must(os.WriteFile(dev+"/null", nil, 0o666))
	b.mount("/dev/null", dev+"/null", "", syscall.MS_BIND, "")
	b.mount(dev, "/dev", "", syscall.MS_MOVE, "")
	b.mount("tmpfs", "/sys", "tmpfs", 0, "")
	b.must(os.MkdirAll("/sys/class/tty", 0o755))
	return b
}

// plug adds a board to the bus. Its port is a link to a pseudo terminal.
func (b usbBus) plug(u usbBoard, port, terminal string) {
	b.t.Helper()
	above := filepath.Join(u.dir(), u.place+":1.0")
	if strings.HasPrefix(port, "ttyUSB") {
		above = filepath.Join(above, port) // bridges have one more level
	}
	dir := filepath.Join(above, "tty", port)
	b.must(os.MkdirAll(dir, 0o755))
	b.must(os.Symlink("../../../"+filepath.Base(above), filepath.Join(dir, "device")))
	for name, text := range map[string]string{"idVendor": u.idVendor, "idProduct": u.idProduct, "serial": u.serial, "product": u.product} {
		if text != "" {
			b.must(os.WriteFile(filepath.Join(u.dir(), name), []byte(text+"\n"), 0o444))
		}
	}
	b.must(os.Symlink(dir, "/sys/class/tty/"+port))
	b.must(os.WriteFile("/dev/"+port, nil, 0o660))
	b.mount(terminal, "/dev/"+port, "", syscall.MS_BIND, "")
}

// unplug removes a board from the bus.
func (b usbBus) unplug(u usbBoard, port string) {
	b.t.Helper()
	b.must(syscall.Unmount("/dev/"+port, syscall.MNT_DETACH))
	b.must(os.Remove("/dev/" + port))
	b.must(os.Remove("/sys/class/tty/" + port))
	b.must(os.RemoveAll(u.dir()))
}

// dir returns the directory of a board in sysfs.
func (u usbBoard) dir() string { return "/sys/devices/pci0000:00/0000:00:14.0/usb1/" + u.place }

func (b usbBus) mount(source, target, kind string, flags uintptr, data string) {
	b.t.Helper()
	if err := syscall.Mount(source, target, kind, flags, data); err != nil {
		b.t.Fatalf("mounting %s at %s: %v", source, target, err)
	}
}

func (b usbBus) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// watchOpen returns a function that reports whether a file has been opened since the
// last call.
func watchOpen(t *testing.T, path string) (opened func() bool) {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if _, err := syscall.InotifyAddWatch(fd, path, syscall.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	return func() bool {
		n, _ := syscall.Read(fd, make([]byte, 4096))
		return n > 0
	}
}
