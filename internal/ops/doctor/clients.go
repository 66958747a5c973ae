package doctor

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ops/setup"
)

// clients checks which agent programs of this user are set up.
func (d *Doctor) clients(context.Context) []Finding {
	place, err := d.place()
	if err != nil {
		return nil // without a home directory there are no configurations
	}
	var all []Finding
	for _, c := range setup.Survey(place, false, setup.ServerName) {
		f := Finding{Check: "client", About: c.File}
		switch {
		case c.Error != "":
			f.State, f.Found = Wrong, "the configuration of "+c.Title+" cannot be read: "+c.Error
			f.Next = "correct it; `ferrule setup " + c.Client + " --print` shows the entry"
		case c.Ferrule:
			f.State, f.Found = Fine, c.Title+" is set up"
		case c.Exists:
			f.State, f.Found, f.Next = Note, c.Title+" is installed but not set up", "run `ferrule setup "+c.Client+"`"
		default:
			continue
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		all = append(all, Finding{Check: "client", State: Note, Found: "no known agent program is installed", Next: "run `ferrule setup` for the list"})
	}
	return all
}
