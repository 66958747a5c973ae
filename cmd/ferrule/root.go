package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/ops/access"
)

// app is the state that commands share.
type app struct {
	data   string // --data
	json   bool
	stdout io.Writer
	stderr io.Writer
}

// run runs one command and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	a := &app{stdout: stdout, stderr: stderr}
	root := a.root()
	root.SetArgs(args)
	if cmd, err := root.ExecuteContextC(ctx); err != nil {
		return a.fail(cmd.CommandPath(), a.suggest(ctx, cmd, err))
	}
	return 0
}

func (a *app) root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ferrule",
		Short: "Connect self-describing devices to AI agents",
		Long: `Ferrule connects devices to AI agents. What a device says it can do becomes tools
that any MCP client can use.

Try it without hardware:

  ferrule sim mcpu --tcp 127.0.0.1:4242 &
  ferrule up --tcp robot=127.0.0.1:4242 &
  sleep 1
  ferrule devices
  ferrule tools robot
  ferrule call robot gpio_write pin=2 value=true

Commands use your own gateway. If it does not run, and you name no data directory, they
use the service of this machine, which members of the group ferrule may use.

The exit codes of all commands:

  0  done
  1  another error
  2  wrong command line or configuration
  3  refused by the gateway: nothing ran
  4  device offline or busy: nothing ran
  5  refused by the device: nothing ran
  6  the action may have run
  7  no gateway is running
  8  you may not use the gateway`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.SetVersionTemplate("ferrule {{.Version}}\n")
	cmd.Flags().Bool("version", false, "print the version")
	cmd.SetOut(a.stdout)
	cmd.SetErr(a.stderr)
	cmd.SetFlagErrorFunc(flagError)
	cmd.PersistentFlags().StringVar(&a.data, "data", "", "data `DIR` of the gateway (FERRULE_DATA; default the user's own)")
	cmd.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON, for scripts")
	for _, c := range []*cobra.Command{
		a.upCommand(), a.mcpCommand(), a.devicesCommand(), a.describeCommand(), a.toolsCommand(), a.callCommand(), a.watchCommand(), a.historyCommand(), a.traceCommand(),
		a.adoptCommand(), a.diffCommand(), a.acceptCommand(), a.forgetCommand(), a.renameCommand(), a.labelCommand(), a.releaseCommand(), a.retryCommand(),
		a.approvalsCommand(), a.approveCommand(), a.denyCommand(), a.stopCommand(), a.resumeCommand(), a.reloadCommand(), a.auditCommand(), a.policyCommand(),
		a.accessCommand(access.Login), a.openCommand(), a.peopleCommand(), a.tokenCommand(), a.tlsCommand(),
	} {
		c.PersistentPreRunE = a.needData
		cmd.AddCommand(c)
	}
	cmd.AddCommand(a.setupCommand(), a.doctorCommand(), a.checkCommand(), a.simCommand(), a.boardCommand(), a.versionCommand(), a.manCommand(), a.sqlCommand())
	return parent(cmd)
}

// parent makes a command that only groups other commands.
func parent(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknownCommand(cmd, args[0])
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// withoutJargon replaces the words of Go's libraries in the error of a flag.
func withoutJargon(err error) error {
	for _, r := range [][2]string{
		{": strconv.ParseBool", "must be true or false"}, {": strconv.", "must be a number"}, {": time: ", "must be a duration such as 30s"},
	} {
		if before, _, ok := strings.Cut(err.Error(), r[0]); ok {
			return fmt.Errorf("%s: %s", before, r[1])
		}
	}
	return err
}

// exactly is cobra.ExactArgs with a usageError.
func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n && (n >= 0 || len(args) < -n) {
			return usageError{fmt.Errorf("usage: %s", cmd.UseLine())}
		}
		return nil
	}
}

// atLeastOne is cobra.MinimumNArgs(1) with a usageError.
func atLeastOne(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return exactly(1)(cmd, args)
	}
	return nil
}

// atMostOne accepts one argument or none.
func atMostOne(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return exactly(1)(cmd, args)
}

// dataDir returns the data directory. It identifies the gateway.
func (a *app) dataDir() string {
	return cmp.Or(a.data, os.Getenv("FERRULE_DATA"), datadir.Default())
}

// needData fails if there is no data directory. The current directory would be a bad
// substitute, because nobody would find the data again.
func (a *app) needData(*cobra.Command, []string) error {
	if a.dataDir() == "" {
		return usageError{errors.New("there is no home directory for data; name a directory with --data or FERRULE_DATA")}
	}
	return nil
}

// client returns a client of the gateway. It must be closed.
func (a *app) client() (*control.Client, error) {
	path, err := control.SocketPath(a.dataDir())
	if err != nil {
		return nil, err
	}
	return control.NewClient(path, a.service()...), nil
}

// service returns the socket of the packaged service, for commands whose user has no
// gateway running. A named data directory names another gateway. Only Linux has packages.
func (a *app) service() []string {
	if runtime.GOOS != "linux" || a.data != "" || os.Getenv("FERRULE_DATA") != "" {
		return nil
	}
	return []string{control.ServiceSocket}
}

// useService reports whether the packaged service is the gateway to use: it runs, and no
// gateway of the user's own does. The error is why a service that runs cannot be used.
func (a *app) useService(ctx context.Context) (bool, error) {
	own, err := control.FindSocket(a.dataDir())
	if err != nil || len(a.service()) == 0 {
		return false, nil
	}
	return control.PreferService(ctx, own)
}

// callGateway calls one of the gateway's own tools.
func callGateway[Out any](ctx context.Context, a *app, tool string, in any) (out Out, err error) {
	client, err := a.client()
	if err != nil {
		return out, err
	}
	defer client.Close()
	return control.CallBuiltin[Out](ctx, client, tool, in)
}

// show calls a tool of the gateway and prints its result, as JSON or as text.
func show[Out any](ctx context.Context, a *app, tool string, in any, text func(Out) string) error {
	out, err := callGateway[Out](ctx, a, tool, in)
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(out)
	}
	fmt.Fprint(a.stdout, text(out))
	return nil
}
