package serial

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// systemPort is a port that the system lists, with what it knows about the board.
type systemPort struct {
	Path string
	USB  bool
	// VID and PID are the USB IDs, four hexadecimal digits each; empty if unknown.
	VID, PID string
	// Serial is the USB serial number, Product the product name of the board.
	Serial, Product string
	// Location is the USB port that it is plugged into, Interface the number of the
	// USB interface; 0 for most.
	Location, Interface string
	// PlugID changes each time that something is plugged in.
	PlugID string
}

// String returns the port as messages show it.
func (f systemPort) String() string {
	if f.Product == "" {
		return f.Path
	}
	return fmt.Sprintf("%s (%.40q)", f.Path, f.Product)
}

// fromBoardMaker reports whether the USB ID belongs to a maker of boards. Behind the
// ID of a bridge chip there may be anything, such as a 3D printer.
func (f systemPort) fromBoardMaker() bool { return boardMakers[f.VID] != "" }

// boardMakers are the makers that sell boards under their own USB ID.
var boardMakers = map[string]string{
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

// address returns the address that identifies the hardware: its serial number, else
// its location. A port that is not on USB is identified by its configured path.
func (p port) address() string {
	switch {
	case !p.USB:
		return Name + ":" + p.config.Path
	case p.hasSerial():
		return fmt.Sprintf("usb:%s:%s:%s%s", p.VID, p.PID, shellSafe(p.Serial), p.suffix())
	}
	return p.locationAddress()
}

// local reports whether an address is valid on this machine only: it has no serial
// number, or another board has the same.
func (p port) local(address string) bool {
	if p.last.address != "" {
		return p.last.local
	}
	return p.absent != "" || !p.USB || !p.hasSerial() || address != p.address()
}

// locationAddress returns the address of a board without a unique serial number.
func (f systemPort) locationAddress() string {
	return fmt.Sprintf("usb:%s:%s@%s%s", f.VID, f.PID, shellSafe(f.Location), f.suffix())
}

// suffix distinguishes the ports of one board.
func (f systemPort) suffix() string {
	if f.Interface == "" || f.Interface == "0" {
		return ""
	}
	return "." + shellSafe(f.Interface)
}

// shellSafe returns s, or a hash of it if it contains unusual characters. Addresses are
// part of commands that people are told to run.
func shellSafe(s string) string {
	if shellSafePattern.MatchString(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "x" + hex.EncodeToString(sum[:6])
}

var shellSafePattern = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

// hasSerial reports whether the serial number is likely to be unique. Some makers give
// all boards the same, such as 0001.
func (f systemPort) hasSerial() bool {
	return len(f.Serial) > 4 && strings.Trim(f.Serial, f.Serial[:1]) != ""
}

// clean returns a text from a USB descriptor, fit to be shown. A board can put anything
// there.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
	return strings.TrimSpace(s[:min(len(s), 128)])
}
