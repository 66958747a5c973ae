//go:build linux

// Package usb plugs boards into an emulated computer and unplugs them, for tests. QEMU
// runs a Debian kernel and gives it a USB bridge with a board behind it.
//
//	test -- lines -- a shell in the guest -- ferrule -- /dev/ttyUSB0
//	test -- QMP ---- QEMU -- usb-serial (FTDI 0403:6001) --'
//	                            '-- the pty of a board
//
// The guest runs in memory: busybox, a few kernel modules and the files of the test.
package usb

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Serial is the serial number of the bridge.
const Serial = "RIG0001"

// kernelFlags make the guest exit on a panic, and boot even if this machine is so busy
// that the guest's timer seems broken.
const kernelFlags = "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off"

// Guest is a running computer. Its methods fail the test if the guest has ended, and
// must be called by the goroutine of the test.
type Guest struct {
	t     testing.TB
	stdin io.Writer
	lines chan string // of the guest's shell; closed when QEMU has ended
	qmp   *qmp
}

// Boot starts a guest, which ends with the test or with this process. The folder kernel
// contains an unpacked Debian kernel package. Files maps paths in the guest to paths on
// this machine.
func Boot(t testing.TB, kernel string, files map[string]string) *Guest {
	t.Helper()
	dir := t.TempDir()
	initrd, socket := filepath.Join(dir, "initrd"), filepath.Join(dir, "qmp")
	image, err := one(kernel, "boot/vmlinuz-*")
	if err != nil {
		t.Fatal(err)
	}
	if err := writeInitrd(initrd, kernel, files); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	listener.(*net.UnixListener).SetDeadline(time.Now().Add(timeout))

	g := &Guest{t: t, lines: make(chan string, 1)}
	g.start(
		"-M", "q35", "-cpu", "max", "-accel", "tcg", "-m", "256", "-nic", "none", "-no-reboot", "-nodefaults", "-display", "none",
		"-kernel", image, "-initrd", initrd, "-append", kernelFlags,
		"-serial", "file:/dev/stderr", "-serial", "stdio",
		"-device", "piix3-usb-uhci,id=usb",
		"-chardev", "socket,id=qmp,path="+socket, "-mon", "chardev=qmp,mode=control",
	)
	conn, err := listener.Accept()
	if err != nil {
		t.Fatalf("QEMU did not connect: %v", err)
	}
	t.Cleanup(func() { conn.Close() })
	if g.qmp, err = newQMP(conn); err != nil {
		t.Fatal(err)
	}
	if out, code := g.output(); code != 0 {
		t.Fatalf("the guest did not boot: %s", out)
	}
	return g
}

// start runs QEMU. Its console goes to the output of the test.
func (g *Guest) start(args ...string) {
	g.t.Helper()
	run := exec.Command("qemu-system-x86_64", args...)
	run.Stderr = g.t.Output()
	run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := run.StdinPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	stdout, err := run.StdoutPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		g.t.Fatalf("the guest needs Debian's qemu-system-x86: %v", err)
	}
	g.stdin = stdin
	go func() {
		defer close(g.lines)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			g.lines <- lines.Text()
		}
	}()
	g.t.Cleanup(func() {
		run.Process.Kill()
		for range g.lines {
		}
		run.Wait()
	})
}

// timeout bounds every wait for the guest.
const timeout = time.Minute

// Run runs a shell command in the guest and returns its output and exit code.
func (g *Guest) Run(command string) (output string, code int) {
	g.t.Helper()
	if _, err := fmt.Fprintln(g.stdin, command); err != nil {
		g.t.Fatalf("the guest has ended: %v", err)
	}
	return g.output()
}

// output returns the output and the exit code of the current command.
func (g *Guest) output() (output string, code int) {
	g.t.Helper()
	expired := time.After(timeout)
	for {
		select {
		case line, ok := <-g.lines:
			if !ok {
				g.t.Fatal("the guest has ended")
			}
			if n, _ := fmt.Sscanf(line, "END %d", &code); n == 1 {
				return output, code
			}
			output += line + "\n"
		case <-expired:
			g.t.Fatalf("the command did not end; output so far: %q", output)
		}
	}
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
