package serial

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
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
	// Place is where on the bus it is plugged in, and Interface which part of
	// what is there the port is; 0 for most.
	Place, Interface string
	// Stay is another each time that something is plugged in.
	Stay string
}

// String is the port as an error names it.
func (f found) String() string {
	if f.Product == "" {
		return f.Path
	}
	return fmt.Sprintf("%s (%.40q)", f.Path, f.Product)
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
		return Name + ":" + p.asked.Path
	case p.numbered():
		return fmt.Sprintf("usb:%s:%s:%s%s", p.VID, p.PID, word(p.Serial), p.part())
	}
	return p.place()
}

// local tells whether an address means this port on this machine only: it is no
// serial number, or one that another has, too.
func (p port) local(address string) bool {
	return p.absent != "" || !p.USB || !p.numbered() || address != p.address()
}

// place is the address of what has no serial number of its own.
func (f found) place() string {
	return fmt.Sprintf("usb:%s:%s@%s%s", f.VID, f.PID, word(f.Place), f.part())
}

// part tells the ports of one board apart.
func (f found) part() string {
	if f.Interface == "" || f.Interface == "0" {
		return ""
	}
	return "." + word(f.Interface)
}

// word is s, or what stands for it if it holds anything but letters, digits and
// a few signs: addresses stand in commands that people are told to run.
func word(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "x" + hex.EncodeToString(sum[:6])
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

// numbered tells whether the serial number is one. Some makers give all of
// theirs the same: 0001, say.
func (f found) numbered() bool {
	return len(f.Serial) > 4 && strings.Trim(f.Serial, f.Serial[:1]) != ""
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
