package serial

import (
	"context"
	"slices"
)

// Surveyed is a port as it can be told of without opening it: opening restarts
// most boards.
type Surveyed struct {
	// Path is the port, or what was asked for where there is none.
	Path string
	// Absent is why nothing is there.
	Absent string
	// What follows is what the system says of the board: all of it is empty for
	// a port that is not on USB.
	USB                       bool
	VID, PID, Serial, Product string
	// Maker is who sells boards under this USB id. Bridge is the chip, where it
	// is known for one that may have anything behind it.
	Maker, Bridge string
	// Denied is why this process may not open it, and Group the group that may.
	Denied Denied
	Group  string
	// Holder is another process that has it open, if this user can see one.
	Holder Process
}

// Process is a process of this machine.
type Process struct {
	ID   int
	Name string
}

// Denied is why a port may not be opened; empty if it may.
type Denied string

const (
	// NotMember: a group may, and the user is not in it.
	NotMember Denied = "not_member"
	// NotYet: the user is in the group, and logged in before that was so.
	NotYet Denied = "not_yet"
	// NoGroup: no group would help.
	NoGroup Denied = "no_group"
)

// bridges are chips between USB and a serial line, by the USB id of their makers.
var bridges = map[string]string{
	"0403": "FTDI",
	"067B": "Prolific PL2303",
	"10C4": "Silicon Labs CP210x",
	"1A86": "WCH CH340",
}

// Survey tells of every port that boards are plugged into, and of those that are
// named. It opens none of them. When ctx ends, it returns what it has.
func Survey(ctx context.Context, named ...string) ([]Surveyed, error) {
	return surveyor{native{}, denied, holding}.survey(ctx, named)
}

// surveyor is what a survey asks the operating system.
type surveyor struct {
	system  system
	denied  func(path string) (Denied, string)
	holding func(path string) Process
}

func (s surveyor) survey(ctx context.Context, named []string) ([]Surveyed, error) {
	all, err := s.system.list()
	if err != nil {
		return nil, err
	}
	ports := slices.Clone(all)
	var surveyed []Surveyed
	for _, path := range named {
		real, _, err := s.system.stat(path)
		switch {
		case err != nil:
			surveyed = append(surveyed, Surveyed{Path: path, Absent: absent(path, all)})
		case !slices.ContainsFunc(ports, func(f found) bool { return f.Path == real }):
			ports = append(ports, found{Path: real})
		}
	}
	for _, f := range ports {
		if ctx.Err() != nil {
			break
		}
		surveyed = append(surveyed, s.look(f))
	}
	return surveyed, ctx.Err()
}

// look tells of one port.
func (s surveyor) look(f found) Surveyed {
	out := Surveyed{
		Path: f.Path, USB: f.USB, VID: f.VID, PID: f.PID, Serial: f.Serial, Product: f.Product,
		Maker: vendors[f.VID], Bridge: bridges[f.VID], Holder: s.holding(f.Path),
	}
	out.Denied, out.Group = s.denied(f.Path)
	return out
}
