package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// unknownName matches the errors of the gateway about a device or a tool that does not
// exist.
var unknownName = regexp.MustCompile(`^(?:there is no device|(\S+) has no tool) ("(?:[^"\\]|\\.)*")$`)

// suggest adds to the error of a command about an unknown device or tool the name that was
// probably meant. A word that is not a device may be a subcommand.
func (a *app) suggest(ctx context.Context, cmd *cobra.Command, err error) error {
	var e *ferrule.Error
	if !errors.As(err, &e) || e.Code != ferrule.NotFound {
		return err
	}
	found := unknownName.FindStringSubmatch(e.Message)
	if found == nil {
		return err
	}
	word, bad := strconv.Unquote(found[2])
	if bad != nil {
		return err
	}
	var names []string
	if device := found[1]; device == "" {
		devices, _ := a.devices(ctx)
		for _, d := range devices {
			names = append(names, d.ID)
		}
		names = append(names, commandNames(cmd)...)
	} else if about, err := a.describe(ctx, device); err == nil {
		for _, t := range about.Tools {
			names = append(names, t.Name)
		}
	}
	e.Message += ferrule.DidYouMean(word, names)
	return err
}

// unknownCommand returns the error for a command that does not exist.
func unknownCommand(cmd *cobra.Command, name string) error {
	return usageError{fmt.Errorf("unknown command %q for %q%s", name, cmd.CommandPath(), ferrule.DidYouMean(name, commandNames(cmd)))}
}

// commandNames returns the names of the subcommands of a command.
func commandNames(cmd *cobra.Command) (names []string) {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// flagName matches the names of flags in their description.
var flagName = regexp.MustCompile(`(?m)^[^-]*(?:-\w, )?--([\w-]+)`)

// flagError returns the error about a flag.
func flagError(cmd *cobra.Command, err error) error {
	if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		var names []string
		for _, found := range flagName.FindAllStringSubmatch(cmd.Flags().FlagUsages(), -1) {
			names = append(names, found[1])
		}
		if near := ferrule.Nearest(name, names); near != "" {
			err = fmt.Errorf("%w; did you mean --%s?", err, near)
		}
	}
	return usageError{withoutJargon(err)}
}
