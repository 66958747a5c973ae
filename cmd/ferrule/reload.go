package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) reloadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Read the configuration, overlays and tokens again",
		Long: `Make the running gateway read its configuration file, overlays and token files again.
Devices stay connected, and no board restarts. The command prints what changed, what
changes only when you restart the gateway, and what overlays make unusable.

If a file has a mistake, nothing changes and the gateway keeps running as before.

The signal SIGHUP does the same; the gateway then logs what changed.`,
		Example: "  ferrule reload",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			done, err := client.Reload(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(done)
			}
			if len(done.Applied)+len(done.Restart) == 0 {
				fmt.Fprintln(a.stdout, "Nothing has changed.")
				a.printList("Read:", done.Read)
			}
			a.printList("Changed:", done.Applied)
			a.printList("Needs a restart:", done.Restart)
			a.printList("Problems:", done.Problems)
			return nil
		},
	}
}

// printList prints lines under a title, if there are any.
func (a *app) printList(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintln(a.stdout, a.style(bold, title))
	for _, line := range lines {
		fmt.Fprintln(a.stdout, "  "+line)
	}
}
