package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ops/setup"
)

// serverName is what Ferrule is called in a client, unless its user says otherwise.
const serverName = "ferrule"

// settingUp is what `ferrule setup` is told.
type settingUp struct {
	name, http             string
	project, print, remove bool
}

func (a *app) setupCommand() *cobra.Command {
	var s settingUp
	cmd := &cobra.Command{
		Use:   "setup [CLIENT] [-- FLAGS]",
		Short: "Write Ferrule into the config of an agent program",
		Long: `Write Ferrule into the config of an agent program, so that it starts ` + "`ferrule mcp`" + `
by itself; with --http, so that it talks to the gateway that ` + "`ferrule up`" + ` runs.
Without a client, list them, and which of them know Ferrule.

What follows -- are the flags of ` + "`ferrule mcp`" + `; without any they are --serial auto.
The program starts this very binary: as PATH has it, so that an update is found,
else where it is. Files of a project say just ferrule, if PATH has it.

Nothing else in the file is touched, comments included, and what you added to
Ferrule's entry stays. Before a file is changed, a copy is put beside it:
FILE.ferrule-backup the first time, with a number after that; none is overwritten. A
file that cannot be read is left as it is.

` + clientList(),
		Example: `  ferrule setup
  ferrule setup claude-code
  ferrule setup codex -- --serial robot=/dev/ttyUSB0 --tcp arm=192.168.1.20:4242
  ferrule setup vscode --project
  ferrule setup gemini --http
  ferrule setup zed --print
  ferrule setup zed --remove`,
		Args: func(cmd *cobra.Command, args []string) error {
			n := len(args)
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				n = dash
			}
			if n > 1 || n == 0 && (len(args) > 0 || s.print || s.remove || s.http != "") {
				return usageError{fmt.Errorf("usage: %s", cmd.UseLine())}
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, c := range setup.Clients() {
				names = append(names, cobra.CompletionWithDesc(c.Name, c.Title))
			}
			if len(args) > 0 {
				names = nil
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			place, err := setup.Here()
			if err != nil {
				return usageError{errors.New("there is no home directory, where agent programs keep their configs; HOME names it")}
			}
			if len(args) == 0 {
				return a.listClients(place, s)
			}
			client, err := setup.Find(args[0])
			if err != nil {
				return usageError{err}
			}
			return a.setUp(place, client, s, args[1:])
		},
	}
	cmd.Flags().StringVar(&s.name, "name", serverName, "the server's `NAME` in the client, at most 12 characters")
	cmd.Flags().StringVar(&s.http, "http", "", "let it talk to a gateway that runs, at this `URL`")
	cmd.Flags().Lookup("http").NoOptDefVal = setup.URL
	cmd.Flags().BoolVar(&s.project, "project", false, "write the file of the project in this directory instead of the user's")
	cmd.Flags().BoolVar(&s.print, "print", false, "print what would be written and where, and write nothing")
	cmd.Flags().BoolVar(&s.remove, "remove", false, "take Ferrule out again")
	cmd.MarkFlagsMutuallyExclusive("print", "remove")
	cmd.MarkFlagsMutuallyExclusive("http", "remove")
	return cmd
}

// clientList lists the clients for the help.
func clientList() string {
	var b strings.Builder
	for _, c := range setup.Clients() {
		fmt.Fprintf(&b, "  %-16s %s\n", c.Name, c.Title)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// describedClient is a client in the list.
type describedClient struct {
	Client  string `json:"client"`
	Title   string `json:"title"`
	File    string `json:"file"`
	Exists  bool   `json:"exists"`
	Ferrule bool   `json:"ferrule"`
	Error   string `json:"error,omitempty"`
}

// knownClients tells of every client whether its config is there, and whether a
// server of a name is in it.
func knownClients(place setup.Place, project bool, name string) []describedClient {
	all := []describedClient{}
	for _, c := range setup.Clients() {
		files := c.Files(place, project)
		if len(files) == 0 {
			continue
		}
		d := describedClient{Client: c.Name, Title: c.Title, File: setup.Choose(files)}
		doc, err := os.ReadFile(d.File)
		d.Exists = !errors.Is(err, fs.ErrNotExist)
		if err == nil {
			d.Ferrule, err = c.Has(doc, name)
		}
		if err != nil && d.Exists {
			d.Error = err.Error()
		}
		all = append(all, d)
	}
	return all
}

func (a *app) listClients(place setup.Place, s settingUp) error {
	all := knownClients(place, s.project, s.name)
	if a.json {
		return a.printJSON(all)
	}
	var rows [][]string
	for _, d := range all {
		state := "no"
		switch {
		case d.Error != "":
			state = "cannot be read"
		case d.Ferrule:
			state = "set up"
		case !d.Exists:
			state = "no config"
		}
		rows = append(rows, []string{d.Client, state, d.File, oneLine(d.Error, 200)})
	}
	return a.table("CLIENT FERRULE FILE REMARK", rows, func(column, cell string) string {
		switch {
		case column == "FERRULE" && cell == "set up":
			return a.style(green, cell)
		case column == "FERRULE" && cell == "cannot be read":
			return a.style(red, cell)
		}
		return cell
	})
}

// setUp writes Ferrule into the file of a client, takes it out, or prints it.
func (a *app) setUp(place setup.Place, client setup.Client, s settingUp, flags []string) error {
	files, perm := client.Files(place, s.project), fs.FileMode(0o600)
	if s.project {
		perm = 0o644
	}
	if len(files) == 0 {
		return usageError{fmt.Errorf("%s has no files of projects; without --project it is set up for you", client.Title)}
	}
	file := setup.Choose(files)
	server := setup.Server{Name: s.name}
	if !s.remove {
		if err := a.fill(&server, s, flags); err != nil {
			return usageError{err}
		}
	}
	if err := client.Accepts(server); err != nil {
		return usageError{err}
	}
	if s.print {
		return a.printSetup(client, file, server)
	}
	edit := func(doc []byte) ([]byte, error) { return client.Add(doc, server) }
	if s.remove {
		edit = func(doc []byte) ([]byte, error) { return client.Remove(doc, server.Name) }
	}
	done, err := client.Change(file, perm, func(doc []byte) ([]byte, error) {
		doc, err := edit(doc)
		if err != nil {
			err = usageError{fmt.Errorf("%s: %w; nothing was written, and `ferrule setup %s --print` shows what belongs there", file, err, client.Name)}
		}
		return doc, err
	})
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]any{"client": client.Name, "file": done.Path, "changed": done.Changed, "backup": done.Backup})
	}
	switch {
	case !done.Changed && s.remove:
		fmt.Fprintf(a.stdout, "%s is not in %s.\n", server.Name, done.Path)
	case !done.Changed:
		fmt.Fprintf(a.stdout, "%s is in %s already.\n", server.Name, done.Path)
	case s.remove:
		fmt.Fprintf(a.stdout, "%s is no longer in %s.\n", server.Name, done.Path)
	default:
		fmt.Fprintf(a.stdout, "%s is in %s now. %s\n", server.Name, done.Path, client.Next)
	}
	if done.Backup != "" {
		fmt.Fprintf(a.stdout, "What it was is kept in %s.\n", done.Backup)
	}
	return nil
}

