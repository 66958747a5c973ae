package serial

import (
	"context"
	"slices"

	"github.com/ferrulehq/ferrule/internal/permission"
)

// PortStatus describes a port without opening it: opening restarts most boards.
type PortStatus struct {
	// Path is the port, or the configured path if there is none.
	Path string
	// Absent is why the port is missing.
	Absent string
	// USB and the following fields come from the system. They are empty for a port
	// that is not on USB.
	USB                       bool
	VID, PID, Serial, Product string
	// Maker is the maker of boards with this USB ID. Bridge is the bridge chip with
	// this USB ID, which may have anything behind it.
	Maker, Bridge string
	// Denied is why this process may not open it, Group the group that may.
	Denied permission.Denied
	Group  string
	// Holder is another process that has it open, if one is visible.
	Holder Process
}

// Process is a process of this machine.
type Process struct {
	ID   int
	Name string
}

// bridges are USB-to-serial chips, by the USB vendor ID.
var bridges = map[string]string{
	"0403": "FTDI",
	"067B": "Prolific PL2303",
	"10C4": "Silicon Labs CP210x",
	"1A86": "WCH CH340",
}

// Inspect returns the status of every port that a board may be plugged into, and of
// the named ones. It opens none of them. When ctx ends, it returns what it has.
func Inspect(ctx context.Context, named ...string) ([]PortStatus, error) {
	return inspector{native{}, permission.ToReadAndWrite, holderOf}.inspect(ctx, named)
}

// inspector holds the operating system functions that Inspect uses.
type inspector struct {
	system system
	denied func(path string) (permission.Denied, string)
	holder func(path string) Process
}

func (s inspector) inspect(ctx context.Context, named []string) ([]PortStatus, error) {
	all, err := s.system.list()
	if err != nil {
		return nil, err
	}
	ports := slices.Clone(all)
	var statuses []PortStatus
	for _, path := range named {
		real, _, err := s.system.stat(path)
		switch {
		case err != nil:
			statuses = append(statuses, PortStatus{Path: path, Absent: absent(path, all)})
		case !slices.ContainsFunc(ports, func(f systemPort) bool { return f.Path == real }):
			ports = append(ports, systemPort{Path: real})
		}
	}
	for _, f := range ports {
		if ctx.Err() != nil {
			break
		}
		statuses = append(statuses, s.status(f))
	}
	return statuses, ctx.Err()
}

func (s inspector) status(f systemPort) PortStatus {
	out := PortStatus{
		Path: f.Path, USB: f.USB, VID: f.VID, PID: f.PID, Serial: f.Serial, Product: f.Product,
		Maker: boardMakers[f.VID], Bridge: bridges[f.VID], Holder: s.holder(f.Path),
	}
	out.Denied, out.Group = s.denied(f.Path)
	return out
}
