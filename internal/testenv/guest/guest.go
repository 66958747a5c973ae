//go:build linux

// Package guest boots a Debian kernel in QEMU, for tests that need hardware which this machine
// does not have.
//
//	test -- lines -- a shell in the guest
//
// The guest runs in memory: busybox, a few kernel modules and the files of the test. QEMU
// emulates it in software, so it runs everywhere and boots in about ten seconds.
package guest

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// kernelFlags make the guest exit on a panic, and boot even if this machine is so busy
// that the guest's timer seems broken.
const kernelFlags = "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off"

// Config is what a guest consists of.
type Config struct {
	// Kernel is the folder of an unpacked Debian kernel package.
	Kernel string
	// Modules are the kernel modules in load order: absolute paths on this machine, or paths
	// in lib/modules of the kernel, such as kernel/drivers/usb/core/usbcore.ko.
	Modules []string
	// Parameters are those of modules, by name.
	Parameters map[string]string
	// Files maps paths in the guest to paths on this machine.
	Files map[string]string
	// Hardware is added to the arguments of QEMU.
	Hardware []string
	// Memory is in megabytes. Default: 256.
	Memory int
	// Timeout bounds every wait for the guest. Default: Timeout.
	Timeout time.Duration
}

// Timeout is the default of Config.Timeout.
const Timeout = time.Minute

// Guest is a running computer. Its methods fail the test if the guest has ended, and
// must be called by the goroutine of the test.
type Guest struct {
	t       testing.TB
	timeout time.Duration
	stdin   io.Writer
	lines   chan string // of the guest's shell; closed when QEMU has ended
}

// Start starts a guest, which ends with the test or with this process. Boot waits until it
// has booted.
func Start(t testing.TB, c Config) *Guest {
	t.Helper()
	initrd := filepath.Join(t.TempDir(), "initrd")
	image, err := one(c.Kernel, "boot/vmlinuz-*")
	if err != nil {
		t.Fatal(err)
	}
	if err := writeInitrd(initrd, c); err != nil {
		t.Fatal(err)
	}
	g := &Guest{t: t, timeout: cmp.Or(c.Timeout, Timeout), lines: make(chan string, 1)}
	g.start(append([]string{
		"-M", "q35", "-cpu", "max", "-accel", "tcg", "-m", strconv.Itoa(cmp.Or(c.Memory, 256)), "-nic", "none", "-no-reboot", "-nodefaults", "-display", "none",
		"-kernel", image, "-initrd", initrd, "-append", kernelFlags,
		"-serial", "file:/dev/stderr", "-serial", "stdio",
	}, c.Hardware...)...)
	return g
}

// At returns the guest for a part of the test, which fails if a method does.
func (g *Guest) At(t testing.TB) *Guest {
	part := *g
	part.t = t
	return &part
}

// Boot waits until the guest has booted.
func (g *Guest) Boot() {
	g.t.Helper()
	if out, code := g.output(); code != 0 {
		g.t.Fatalf("the guest did not boot: %s", out)
	}
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

// Run runs a shell command in the guest and returns its output and exit code.
func (g *Guest) Run(command string) (output string, code int) {
	g.t.Helper()
	for range maxSends {
		if _, err := fmt.Fprintf(g.stdin, "%d %s\n", len(command), command); err != nil {
			g.t.Fatalf("the guest has ended: %v", err)
		}
		if output, code = g.output(); code != again {
			return output, code
		}
		g.t.Log("the guest has lost a part of a command, which is sent again")
	}
	g.t.Fatalf("the guest does not understand %q", command)
	return "", 0
}

const (
	// maxSends is how often a command is sent that the guest did not receive as a whole.
	maxSends = 5
	// again is the exit code of a command that was not run.
	again = -1
)

// output returns the output and the exit code of the current command.
func (g *Guest) output() (output string, code int) {
	g.t.Helper()
	expired := time.After(g.timeout)
	for {
		select {
		case line, ok := <-g.lines:
			if !ok {
				g.t.Fatal("the guest has ended")
			}
			if n, _ := fmt.Sscanf(line, "END %d", &code); n == 1 {
				return output, code
			}
			if line == "AGAIN" {
				return output, again
			}
			output += line + "\n"
		case <-expired:
			g.t.Fatalf("the command did not end; output so far: %q", output)
		}
	}
}
