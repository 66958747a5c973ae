package serial

import (
	"fmt"
	"strings"
)

// found is a port that the system knows, and what it says of the board there.
type found struct {
	Path string
	USB  bool
	// VID and PID are the USB ids, four hexadecimal digits each; empty where the
	// system does not tell.
	VID, PID string
	// Serial is the USB serial number, Product what the board calls itself.
	Serial, Product string
	// Place is where on the bus it is plugged in.
	Place string
}

// String is the port as an error names it.
func (f found) String() string {
	if f.Product == "" {
		return f.Path
	}
	return fmt.Sprintf("%s (%s)", f.Path, f.Product)
}

// own tells whether the USB id is that of somebody who makes boards. Behind the
// id of somebody who makes bridges there may be anything: a 3D printer, say.
func (f found) own() bool { return vendors[f.VID] != "" }

// vendors are those who make boards, and sell them under a USB id of their own.
var vendors = map[string]string{
	"0D28": "Arm Mbed (micro:bit)",
	"1915": "Nordic",
	"1B4F": "SparkFun",
	"2341": "Arduino",
	"239A": "Adafruit",
	"2886": "Seeed",
	"2A03": "Arduino",
	"2B04": "Particle",
	"2E8A": "Raspberry Pi",
	"303A": "Espressif",
}

// address tells the hardware apart from all other: by its serial number, else by
// the place where it is plugged in. What is not on USB has the name that its
// owner calls it by.
func (p port) address() string {
	switch {
	case !p.USB:
		return Medium + ":" + p.asked.Path
	case p.numbered():
		return fmt.Sprintf("usb:%s:%s:%s", p.VID, p.PID, p.Serial)
	}
	return p.place()
}

func (f found) place() string { return fmt.Sprintf("usb:%s:%s@%s", f.VID, f.PID, f.Place) }

// numbered tells whether the serial number is one. Some makers give all of
// theirs the same: 0001, say.
func (f found) numbered() bool {
	return len(f.Serial) > 4 && strings.Trim(f.Serial, f.Serial[:1]) != ""
}

// addresses are the addresses of ports. Where two would have the same, the place
// tells them apart: some boards have two ports, and some makers one number.
func addresses(ports []port) []string {
	count := make(map[string]int)
	all := make([]string, len(ports))
	for i, p := range ports {
		if p.Path == "" {
			all[i] = p.asked.Path
			continue
		}
		all[i] = p.address()
		count[all[i]]++
	}
	for i, p := range ports {
		if count[all[i]] > 1 {
			all[i] = p.place()
		}
	}
	return all
}

// clean is a word from a USB descriptor, fit to be shown: a board can say
// anything there.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
	return strings.TrimSpace(s[:min(len(s), 128)])
}