// printSetup prints what belongs into a file that has nothing else.
func (a *app) printSetup(client setup.Client, file string, server setup.Server) error {
	text, err := client.Add(nil, server)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]string{"client": client.Name, "file": file, "text": string(text)})
	}
	_, err = fmt.Fprintf(a.stdout, "This belongs into %s:\n\n%s", file, text)
	return err
}

// fill says what a client is told of Ferrule.
func (a *app) fill(server *setup.Server, s settingUp, flags []string) (err error) {
	if s.http == "" {
		if server.Args, err = a.mcpArgs(flags); err == nil {
			server.Command, err = ownPath(s.project)
		}
		return err
	}
	if u, err := url.Parse(s.http); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("--http: want a URL such as %s, got %q", setup.URL, s.http)
	}
	if len(flags) > 0 {
		return errors.New("what follows -- is for `ferrule mcp`, which is not started with --http")
	}
	server.URL = s.http
	return nil
}

// mcpArgs is how an agent program starts `ferrule mcp`. What the environment says
// here is not said there, so it is written down.
func (a *app) mcpArgs(flags []string) ([]string, error) {
	var wanted starting
	cmd := &cobra.Command{}
	wanted.flags(cmd, "")
	cmd.Flags().String("data", "", "")
	err := cmd.ParseFlags(flags)
	if rest := cmd.Flags().Args(); err == nil && len(rest) > 0 {
		err = fmt.Errorf("`ferrule mcp` does not take %q", rest[0])
	}
	if err == nil {
		_, err = wanted.config()
	}
	if err != nil {
		return nil, fmt.Errorf("after --: %w", plain(err))
	}
	if len(flags) == 0 {
		flags = []string{"--serial", "auto"}
	}
	args := append([]string{"mcp"}, flags...)
	for _, f := range []struct{ name, here string }{
		{"data", cmp.Or(a.data, os.Getenv("FERRULE_DATA"))}, {"config", os.Getenv("FERRULE_CONFIG")},
	} {
		if given := cmd.Flags().Lookup(f.name); given.Changed {
			if !filepath.IsAbs(given.Value.String()) {
				return nil, fmt.Errorf("after --: want the whole path for --%s, as the agent may start it anywhere, got %q", f.name, given.Value)
			}
		} else if f.here != "" {
			path, err := filepath.Abs(f.here)
			if err != nil {
				return nil, err
			}
			args = append(args, "--"+f.name, path)
		}
	}
	return args, nil
}

// ownPath is how others start this binary. Programs with windows have another PATH
// than a shell, so it is the whole path, but for files that others may read, who
// have Ferrule elsewhere. A link in PATH is kept: it outlives an update.
func ownPath(shared bool) (string, error) {
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
