package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// app is what the commands share.
type app struct {
	data   string // the data directory, as it was given
	json   bool
	stdout io.Writer
	stderr io.Writer
}

// run runs one command and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	a := &app{stdout: stdout, stderr: stderr}
	cmd := a.root()
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(ctx); err != nil {
		return a.fail(err)
	}
	return 0
}

func (a *app) root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ferrule",
		Short: "Turn self-describing devices into tools for AI agents",
		Long: `Ferrule finds devices that describe themselves, checks what they say, and
lets people and AI agents use them.

Try it without any hardware:

  ferrule sim mcpu --tcp 127.0.0.1:4242 &
  ferrule up --tcp robot=127.0.0.1:4242 &
  ferrule devices
  ferrule tools robot
  ferrule call robot gpio_write pin=2 value=true`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.SetVersionTemplate("ferrule {{.Version}}\n")
	cmd.Flags().Bool("version", false, "tell the version")
	cmd.SetOut(a.stdout)
	cmd.SetErr(a.stderr)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{plain(err)} })
	cmd.PersistentFlags().StringVar(&a.data, "data", "", "data `DIR` of the gateway that is meant (FERRULE_DATA; the user's own otherwise)")
	cmd.PersistentFlags().BoolVar(&a.json, "json", false, "write JSON, for scripts")
	for _, c := range []*cobra.Command{
		a.upCommand(), a.mcpCommand(), a.devicesCommand(), a.toolsCommand(), a.callCommand(), a.watchCommand(), a.historyCommand(), a.traceCommand(),
		a.adoptCommand(), a.forgetCommand(), a.releaseCommand(), a.auditCommand(),
	} {
		c.PersistentPreRunE = a.hasData
		cmd.AddCommand(c)
	}
	cmd.AddCommand(a.setupCommand(), a.doctorCommand(), a.simCommand(), a.versionCommand(), a.manCommand(), a.askCommand())
	return parent(cmd)
}

// parent makes a command of which only the parts do something.
func parent(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			text += "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return usageError{errors.New(text)}
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// plain tells what is wrong with a flag without the words of Go's libraries.
func plain(err error) error {
	for _, says := range [][2]string{
		{": strconv.ParseBool", "want true or false"}, {": strconv.", "want a number"}, {": time: ", "want a duration such as 30s"},
	} {
		if before, _, ok := strings.Cut(err.Error(), says[0]); ok {
			return fmt.Errorf("%s: %s", before, says[1])
		}
	}
	return err
}

// exactly is cobra.ExactArgs with an error that counts as wrong usage.
func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError{fmt.Errorf("usage: %s", cmd.UseLine())}
		}
		return nil
	}
}

// orNone is exactly(1), or no argument.
func orNone(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return exactly(1)(cmd, args)
}

// dataDir is the data directory, by which a gateway is meant.
func (a *app) dataDir() string { return cmp.Or(a.data, os.Getenv("FERRULE_DATA"), defaultData()) }

// hasData refuses to work where no data directory is meant: one in whatever
// directory this is would be lost.
func (a *app) hasData(*cobra.Command, []string) error {
	if a.dataDir() == "" {
		return usageError{errors.New("there is no home directory to keep data in; --data or FERRULE_DATA names another")}
	}
	return nil
}

// client connects to the gateway that is meant.
func (a *app) client() (*control.Client, error) {
	path, err := control.SocketPath(a.dataDir())
	if err != nil {
		return nil, err
	}
	return control.NewClient(path), nil
}

// callGateway calls one of the gateway's own tools.
func callGateway[Out any](ctx context.Context, a *app, tool string, in any) (out Out, err error) {
	client, err := a.client()
	if err != nil {
		return out, err
	}
	defer client.Close()
	return callOwn[Out](ctx, client, tool, in)
}

// callOwn calls one of the gateway's own tools through a client.
func callOwn[Out any](ctx context.Context, client *control.Client, tool string, in any) (out Out, err error) {
	result, err := callTool(ctx, client, tool, in)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(result.Value, &out)
}

// callTool does so, for one whose result has more than a value.
func callTool(ctx context.Context, client *control.Client, tool string, in any) (*ferrule.Result, error) {
	args, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	return client.Handle(ctx, &ferrule.Call{Principal: me(), Device: ferrule.GatewayID, Tool: tool, Args: args})
}

// me is the person who runs the command.
func me() ferrule.Principal {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return ferrule.Principal{Role: ferrule.Person, Name: name}
}
