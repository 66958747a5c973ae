package serial

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// TestSurvey: what is plugged in is told, and what was named and is not there.
func TestSurvey(t *testing.T) {
	s := surveyor{
		&machine{ports: []found{arduino, printer, console}, links: map[string]string{"/dev/robot": arduino.Path}},
		func(path string) (Denied, string) {
			if path == printer.Path {
				return NotYet, "dialout"
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
	uno := Surveyed{Path: "/dev/ttyACM0", USB: true, VID: "2341", PID: "0043", Serial: "95530343834351A0B091", Product: "Arduino Uno", Maker: "Arduino"}
	clone := Surveyed{Path: "/dev/ttyUSB0", USB: true, VID: "1A86", PID: "7523", Product: "USB Serial", Bridge: "WCH CH340", Denied: NotYet, Group: "dialout"}
	pi := Surveyed{Path: "/dev/ttyAMA0", Holder: Process{12, "agetty"}}
	away := Surveyed{Path: "COM9", Absent: `there is no port COM9; there is /dev/ttyACM0 ("Arduino Uno"), /dev/ttyUSB0 ("USB Serial"), /dev/ttyAMA0`}
	got, err := s.survey(t.Context(), []string{"COM9", "/dev/robot"})
	if want := []Surveyed{away, uno, clone, pi}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: got %+v, want %+v", err, got, want)
	}
}

// TestSurveyOfLittle: a system that tells nothing, and a caller who has gone.
func TestSurveyOfLittle(t *testing.T) {
	s := surveyor{&machine{mute: true}, nil, nil}
	if got, err := s.survey(t.Context(), nil); err == nil || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.system = &machine{ports: []found{arduino}}
	if got, err := s.survey(ctx, nil); !errors.Is(err, context.Canceled) || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestVendorsOrBridges: nobody is both.
func TestVendorsOrBridges(t *testing.T) {
	for id, name := range bridges {
		if vendors[id] != "" {
			t.Errorf("%s is %s and %s", id, name, vendors[id])
		}
	}
}
