package serial

import (
	"fmt"
	"strings"

	"go.bug.st/serial/enumerator"
)

// native asks the registry.
type native struct{}

func (native) lists(string) bool { return true }

func (native) list() ([]found, error) {
	ports, err := enumerator.GetDetailedPortsList()
	if err != nil {
		return nil, err
	}
	var all []found
	for _, p := range ports {
		f := found{Path: p.Name, USB: p.IsUSB}
		if p.IsUSB {
			f.VID, f.PID = strings.ToUpper(p.VID), strings.ToUpper(p.PID)
			f.Serial, f.Product, f.Place = clean(p.SerialNumber), clean(p.Product), p.Name
		}
		all = append(all, f)
	}
	return all, nil
}

func (n native) stat(path string) (real, mark string, err error) {
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
	return "", "", fmt.Errorf("there is no port %s", path)
}
