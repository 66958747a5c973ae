package serial

import (
	"path/filepath"
	"strings"
)

// native finds ports by name. Only Apple's libraries know the boards behind them, and
// this binary is built without cgo. The name contains the serial number of the board
// or its location.
type native struct{ unixStat }

func (native) covers(path string) bool { return strings.HasPrefix(path, "/dev/cu.usb") }

func (native) list() ([]systemPort, error) {
	var all []systemPort
	for _, pattern := range []string{"usb*", "SLAB_USBtoUART*", "wchusbserial*"} {
		paths, err := filepath.Glob("/dev/cu." + pattern)
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			all = append(all, systemPort{Path: p, USB: true, Location: strings.TrimPrefix(filepath.Base(p), "cu.")})
		}
	}
	return all, nil
}
