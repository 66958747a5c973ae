package serial

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ferrulehq/ferrule/internal/permission"
)

// TestInspect: all ports are listed, and named ports that do not exist.
func TestInspect(t *testing.T) {
	s := inspector{
		&machine{ports: []systemPort{arduino, printer, console}, links: map[string]string{"/dev/robot": arduino.Path}},
		func(path string) (permission.Denied, string) {
			if path == printer.Path {
				return permission.NeedsLogin, "dialout"
			}
			return "", ""
		},
		func(path string) Process {
			if path == console.Path {
				return Process{12, "agetty"}
			}
			return Process{}
		},
	}
	uno := PortStatus{Path: "/dev/ttyACM0", USB: true, VID: "2341", PID: "0043", Serial: "95530343834351A0B091", Product: "Arduino Uno", Maker: "Arduino"}
	clone := PortStatus{Path: "/dev/ttyUSB0", USB: true, VID: "1A86", PID: "7523", Product: "USB Serial", Bridge: "WCH CH340", Denied: permission.NeedsLogin, Group: "dialout"}
	pi := PortStatus{Path: "/dev/ttyAMA0", Holder: Process{12, "agetty"}}
	away := PortStatus{Path: "COM9", Absent: `port COM9 does not exist; found /dev/ttyACM0 ("Arduino Uno"), /dev/ttyUSB0 ("USB Serial"), /dev/ttyAMA0`}
	got, err := s.inspect(t.Context(), []string{"COM9", "/dev/robot"})
	if want := []PortStatus{away, uno, clone, pi}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: got %+v, want %+v", err, got, want)
	}
}

// TestInspectFails: the system cannot list ports, or the context ended.
func TestInspectFails(t *testing.T) {
	s := inspector{&machine{broken: true}, nil, nil}
	if got, err := s.inspect(t.Context(), nil); err == nil || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.system = &machine{ports: []systemPort{arduino}}
	if got, err := s.inspect(ctx, nil); !errors.Is(err, context.Canceled) || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestMakersAndBridges: no USB ID is that of a board maker and of a bridge.
func TestMakersAndBridges(t *testing.T) {
	for id, name := range bridges {
		if boardMakers[id] != "" {
			t.Errorf("%s is %s and %s", id, name, boardMakers[id])
		}
	}
}
