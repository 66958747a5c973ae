package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/arguments"
)

// unknownName matches the errors of the gateway about a device or a tool that does not
// exist.
var unknownName = regexp.MustCompile(`^(?:there is no device|(\S+) has no tool) ("(?:[^"\\]|\\.)*")$`)

// suggest adds to the error about an unknown device or tool the name that was probably
// meant.
func (a *app) suggest(ctx context.Context, err error) error {
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
	} else if about, err := a.describe(ctx, device); err == nil {
		for _, t := range about.Tools {
			names = append(names, t.Name)
		}
	}
	e.Message += ferrule.DidYouMean(word, names)
	return err
}

// suggestArguments adds to the error of a call with wrong arguments the names that were
// probably meant.
func suggestArguments(e *ferrule.Error, words []string, t builtin.DescribedTool) {
	if e.Code != ferrule.Invalid {
		return
	}
	declared := arguments.ParseInput(json.RawMessage(t.Input)).Properties
	for _, word := range words {
		name, _, _ := strings.Cut(word, "=")
		name = strings.TrimSuffix(name, ":")
		if _, ok := declared[name]; ok {
			continue
		}
		if near := ferrule.Nearest(name, slices.Sorted(maps.Keys(declared))); near != "" {
			e.Hint = strings.TrimSpace(fmt.Sprintf("Did you mean %s instead of %s? %s", near, name, e.Hint))
		}
	}
}

// unknownCommand returns the error for a command that does not exist.
func unknownCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return usageError{fmt.Errorf("unknown command %q for %q%s", name, cmd.CommandPath(), ferrule.DidYouMean(name, names))}
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
