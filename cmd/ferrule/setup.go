package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/terminal"
	"github.com/ferrulehq/ferrule/internal/ops/access"
	"github.com/ferrulehq/ferrule/internal/ops/homesetup"
	"github.com/ferrulehq/ferrule/internal/ops/setup"
)

// setupFlags are the flags of `ferrule setup`.
type setupFlags struct {
	name, http             string
	project, print, remove bool
}

func (a *app) setupCommand() *cobra.Command {
	var s setupFlags
	cmd := &cobra.Command{
		Use:   "setup [CLIENT] [flags] [-- MCP-FLAGS]",
		Short: "Set up an agent program, or a Home Assistant",
		Long:  setup.Help(),
		Example: `  ferrule setup
  ferrule setup claude-code
  ferrule setup codex -- --serial robot=/dev/ttyUSB0 --tcp arm=192.168.1.20:4242
  ferrule setup vscode --project
  ferrule setup gemini --http
  ferrule setup zed --print
  ferrule setup zed --remove
  ferrule setup homeassistant http://homeassistant.local:8123`,
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
		RunE: func(cmd *cobra.Command, args []string) error {
			place, err := setup.Here()
			if err != nil {
				return usageError{errors.New("there is no home directory with configurations of agent programs; set HOME")}
			}
			if len(args) == 0 {
				return a.listClients(place, s)
			}
			client, err := setup.Find(args[0])
			if err != nil {
				return usageError{err}
			}
			return a.setup(cmd.Context(), place, client, s, args[1:])
		},
	}
	cmd.Flags().StringVar(&s.name, "name", setup.ServerName, "`NAME` of the server in the client, at most 12 characters")
	cmd.Flags().StringVar(&s.http, "http", "", "connect to a running gateway at this `URL`; auto for its own")
	cmd.Flags().Lookup("http").NoOptDefVal = setup.RunningURL
	cmd.Flags().BoolVar(&s.project, "project", false, "change the project file in this directory instead of the user's")
	cmd.Flags().BoolVar(&s.print, "print", false, "print the entry and its file, change nothing")
	cmd.Flags().BoolVar(&s.remove, "remove", false, "remove Ferrule")
	cmd.MarkFlagsMutuallyExclusive("print", "remove")
	cmd.MarkFlagsMutuallyExclusive("http", "remove")
	cmd.AddCommand(a.setupHomeCommand())
	return cmd
}

