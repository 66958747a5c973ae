package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func (a *app) adoptCommand() *cobra.Command {
	return a.trustCommand("adopt", "adopt_device", "is adopted", "Trust a device that was found",
		`Trust a device that was found rather than named: until then people see it, and
nobody can use it. The device is remembered as trusted.

A voice toy that shows a code is adopted by that: it comes in within a few seconds.`)
}

func (a *app) forgetCommand() *cobra.Command {
	return a.trustCommand("forget", "forget_device", "is forgotten", "Forget a device",
		`Forget a device: its name, its trust, what it was. If it is in sight, it is met
anew, as if it were seen for the first time. The credential of a device that dials
in is void from then on; it gets another when it starts, and waits to be adopted. Such
a device can be called by its address, too, also if it was never seen online.`)
}

func (a *app) trustCommand(name, tool, done, short, long string) *cobra.Command {
	return &cobra.Command{
		Use:               name + " DEVICE",
		Short:             short,
		Long:              long,
		Example:           fmt.Sprintf("  ferrule %s robot", name),
		Args:              exactly(1),
		ValidArgsFunction: a.completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := callGateway[builtin.TrustOutput](cmd.Context(), a, tool, builtin.TrustInput{Device: args[0]})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(out)
			}
			fmt.Fprintf(a.stdout, "%s %s.\n", out.Device, done)
			return nil
		},
	}
}

// trust decides about devices, those that dial in among them.
type trust struct{ *gateway }

// Adopt implements toolbox.Trust. A device that is not let in yet is called by the
// code that it shows.
func (t trust) Adopt(id string) error {
	err := t.dock.Adopt(id)
	if t.door == nil || err == nil || ferrule.AsError(err).Code != ferrule.NotFound {
		return err
	}
	if ok, refused := t.door.letIn(id); ok {
		return refused
	}
	return err
}

// Forget implements toolbox.Trust. A device that dials in can be called by its address,
// which is all that is known of one that was never greeted. Its credential goes first,
// so that it does not come back by that while it is being forgotten.
func (t trust) Forget(id string) error {
	if t.door == nil {
		return t.dock.Forget(id)
	}
	address := id
	if dev, _, known := t.fleet.Lookup(id); known {
		address = dev.Address
	}
	dev, greeted := t.memory.At(address)
	if greeted {
		id = dev.ID
	}
	void, err := t.door.forget(address)
	if err != nil {
		return err
	}
	if err = t.dock.Forget(id); void && !greeted {
		return nil // there was nothing else to forget
	}
	return err
}
