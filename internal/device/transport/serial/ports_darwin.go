package serial

import (
	"path/filepath"
	"strings"
)

// native knows ports by name: what is behind them only Apple's own libraries
// tell, and this binary is built without. The name holds the serial number of
// the board, or its place.
type native struct{ unixPaths }

func (native) lists(path string) bool { return strings.HasPrefix(path, "/dev/cu.usb") }

func (native) list() ([]found, error) {
	var all []found
	for _, pattern := range []string{"usb*", "SLAB_USBtoUART*", "wchusbserial*"} {
		paths, err := filepath.Glob("/dev/cu." + pattern)
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			all = append(all, found{Path: p, USB: true, Place: strings.TrimPrefix(filepath.Base(p), "cu.")})
		}
	}
	return all, nil
}
