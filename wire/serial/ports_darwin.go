package serial

import (
	"path/filepath"
	"strings"
)

// native knows ports by name: what is behind them only Apple's own libraries
// tell, and this binary is built without. The name holds the serial number of
// the board, or its place.
type native struct{ unixPaths }

func (native) list() ([]found, error) {
	paths, err := filepath.Glob("/dev/cu.usb*")
	var all []found
	for _, p := range paths {
		name := strings.TrimPrefix(filepath.Base(p), "cu.")
		all = append(all, found{Path: p, USB: true, Place: name})
	}
	return all, err
}
