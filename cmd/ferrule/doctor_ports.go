package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/transport/serial"
)

// ports tells of serial ports. None is opened.
func (d *doctor) ports(ctx context.Context) []finding {
	var named []string
	for _, s := range d.settings().Devices.Serial {
		if s.Port != serial.Auto {
			named = append(named, s.Port)
		}
	}
	ports, err := d.survey(ctx, named...)
	var all []finding
	for _, p := range ports {
		all = append(all, d.port(p, isNamed(p.Path, named)))
	}
	switch {
	case err != nil:
		all = append(all, finding{Check: "port", State: note, Found: "the system does not tell of all serial ports: " + err.Error()})
	case len(all) == 0:
		all = append(all, finding{
			Check: "port", State: note, Found: "there is no serial port that a board could be on",
			Next: "if one is plugged in: some cables only charge, and on Windows a driver may be missing",
		})
	}
	return all
}

// isNamed tells whether a port is among paths, some of which are links.
func isNamed(port string, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		real, err := filepath.EvalSymlinks(path)
		return path == port || err == nil && real == port
	})
}

// port tells of one port, which somebody may have asked for by name.
func (d *doctor) port(p serial.PortStatus, named bool) finding {
	f := finding{Check: "port", About: p.Path, State: fine, Found: describePort(p)}
	judge := func(bad bool, found, next string) finding {
		if f.State = note; bad {
			f.State = wrong
		}
		f.Found += found
		f.Next = next
		return f
	}
	switch {
	case p.Absent != "":
		f.State, f.Found, f.Next = wrong, p.Absent, "it is asked for by name; `auto` or a link in /dev/serial/by-id does not depend on the order of plugging in"
	case p.Denied != "":
		found, next := tellDenied(p)
		return judge(named || p.USB, found, next)
	case p.Holder.ID != 0 && p.Holder.ID == d.gateway.process.pid:
		f.Found += ": the gateway has it"
	case p.Holder.ID != 0:
		return judge(named || p.Maker != "", fmt.Sprintf(": it is in use by %s (process %d)", p.Holder.Name, p.Holder.ID), "close that, if the board is to be Ferrule's")
	case named, p.Maker != "":
		f.Found += ": it can be opened"
	case p.USB:
		f.Found += ": it can be opened; `auto` only lists it, and `ferrule adopt` opens it"
	default:
		f.Found += ": it can be opened, if it is named"
	}
	return f
}

// describePort is a port and what is there.
func describePort(p serial.PortStatus) string {
	text := p.Path
	if p.Product != "" {
		text += fmt.Sprintf(" (%.40q)", p.Product)
	}
	switch {
	case p.Maker != "":
		text += ", a board of " + p.Maker
	case p.Bridge != "":
		text += ", behind a bridge (" + p.Bridge + ")"
	case p.VID != "":
		text += fmt.Sprintf(", USB id %s:%s", p.VID, p.PID)
	}
	return text
}

// tellDenied tells why a port may not be opened, and what to do.
func tellDenied(p serial.PortStatus) (found, next string) {
	switch p.Denied {
	case serial.NotMember:
		return ": you may not open it, and group " + p.Group + " may", fmt.Sprintf("sudo usermod -aG %s $USER, and log in again", p.Group)
	case serial.NeedsLogin:
		return ": you are in group " + p.Group + ", and logged in before that was so", "log out and in again; what was started before, an agent say, has to be started again"
	}
	return ": you may not open it, and no group may", "a rule for udev helps: docs/how-to/connect-boards.md has one"
}

// grabber is a program that takes ports for itself.
type grabber struct{ comm, found, next string }

var grabbers = []grabber{
	{"ModemManager", "ModemManager is running: it greets new ports as if they were modems, and has them for some seconds", "the rule for udev in docs/how-to/connect-boards.md keeps it away"},
	{"brltty", "brltty is running: it takes ports with a usual bridge for braille displays", "if nobody here reads braille, remove it: sudo apt remove brltty"},
}

// grabbers tells of programs that are known to take ports. Only Linux has them.
func (d *doctor) grabbers(ctx context.Context) []finding {
	if d.system != "linux" {
		return nil
	}
	var all []finding
	names, _ := filepath.Glob(filepath.Join(d.root, "proc/[0-9]*/comm"))
	for _, name := range names {
		if ctx.Err() != nil {
			break
		}
		comm, _ := os.ReadFile(name) // it may have just ended
		i := slices.IndexFunc(grabbers, func(g grabber) bool { return g.comm == strings.TrimSpace(string(comm)) })
		if i < 0 {
			continue
		}
		g := grabbers[i]
		f := finding{Check: strings.ToLower(g.comm), State: note, Found: g.found, Next: g.next}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			f.About = fmt.Sprintf("process %d", pid)
		}
		if g.comm == "ModemManager" && len(d.rules()) > 0 {
			f.State, f.Found, f.Next = fine, "ModemManager is running, and a rule of ours is there to keep it away", ""
		}
		all = append(all, f)
	}
	return all
}

// rules are the rules for udev that bear our name.
func (d *doctor) rules() (paths []string) {
	for _, dir := range []string{"etc/udev/rules.d", "run/udev/rules.d", "usr/lib/udev/rules.d", "lib/udev/rules.d"} {
		found, _ := filepath.Glob(filepath.Join(d.root, dir, "*ferrule*.rules"))
		paths = append(paths, found...)
	}
	return paths
}

// udev tells whether a rule of ours is there. Only Linux has udev.
func (d *doctor) udev(context.Context) []finding {
	if d.system != "linux" {
		return nil
	}
	if rules := d.rules(); len(rules) > 0 {
		return []finding{{Check: "udev", About: rules[0], State: fine, Found: "a rule of ours for udev is there: " + rules[0]}}
	}
	return []finding{{Check: "udev", State: fine, Found: "no rule of ours for udev is there; docs/how-to/connect-boards.md has one, for services"}}
}
