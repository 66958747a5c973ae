package setup

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// ServerName is Ferrule's name in a client, unless the user chooses another.
const ServerName = "ferrule"

// Status describes one client and whether it is set up.
type Status struct {
	Client  string `json:"client"`
	Title   string `json:"title"`
	File    string `json:"file"`
	Exists  bool   `json:"exists"`
	Ferrule bool   `json:"ferrule"`
	Error   string `json:"error,omitempty"`
	// Entry is what the client's configuration says about Ferrule.
	Entry Entry `json:"-"`
}

// Entry is the entry of a server as it is in a file.
type Entry struct {
	Server
	Env     map[string]string // variables for the command
	Headers map[string]string // of requests to the URL
	// Variables is set if the client fills in headers from variables that it knows.
	Variables bool
}

// Survey returns the status of every client: whether its configuration exists, and
// whether it has a server of this name.
func Survey(place Place, project bool, name string) []Status {
	all := []Status{}
	for _, c := range Clients() {
		files := c.Files(place, project)
		if len(files) == 0 {
			continue
		}
		s := Status{Client: c.Name, Title: c.Title, File: Choose(files)}
		doc, err := os.ReadFile(s.File)
		s.Exists = !errors.Is(err, fs.ErrNotExist)
		if err == nil {
			s.Entry, s.Ferrule, err = c.Entry(doc, name)
		}
		if err != nil && s.Exists {
			s.Error = err.Error()
		}
		all = append(all, s)
	}
	return all
}

// OwnCommand returns the command with which another program starts this one. Desktop
// programs have another PATH than a shell, so it is the full path; in files that are
// shared with others it is just "ferrule". A link in PATH is kept, because it survives
// an update.
func OwnCommand(shared bool) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if found, err := exec.LookPath("ferrule"); err == nil && sameFile(found, self) {
		if shared {
			return "ferrule", nil
		}
		return filepath.Abs(found)
	}
	return self, nil
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
