package main

import "context"

// clients tells which agent programs of this user know Ferrule by their configs.
func (d *doctor) clients(context.Context) []finding {
	place, err := d.place()
	if err != nil {
		return nil // there is no home, and no config in it
	}
	var all []finding
	for _, c := range knownClients(place, false, serverName) {
		f := finding{Check: "client", About: c.File}
		switch {
		case c.Error != "":
			f.State, f.Found = wrong, "the config of "+c.Title+" cannot be read: "+c.Error
			f.Next = "mend it; `ferrule setup " + c.Client + " --print` shows what belongs there"
		case c.Ferrule:
			f.State, f.Found = fine, c.Title+" knows Ferrule"
		case c.Exists:
			f.State, f.Found, f.Next = note, c.Title+" is here, and does not know Ferrule", "`ferrule setup "+c.Client+"` tells it"
		default:
			continue
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		all = append(all, finding{Check: "client", State: note, Found: "no config of an agent program that Ferrule knows is here", Next: "`ferrule setup` lists them"})
	}
	return all
}
