package serial

import (
	"fmt"
	"strings"

	"go.bug.st/serial/enumerator"
)

// native reads the registry.
type native struct{}

func (native) covers(string) bool { return true }

func (native) list() ([]systemPort, error) {
	ports, err := enumerator.GetDetailedPortsList()
	if err != nil {
		return nil, err
	}
	var all []systemPort
	for _, p := range ports {
		f := systemPort{Path: p.Name, USB: p.IsUSB}
		if p.IsUSB {
			f.VID, f.PID = strings.ToUpper(p.VID), strings.ToUpper(p.PID)
			f.Serial, f.Product, f.Location = clean(p.SerialNumber), clean(p.Product), p.Name
		}
		all = append(all, f)
	}
	return all, nil
}

func (n native) stat(path string) (real, fileID string, err error) {
	all, err := n.list()
	if err != nil {
		return "", "", err
	}
	path = strings.TrimPrefix(path, `\\.\`)
	for _, f := range all {
		if strings.EqualFold(f.Path, path) {
			return f.Path, fmt.Sprintf("%s %s %s %s", f.Path, f.VID, f.PID, f.Serial), nil
		}
	}
	return "", "", fmt.Errorf("port %s does not exist", path)
}