func (a *app) setupHomeCommand() *cobra.Command {
	var p homesetup.Parts
	p.Ask = func(ctx context.Context, text string) string {
		fmt.Fprint(a.stderr, text)
		return terminal.ReadSecret(ctx, os.Stdin)
	}
	cmd := &cobra.Command{
		Use: "homeassistant [URL]", Short: "Save the access token of a Home Assistant", Long: homesetup.Help,
		Example: "  ferrule setup homeassistant\n  ferrule setup homeassistant https://192.168.1.50:8123 --name house --ca house-ca.pem",
		Args:    atMostOne, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Home.URL = strings.Join(args, "")
			report, err := homesetup.Run(cmd.Context(), p)
			if err == nil && a.json {
				return a.printJSON(report)
			} else if err == nil {
				fmt.Fprint(a.stdout, report)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&p.Home.Name, "name", "home", "`NAME` of the Home Assistant")
	cmd.Flags().StringVar(&p.Home.File, "file", "", "`FILE` for the token (default in the configuration directory)")
	cmd.Flags().StringVar(&p.Home.CA, "ca", "", "`FILE` with the CA of its certificate")
	return cmd
}

func (a *app) listClients(place setup.Place, s setupFlags) error {
	all := setup.Survey(place, s.project, s.name)
	if a.json {
		return a.printJSON(all)
	}
	var rows [][]string
	for _, d := range all {
		state := "not set up"
		switch {
		case d.Error != "":
			state = "unreadable"
		case d.Ferrule:
			state = "set up"
		case !d.Exists:
			state = "no config"
		}
		rows = append(rows, []string{d.Client, state, d.File, ferrule.OneLine(d.Error, 200)})
	}
	return a.table("CLIENT FERRULE FILE REMARK", rows, func(column, cell string) string {
		switch {
		case column == "FERRULE" && cell == "set up":
			return a.style(green, cell)
		case column == "FERRULE" && cell == "unreadable":
			return a.style(red, cell)
		}
		return cell
	})
}

// setup adds Ferrule to the file of a client, removes it, or prints its entry.
func (a *app) setup(ctx context.Context, place setup.Place, client setup.Client, s setupFlags, flags []string) error {
	files, perm := client.Files(place, s.project), fs.FileMode(0o600)
	if s.project {
		perm = 0o644
	}
	if len(files) == 0 {
		return usageError{fmt.Errorf("%s has no project files; leave out --project", client.Title)}
	}
	file := setup.Choose(files)
	server := setup.Server{Name: s.name}
	var plan access.Plan
	var token builtin.TokenOutput
	var replaced, left bool
	if !s.remove {
		err := a.fill(ctx, &server, s, flags)
		if e := (*ferrule.Error)(nil); errors.As(err, &e) {
			return err // of the gateway
		}
		if err != nil {
			return usageError{err}
		}
	}
	if err := client.Accepts(server); err != nil {
		return usageError{err}
	}
	service, err := a.useService(ctx)
	name := client.TokenName(s.name, service)
	if s.http != "" {
		var known builtin.ListTokensOutput
		if err == nil {
			known, err = callGateway[builtin.ListTokensOutput](ctx, a, "list_tokens", builtin.ListTokensInput{})
		}
		if plan, err = access.PlanHTTP(s.http, s.project || s.print, known, err); err != nil {
			return err
		}
		server.URL = plan.URL
		replaced = slices.ContainsFunc(known.Tokens, func(t ferrule.Token) bool { return t.Name == name })
	}
	if s.print {
		if s.http != "" {
			server.Token = "TOKEN"
		}
		return a.printSetup(client, file, server)
	}
	edit := func(doc []byte) ([]byte, error) { return client.Add(doc, server) }
	if s.remove {
		edit = func(doc []byte) ([]byte, error) {
			left = client.HasToken(doc, server.Name)
			return client.Remove(doc, server.Name)
		}
	}
	done, err := client.Change(file, perm, func(doc []byte) ([]byte, error) {
		after, err := edit(doc)
		if err == nil && plan.Token { // it is made only if the file can be changed
			if token, err = a.clientToken(ctx, name, file); err != nil {
				return nil, err
			}
			server.Token = token.Secret
			after, err = edit(doc)
		}
		if err != nil {
			err = usageError{fmt.Errorf("%s: %w; nothing was changed. Run `ferrule setup %s --print` for the entry to add by hand", file, err, client.Name)}
		}
		return after, err
	})
	if err != nil {
		return err
	}
	if a.json {
		out := map[string]any{"client": client.Name, "file": done.Path, "changed": done.Changed, "backup": done.Backup}
		if plan.Token {
			out["token"], out["replaced"] = token.Token, replaced
		}
		return a.printJSON(out)
	}
	fmt.Fprint(a.stdout, done.Text(client, server.Name, s.remove))
	switch {
	case plan.Token:
		fmt.Fprint(a.stdout, access.ClientToken(token, replaced))
	case plan.Without != "":
		fmt.Fprintln(a.stdout, plan.Without)
	case left:
		fmt.Fprint(a.stdout, access.TokenLeft(name))
	}
	return nil
}

// clientToken makes a token for a client, or rotates the one that it has.
func (a *app) clientToken(ctx context.Context, name, file string) (builtin.TokenOutput, error) {
	if err := setup.Private(file); err != nil {
		return builtin.TokenOutput{}, err
	}
	return callGateway[builtin.TokenOutput](ctx, a, "add_token", builtin.AddTokenInput{Name: name, Rotate: true})
}

// printSetup prints the entry as a file without anything else.
func (a *app) printSetup(client setup.Client, file string, server setup.Server) error {
	text, err := client.Add(nil, server)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]string{"client": client.Name, "file": file, "text": string(text)})
	}
	_, err = fmt.Fprintf(a.stdout, "Add this to %s:\n\n%s", file, text)
	return err
}

// fill fills in the entry of a client.
func (a *app) fill(ctx context.Context, server *setup.Server, s setupFlags, flags []string) (err error) {
	if s.http == "" {
		if server.Args, err = a.mcpArgs(flags); err == nil {
			err = a.fillService(ctx, server, s, flags)
		}
		if err == nil {
			server.Command, err = setup.OwnCommand(s.project)
		}
		return err
	}
	if u, err := url.Parse(s.http); s.http != setup.RunningURL && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("--http must be a URL such as %s, got %q", setup.URL, s.http)
	}
	if len(flags) > 0 {
		return errors.New("flags after -- are for `ferrule mcp`, which --http does not start")
	}
	server.URL = s.http
	return nil
}

// fillService makes the client use the packaged service, if it runs: a second gateway would
// compete with it for the ports. Flags of the user, and a data directory, name another
// gateway. A project file is shared with machines that may have no service; there
// `ferrule mcp` decides when it starts.
func (a *app) fillService(ctx context.Context, server *setup.Server, s setupFlags, flags []string) error {
	if s.project || len(flags) > 0 {
		return nil
	}
	use, err := a.useService(ctx)
	if use {
		server.Args = []string{"mcp", "--service"}
	}
	return err
}

// mcpArgs returns the arguments with which a client starts `ferrule mcp`. The client has
// another environment, so FERRULE_DATA and FERRULE_CONFIG become flags.
func (a *app) mcpArgs(flags []string) ([]string, error) {
	var mcp gatewayFlags
	cmd := &cobra.Command{}
	mcp.add(cmd, "")
	cmd.Flags().String("data", "", "")
	err := cmd.ParseFlags(flags)
	if rest := cmd.Flags().Args(); err == nil && len(rest) > 0 {
		err = fmt.Errorf("`ferrule mcp` takes no argument %q", rest[0])
	}
	if err == nil {
		_, err = mcp.parts(a)
	}
	if err != nil {
		return nil, fmt.Errorf("after --: %w", withoutJargon(err))
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
				return nil, fmt.Errorf("after --: --%s must be an absolute path, because the client may start it in any directory; got %q", f.name, given.Value)
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
