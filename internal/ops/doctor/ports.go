package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/transport/serial"
	"github.com/ferrulehq/ferrule/internal/permission"
)

// ports checks serial ports without opening them.
func (d *Doctor) ports(ctx context.Context) []Finding {
	var named []string
	for _, s := range d.settings().Devices.Serial {
		if s.Port != serial.Auto {
			named = append(named, s.Port)
		}
	}
	ports, err := d.survey(ctx, named...)
	var all []Finding
	for _, p := range ports {
		all = append(all, d.port(p, isNamed(p.Path, named)))
	}
	switch {
	case err != nil:
		all = append(all, Finding{Check: "port", State: Note, Found: "not all serial ports could be listed: " + err.Error()})
	case len(all) == 0:
		all = append(all, Finding{
			Check: "port", State: Note, Found: "no serial port found",
			Next: "if a board is plugged in, try another cable: some only charge. On Windows a driver may be missing",
		})
	}
	return all
}

// isNamed reports whether a port is among paths, which may be links.
func isNamed(port string, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		real, err := filepath.EvalSymlinks(path)
		return path == port || err == nil && real == port
	})
}

// port checks one port. Named ports are in the configuration.
func (d *Doctor) port(p serial.PortStatus, named bool) Finding {
	f := Finding{Check: "port", About: p.Path, State: Fine, Found: describePort(p)}
	judge := func(bad bool, found, next string) Finding {
		if f.State = Note; bad {
			f.State = Wrong
		}
		f.Found += found
		f.Next = next
		return f
	}
	switch {
	case p.Absent != "":
		f.State, f.Found, f.Next = Wrong, p.Absent, "it is named in the configuration; use `auto` or a path in /dev/serial/by-id, which do not depend on the order of plugging in"
	case p.Denied != "":
		found, next := denied(p)
		return judge(named || p.USB, found, next)
	case p.Holder.ID != 0 && p.Holder.ID == d.gateway.process.pid:
		f.Found += ": in use by the gateway"
	case p.Holder.ID != 0:
		return judge(named || p.Maker != "", fmt.Sprintf(": in use by %s (process %d)", p.Holder.Name, p.Holder.ID), "close that program to use the board with Ferrule")
	case named, p.Maker != "":
		f.Found += ": can be opened"
	case p.USB:
		f.Found += ": can be opened; `auto` lists it, and `ferrule adopt` connects to it"
	default:
		f.Found += ": can be opened if you name it with --serial"
	}
	return f
}

// describePort returns a port and its hardware.
func describePort(p serial.PortStatus) string {
	text := p.Path
	if p.Product != "" {
		text += fmt.Sprintf(" (%.40q)", p.Product)
	}
	switch {
	case p.Maker != "":
		text += ", a board by " + p.Maker
	case p.Bridge != "":
		text += ", USB bridge " + p.Bridge
	case p.VID != "":
		text += fmt.Sprintf(", USB ID %s:%s", p.VID, p.PID)
	}
	return text
}

// denied returns why a port may not be opened, and what to do.
func denied(p serial.PortStatus) (found, next string) {
	switch p.Denied {
	case permission.NotMember:
		return ": permission denied; you are not in group " + p.Group, fmt.Sprintf("run `sudo usermod -aG %s $USER`, then log out and in", p.Group)
	case permission.NeedsLogin:
		return ": permission denied; you were added to group " + p.Group + " after you logged in", "log out and in, and restart agents that are running"
	}
	return ": permission denied, and no group has access", "install the udev rule in docs/how-to/connect-boards.md"
}

// grabber is a program that is known to open serial ports by itself.
type grabber struct{ comm, found, next string }

var grabbers = []grabber{
	{"ModemManager", "ModemManager is running: it opens new ports for some seconds to look for modems", "install the udev rule in docs/how-to/connect-boards.md to keep it away"},
	{"brltty", "brltty is running: it takes ports with common USB bridges for braille displays", "if nobody here reads braille, run `sudo apt remove brltty`"},
}

// grabbers looks for programs that open serial ports. Only Linux has them.
func (d *Doctor) grabbers(ctx context.Context) []Finding {
	if d.system != "linux" {
		return nil
	}
	var all []Finding
	names, _ := filepath.Glob(filepath.Join(d.root, "proc/[0-9]*/comm"))
	for _, name := range names {
		if ctx.Err() != nil {
			break
		}
		comm, _ := os.ReadFile(name) // the process may have just ended
		i := slices.IndexFunc(grabbers, func(g grabber) bool { return g.comm == strings.TrimSpace(string(comm)) })
		if i < 0 {
			continue
		}
		g := grabbers[i]
		f := Finding{Check: strings.ToLower(g.comm), State: Note, Found: g.found, Next: g.next}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			f.About = fmt.Sprintf("process %d", pid)
		}
		if g.comm == "ModemManager" && len(d.rules()) > 0 {
			f.State, f.Found, f.Next = Fine, "ModemManager is running; our udev rule keeps it away from boards", ""
		}
		all = append(all, f)
	}
	return all
}

// rules returns our udev rules.
func (d *Doctor) rules() (paths []string) {
	for _, dir := range []string{"etc/udev/rules.d", "run/udev/rules.d", "usr/lib/udev/rules.d", "lib/udev/rules.d"} {
		found, _ := filepath.Glob(filepath.Join(d.root, dir, "*ferrule*.rules"))
		paths = append(paths, found...)
	}
	return paths
}

// udev checks whether our udev rule is installed. Only Linux has udev.
func (d *Doctor) udev(context.Context) []Finding {
	if d.system != "linux" {
		return nil
	}
	if rules := d.rules(); len(rules) > 0 {
		return []Finding{{Check: "udev", About: rules[0], State: Fine, Found: "our udev rule is installed: " + rules[0]}}
	}
	return []Finding{{Check: "udev", State: Fine, Found: "our udev rule is not installed; services may need it, see docs/how-to/connect-boards.md"}}
}
