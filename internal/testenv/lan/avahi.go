//go:build linux

package lan

import (
	"fmt"
	"os"
	"os/exec"
)

// busSocket is the D-Bus socket of avahi. It is reachable from both namespaces.
const busSocket = "/run/dbus/system_bus_socket"

// Avahi starts avahi on the far host, with host name rig and a D-Bus of its own.
func (l *LAN) Avahi() *exec.Cmd {
	l.t.Helper()
	for file, text := range map[string]string{
		"/run/bus.conf": `<busconfig><type>system</type><listen>unix:path=` + busSocket + `</listen>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/></policy></busconfig>`,
		"/run/avahi.conf": fmt.Sprintf("[server]\nhost-name=rig\nuse-ipv4=%s\nuse-ipv6=yes\n[publish]\npublish-workstation=no\n[wide-area]\nenable-wide-area=no\n", map[bool]string{true: "yes", false: "no"}[l.ipv4]),
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			l.t.Fatal(err)
		}
	}
	for _, dir := range []string{"/run/dbus", "/run/avahi-daemon"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			l.t.Fatal(err)
		}
	}
	l.Start("unix:", "dbus-daemon", "--config-file=/run/bus.conf", "--nofork", "--print-address")
	return l.Start("Server startup complete", "avahi-daemon", "-f", "/run/avahi.conf", "--no-drop-root", "--no-rlimits", "--no-chroot")
}

// Publish announces a device until the test or the returned process ends. If the process
// is terminated, avahi sends a goodbye.
func (l *LAN) Publish(name, port string, text ...string) *exec.Cmd {
	l.t.Helper()
	return l.Start("", append([]string{"avahi-publish", "-s", name, "_mcp._tcp", port}, text...)...)
}
