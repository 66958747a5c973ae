package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/terminal"
	"github.com/ferrulehq/ferrule/internal/ops/access"
	"github.com/ferrulehq/ferrule/internal/ops/homesetup"
	"github.com/ferrulehq/ferrule/internal/ops/setup"
)

func (a *app) setupCommand() *cobra.Command {
	s := access.Setup{Args: a.mcpArgs, Service: a.useService}
	s.Tokens = func(ctx context.Context) (builtin.ListTokensOutput, error) {
		return callGateway[builtin.ListTokensOutput](ctx, a, "list_tokens", builtin.ListTokensInput{})
	}
	s.AddToken = func(ctx context.Context, in builtin.AddTokenInput) (builtin.TokenOutput, error) {
		return callGateway[builtin.TokenOutput](ctx, a, "add_token", in)
	}
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
			if n > 1 || n == 0 && (len(args) > 0 || s.Print || s.Remove || s.HTTP != "") {
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
			s.Flags = args[1:]
			report, err := s.Run(cmd.Context(), place, client)
			if err == nil && a.json {
				return a.printJSON(report.JSON)
			} else if err == nil {
				fmt.Fprint(a.stdout, report.Text)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&s.Name, "name", setup.ServerName, "`NAME` of the server in the client, at most 12 characters")
	cmd.Flags().StringVar(&s.HTTP, "http", "", "connect to a running gateway at this `URL`; auto for its own")
	cmd.Flags().Lookup("http").NoOptDefVal = setup.RunningURL
	cmd.Flags().BoolVar(&s.Project, "project", false, "change the project file in this directory instead of the user's")
	cmd.Flags().BoolVar(&s.Print, "print", false, "print the entry and its file, change nothing")
	cmd.Flags().BoolVar(&s.Remove, "remove", false, "remove Ferrule")
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

func (a *app) listClients(place setup.Place, s access.Setup) error {
	all := setup.Survey(place, s.Project, s.Name)
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
