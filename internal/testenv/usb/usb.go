//go:build linux

// Package usb plugs boards into an emulated computer and unplugs them, for tests. QEMU
// runs a Debian kernel and gives it a USB bridge with a board behind it.
//
//	test -- lines -- a shell in the guest -- ferrule -- /dev/ttyUSB0
//	test -- QMP ---- QEMU -- usb-serial (FTDI 0403:6001) --'
//	                            '-- the pty of a board
package usb

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/guest"
)

// Serial is the serial number of the bridge.
const Serial = "RIG0001"

const timeout = guest.Timeout

// modules are the kernel modules for the bridge, in load order.
var modules = []string{"common/usb-common", "core/usbcore", "host/uhci-hcd", "serial/usbserial", "serial/ftdi_sio"}

// Guest is a running computer with a USB port.
type Guest struct {
	*guest.Guest
	t   testing.TB
	qmp *qmp
}

// Boot starts a guest, which ends with the test or with this process. The folder kernel
// contains an unpacked Debian kernel package. Files maps paths in the guest to paths on
// this machine.
func Boot(t testing.TB, kernel string, files map[string]string) *Guest {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "qmp")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	listener.(*net.UnixListener).SetDeadline(time.Now().Add(timeout))
	config := guest.Config{Kernel: kernel, Files: files, Hardware: []string{
		"-device", "piix3-usb-uhci,id=usb",
		"-chardev", "socket,id=qmp,path=" + socket, "-mon", "chardev=qmp,mode=control",
	}}
	for _, m := range modules {
		config.Modules = append(config.Modules, "kernel/drivers/usb/"+m+".ko")
	}
	g := &Guest{Guest: guest.Start(t, config), t: t}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatalf("QEMU did not connect: %v", err)
	}
	t.Cleanup(func() { conn.Close() })
	if g.qmp, err = newQMP(conn); err != nil {
		t.Fatal(err)
	}
	g.Guest.Boot()
	return g
}

// Plug plugs in the bridge with the board on a pty behind it.
func (g *Guest) Plug(pty string) {
	g.t.Helper()
	g.execute("chardev-add", object{"id": "board", "backend": object{"type": "serial", "data": object{"device": pty}}})
	g.execute("device_add", object{"driver": "usb-serial", "id": "bridge", "bus": "usb.0", "chardev": "board", "serial": Serial})
}

// Unplug unplugs the bridge.
func (g *Guest) Unplug() {
	g.t.Helper()
	g.execute("device_del", object{"id": "bridge"})
	if err := g.qmp.await("DEVICE_DELETED"); err != nil {
		g.t.Fatalf("unplugging: %v", err)
	}
	g.execute("chardev-remove", object{"id": "board"})
}

func (g *Guest) execute(command string, arguments object) {
	g.t.Helper()
	if err := g.qmp.execute(command, arguments); err != nil {
		g.t.Fatal(err)
	}
}
