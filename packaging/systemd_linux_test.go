package packaging_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// guestFiles are the files of the packages that systemd and udev use, with their modes.
var guestFiles = map[string]string{
	"ferrule.service":                            "usr/lib/systemd/system/ferrule.service",
	"ferrule.sysusers":                           "usr/lib/sysusers.d/ferrule.conf",
	"60-ferrule.rules":                           "usr/lib/udev/rules.d/60-ferrule.rules",
	"ferrule-board.service":                      "usr/lib/systemd/system/ferrule-board.service",
	"ferrule-board.sysusers":                     "usr/lib/sysusers.d/ferrule-board.conf",
	"61-ferrule-board.rules":                     "usr/lib/udev/rules.d/61-ferrule-board.rules",
	"../internal/testenv/systemd/guest.sh":       "usr/bin/ferrule-guest",
	"../internal/testenv/systemd/guest.sysusers": "usr/lib/sysusers.d/guest.conf",
	"../internal/testenv/systemd/guest.service":  "usr/lib/systemd/system/ferrule-guest.service",
	"../internal/testenv/systemd/guest.yaml":     "etc/ferrule/ferrule.yaml",
	"../internal/testenv/systemd/guest.tmpfiles": "usr/lib/tmpfiles.d/guest.conf",
}

// TestSystemd runs the packaged service in a guest with a real systemd: boot order, users,
// restrictions, reload, crash, exit and stop. internal/testenv/systemd has the checks.
func TestSystemd(t *testing.T) {
	dir := os.Getenv("FERRULE_TEST_SYSTEMD")
	if dir == "" {
		t.Skip("set FERRULE_TEST_SYSTEMD to the folder of a guest; see internal/testenv/systemd/README.md")
	}
	root := filepath.Join(t.TempDir(), "root")
	for from, to := range guestFiles {
		copyFile(t, from, filepath.Join(root, to))
	}
	cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(root, "usr/bin/ferrule"), "../cmd/ferrule")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building ferrule: %v\n%s", err, out)
	}
	// As `systemctl enable` does.
	wants := filepath.Join(root, "etc/systemd/system/multi-user.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{"ferrule.service", "ferrule-guest.service"} {
		if err := os.Symlink("/usr/lib/systemd/system/"+unit, filepath.Join(wants, unit)); err != nil {
			t.Fatal(err)
		}
	}
	must(t, root, "chmod", "755", "usr/bin/ferrule-guest")
	more := must(t, root, "sh", "-c", "find . | cpio --quiet --owner 0:0 -o -H newc")
	initrd := filepath.Join(t.TempDir(), "initrd")
	if err := os.WriteFile(initrd, []byte(read(t, filepath.Join(dir, "initrd"))+more), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := false
	passed := make(map[string]bool)
	for line := range bootGuest(t, filepath.Join(dir, "vmlinuz"), initrd) {
		if name, ok := strings.CutPrefix(line, "OK "); ok {
			passed[name] = true
		} else if strings.HasPrefix(line, "FAILED ") {
			t.Error(line)
		}
		ended = ended || line == "END"
	}
	if !ended {
		t.Error("the guest ended before its checks")
	}
	for _, check := range regexp.MustCompile(`(?m)(?:\bequal|\bok) ([a-z-]+)`).FindAllStringSubmatch(read(t, "../internal/testenv/systemd/guest.sh"), -1) {
		if !passed[check[1]] {
			t.Errorf("check %s did not pass", check[1])
		}
	}
}

// bootGuest boots a guest and returns the lines of its console until it is turned off.
func bootGuest(t *testing.T, kernel, initrd string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64",
		"-M", "q35", "-cpu", "max", "-accel", "tcg", "-m", "1536", "-smp", "2", "-nic", "none", "-no-reboot", "-nodefaults", "-display", "none",
		"-kernel", kernel, "-initrd", initrd,
		"-append", "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off systemd.show_status=no systemd.mask=serial-getty@ttyS0.service",
		"-serial", "stdio", "-serial", "null",
	)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("the guest needs Debian's qemu-system-x86: %v", err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(io.TeeReader(out, t.Output())); in.Scan(); {
			lines <- strings.TrimSpace(in.Text())
		}
		cmd.Wait()
	}()
	return lines
}

// TestUnitSettings checks settings of the unit that the guest cannot tell apart.
func TestUnitSettings(t *testing.T) {
	unit := read(t, "ferrule.service")
	for _, want := range []string{
		"\nRestart=always\n", "\nExecReload=/bin/kill -HUP $MAINPID\n", "\nRuntimeDirectory=ferrule\n", "\nRuntimeDirectoryMode=0750\n",
		" --group-socket /run/ferrule/control.sock\n", "\nRestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK\n",
	} {
		if !strings.Contains(unit, want) {
			t.Errorf("the unit has no %s", strings.TrimSpace(want))
		}
	}
}

// TestPinnedImages checks that every image of the Dockerfile is pinned by its digest.
func TestPinnedImages(t *testing.T) {
	for _, from := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(read(t, "../Dockerfile"), -1) {
		if from[1] != "scratch" && !regexp.MustCompile(`^[^@]+:[^@]+@sha256:[0-9a-f]{64}$`).MatchString(from[1]) {
			t.Errorf("%s is not pinned by digest", from[1])
		}
	}
}
