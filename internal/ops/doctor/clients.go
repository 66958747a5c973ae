package doctor

import (
	"context"
	"errors"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ops/setup"
)

// clients checks which agent programs of this user are set up, and whether what their
// configurations name works: it starts the command or connects to the URL.
func (d *Doctor) clients(ctx context.Context) []Finding {
	place, err := d.place()
	if err != nil {
		return nil // without a home directory there are no configurations
	}
	survey := setup.Survey(place, false, setup.ServerName)
	problems := make([]error, len(survey))
	var probes sync.WaitGroup
	for i, c := range survey {
		if c.Ferrule {
			probes.Go(func() { problems[i] = d.probe(ctx, c.Entry) })
		}
	}
	probes.Wait()
	var all []Finding
	for i, c := range survey {
		f := Finding{Check: "client", About: c.File}
		switch {
		case c.Error != "":
			f.State, f.Found = Wrong, "the configuration of "+c.Title+" cannot be read: "+c.Error
			f.Next = "correct it; `ferrule setup " + c.Client + " --print` shows the entry"
		case errors.Is(problems[i], errNotTried):
			f.State, f.Found = Note, c.Title+" is set up; "+problems[i].Error()
		case problems[i] != nil:
			f.State, f.Found = Wrong, c.Title+" is set up but cannot use Ferrule: "+problems[i].Error()
			f.Next = "run `ferrule setup " + c.Client + "` to correct the entry"
			switch renew := "run `ferrule setup " + c.Client + " --http`, which writes a token"; {
			case errors.Is(problems[i], errNoToken), errors.Is(problems[i], errWrongToken):
				f.Next = renew
			case c.Entry.URL != "":
				f.Next = "start that gateway, then " + renew + "; or " + f.Next
			}
		case c.Ferrule:
			f.State, f.Found = Fine, c.Title+" is set up, and "+describeEntry(c.Entry)+" answers"
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
