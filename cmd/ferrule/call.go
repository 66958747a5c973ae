package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/terminal"
	"github.com/ferrulehq/ferrule/internal/ops/arguments"
	"github.com/ferrulehq/ferrule/internal/ops/attachment"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

func (a *app) callCommand() *cobra.Command {
	var timeout time.Duration
	var yes bool
	var output string
	cmd := &cobra.Command{
		Use:   "call DEVICE TOOL [key=value | key:=json]...",
		Short: "Call a tool of a device",
		Long: `Call a tool of a device. The call passes the same checks as one by an agent.

  key=value   the value is converted to the type that the tool declares. If it declares
              none, 440 is a number, true and false are booleans, and the rest is text
  key:=json   the value is JSON: key:='"440"' is always text

A tool for people only, such as one that restarts the device, asks for confirmation
first; --yes confirms.

The answer is printed as JSON: the value, or else a list of texts, images and so on.
Pictures, sound and other data are written to new files in the current directory, or to
the one that --output names. With --json the answer contains their paths.

The exit code says what happened:

  0  the tool ran
  2  wrong command line: the tool did not run
  3  refused by the gateway: the tool did not run
  4  device offline or busy: the tool did not run
  5  refused by the device: the tool did not run
  6  the tool may have run: the device failed or did not answer
  7  no gateway is running: the tool did not run
  8  you may not use the gateway: the tool did not run`,
		Example: `  ferrule call robot gpio_write pin=2 value=true
  ferrule call robot beep frequency=440
  ferrule call doorbell take_photo --output door.jpg
  ferrule call gateway list_devices`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return exactly(2)(cmd, args)
			}
			return nil
		},
		ValidArgsFunction: a.completeCall,
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout < 0 || timeout > pipeline.MaxDeadline {
				return usageError{fmt.Errorf("--timeout must be from 0s to %v, got %v", pipeline.MaxDeadline, timeout)}
			}
			if err := attachment.Check(output); err != nil {
				return usageError{fmt.Errorf("--output: %w", err)}
			}
			tool, err := a.toolFor(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			values, err := arguments.Parse(args[2:], json.RawMessage(tool.Input))
			if err != nil {
				return usageError{err}
			}
			if tool.UserOnly && args[0] != ferrule.GatewayID && !yes {
				if err := a.confirm(cmd.Context(), args[0], tool, values); err != nil {
					return err
				}
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			result, err := client.Handle(cmd.Context(), &ferrule.Call{
				Principal: control.User(), Device: args[0], Tool: args[1], Args: values,
				Timeout: ferrule.Duration(timeout), Progress: a.progress,
			})
			var e *ferrule.Error
			if errors.As(err, &e) { // it may also have data
				suggestArguments(e, args[2:], tool)
				a.save(e.Content, output)
				for i := range e.Content {
					e.Content[i].Data = nil
				}
			}
			if err != nil {
				return err
			}
			if result.Age > 0 {
				a.progress(ferrule.Progress{Message: fmt.Sprintf("cached answer, %v old", result.Age)})
			}
			return a.printResult(result, output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "new `FILE` for a picture, sound or other data in the answer")
	cmd.MarkFlagFilename("output")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "confirm a call of a tool for people only")
	cmd.Flags().Var((*durationFlag)(&timeout), "timeout", "longest `duration` to wait; default the deadline of the tool")
	return cmd
}

// printResult prints an answer, and writes its binary parts to files.
func (a *app) printResult(result *ferrule.Result, output string) error {
	parts, files, err := a.save(result.Content, output)
	switch {
	case err != nil:
		return fmt.Errorf("the tool ran, but its answer could not be written to a file: %w", err)
	case output != "" && files == 0:
		fmt.Fprintf(a.stderr, "%s was not written: the answer has no picture, sound or other data.\n", output)
	}
	switch {
	case len(result.Value) == 0 && result.Content != nil:
		return a.printJSON(parts)
	case a.json && files > 0:
		return a.printJSON(map[string]any{"value": result.Value, "content": parts})
	}
	return a.printJSON(result.Value)
}

// save writes the binary parts of an answer to files, and says so.
func (a *app) save(content []ferrule.Content, output string) (parts []attachment.Part, files int, err error) {
	parts, err = attachment.Save(content, output, time.Now())
	for _, part := range parts {
		if part.Path != "" {
			files++
			fmt.Fprintf(a.stderr, "Wrote %s (%s, %d bytes).\n", a.style(bold, part.Path), ferrule.OneLine(ferrule.Clean(part.MIME, ferrule.MaxWord), maxShown), part.Bytes)
		}
	}
	return parts, files, err
}

// toolFor returns the description of a tool. It is empty if there is none; then the call
// itself fails with a better message.
func (a *app) toolFor(ctx context.Context, device, name string) (builtin.DescribedTool, error) {
	about, err := a.describe(ctx, device)
	var e *ferrule.Error
	if err != nil && !(errors.As(err, &e) && e.Code == ferrule.NotFound) {
		return builtin.DescribedTool{}, err
	}
	for _, t := range about.Tools {
		if t.Name == name {
			return t, nil
		}
	}
	return builtin.DescribedTool{}, nil
}

// confirm asks for confirmation of a call of a tool for people only.
func (a *app) confirm(ctx context.Context, device string, t builtin.DescribedTool, args json.RawMessage) error {
	if !isTerminal(os.Stdin) {
		return usageError{fmt.Errorf("%s of %s needs confirmation: add --yes", t.Name, device)}
	}
	fmt.Fprintf(a.stderr, "%s of %s needs confirmation: %s\nCall it with %s? [y/N] ", a.style(bold, t.Name), device, ferrule.OneLine(t.Text, 200), args)
	switch strings.ToLower(strings.TrimSpace(terminal.ReadLine(ctx, os.Stdin))) {
	case "y", "yes":
		return nil
	}
	return ferrule.Errorf(ferrule.Cancelled, "%s was not called: not confirmed", t.Name)
}

// progress shows the progress of a call on a terminal.
func (a *app) progress(p ferrule.Progress) {
	if !a.json && isTerminal(os.Stderr) {
		fmt.Fprintf(a.stderr, "%s\n", a.style(faint, p.Message))
	}
}

// completeCall completes devices, then their tools, then the arguments of the tool.
func (a *app) completeCall(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completeDevice(cmd, args, toComplete)
	}
	about, err := a.describe(cmd.Context(), args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var words []string
	for _, t := range about.Tools {
		switch {
		case len(args) == 1 && t.Quarantine == "":
			words = append(words, cobra.CompletionWithDesc(t.Name, ferrule.OneLine(t.Text, 60)))
		case len(args) > 1 && t.Name == args[1]:
			for name, p := range arguments.ParseInput(json.RawMessage(t.Input)).Properties {
				words = append(words, cobra.CompletionWithDesc(name+"=", ferrule.OneLine(p.Description, 60)))
			}
			return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
