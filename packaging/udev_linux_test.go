package packaging_test

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// testRules checks the result of real udev rules for a board of each vendor, and for a
// USB bridge that the rules must ignore. The sysfs entries are plain files.
func (r root) testRules(t *testing.T) {
	u := newRoot(t, "udevadm")
	const rules = "/usr/lib/udev/rules.d/60-ferrule.rules"
	u.write(t, rules, read(t, r.path(rules)))
	u.write(t, "/etc/group", "root:x:0:\ndialout:x:20:\n")
	vendors := regexp.MustCompile(`ATTRS\{idVendor\}=="([0-9a-f]{4})"`).FindAllStringSubmatch(read(t, r.path(rules)), -1)
	for i, m := range append(vendors, []string{"", "1a86"}) {
		listed := m[1] != "1a86"
		usb, tty := u.plugIn(t, i, m[1])
		if out := u.udev(t, usb); strings.Contains(out, "\nID_MM_DEVICE_IGNORE=1\n") != listed {
			t.Errorf("%s: udev output for the device\n%s", m[1], out)
		}
		out := u.udev(t, tty)
		for _, line := range []string{" GROUP 20\n", " MODE 0660\n", "\nTAGS=:uaccess:\n"} {
			if strings.Contains(out, line) != listed {
				t.Errorf("%s: udev output for the port\n%s", m[1], out)
			}
		}
	}
}

// plugIn creates the sysfs entries of a board.
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

// udev returns what udev does for a device. It fails the test if udev warns about the rules.
func (r root) udev(t *testing.T, device string) string {
	t.Helper()
	out, err := r.command(nil, []string{"SYSTEMD_DEVICE_VERIFY_SYSFS=0"}, "/usr/bin/udevadm", "test", "--action=add", device).CombinedOutput()
	if err != nil {
		t.Fatalf("udevadm: %v\n%s", err, out)
	}
	for _, line := range regexp.MustCompile(`(?m)^.*60-ferrule\.rules:.*$`).FindAllString(string(out), -1) {
		if !regexp.MustCompile(`: .*60-ferrule\.rules:\d+ (GROUP|MODE) \d+$`).MatchString(line) {
			t.Errorf("udev warns: %s", line)
		}
	}
	return string(out)
}
