package packaging_test

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// testRules shows udev a board of each maker, and somebody else's bridge. The
// kernel's view of it is made of files; udev is the real one.
func (r root) testRules(t *testing.T) {
	u := newRoot(t, "udevadm")
	const rules = "/usr/lib/udev/rules.d/60-ferrule.rules"
	u.write(t, rules, read(t, r.path(rules)))
	u.write(t, "/etc/group", "root:x:0:\ndialout:x:20:\n")
	vendors := regexp.MustCompile(`ATTRS\{idVendor\}=="([0-9a-f]{4})"`).FindAllStringSubmatch(read(t, r.path(rules)), -1)
	for i, m := range append(vendors, []string{"", "1a86"}) {
		ours := m[1] != "1a86"
		usb, tty := u.plugIn(t, i, m[1])
		if said := u.udev(t, usb); strings.Contains(said, "\nID_MM_DEVICE_IGNORE=1\n") != ours {
			t.Errorf("%s: of the device udev says\n%s", m[1], said)
		}
		said := u.udev(t, tty)
		for _, line := range []string{" GROUP 20\n", " MODE 0660\n", "\nTAGS=:uaccess:\n"} {
			if strings.Contains(said, line) != ours {
				t.Errorf("%s: of the port udev says\n%s", m[1], said)
			}
		}
	}
}

// plugIn makes what the kernel would show of a board.
func (r root) plugIn(t *testing.T, number int, vendor string) (usb, tty string) {
	t.Helper()
	usb = fmt.Sprintf("/sys/devices/pci0/usb1/1-%d", number)
	tty = fmt.Sprintf("%s/1-%d:1.0/tty/ttyACM%d", usb, number, number)
	r.write(t, usb+"/idVendor", vendor+"\n")
	r.write(t, usb+"/uevent", fmt.Sprintf("MAJOR=189\nMINOR=%d\nDEVNAME=bus/usb/001/%03d\nDEVTYPE=usb_device\n", number, number))
	r.write(t, path.Dir(path.Dir(tty))+"/uevent", "DEVTYPE=usb_interface\n")
	r.write(t, tty+"/uevent", fmt.Sprintf("MAJOR=166\nMINOR=%d\nDEVNAME=ttyACM%d\n", number, number))
	for at, subsystem := range map[string]string{usb: "/sys/bus/usb", path.Dir(path.Dir(tty)): "/sys/bus/usb", tty: "/sys/class/tty"} {
		if err := os.MkdirAll(r.path(subsystem), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(strings.Repeat("../", strings.Count(at, "/"))+strings.TrimPrefix(subsystem, "/"), r.path(at+"/subsystem")); err != nil {
			t.Fatal(err)
		}
	}
	return usb, tty
}

// udev is what udev would do about a device, and no complaint about the rules.
func (r root) udev(t *testing.T, device string) string {
	t.Helper()
	out, err := r.command(nil, []string{"SYSTEMD_DEVICE_VERIFY_SYSFS=0"}, "/usr/bin/udevadm", "test", "--action=add", device).CombinedOutput()
	if err != nil {
		t.Fatalf("udevadm: %v\n%s", err, out)
	}
	for _, line := range regexp.MustCompile(`(?m)^.*60-ferrule\.rules:.*$`).FindAllString(string(out), -1) {
		if !regexp.MustCompile(`: .*60-ferrule\.rules:\d+ (GROUP|MODE) \d+$`).MatchString(line) {
			t.Errorf("udev says %s", line)
		}
	}
	return string(out)
}
