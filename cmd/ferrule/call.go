package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/arguments"
	"github.com/ferrulehq/ferrule/internal/ops/attachment"
	"github.com/ferrulehq/ferrule/internal/ops/calling"
	"github.com/ferrulehq/ferrule/internal/ops/watchtext"
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

On a terminal, you are asked for what is missing: without arguments for each one, else
for those that are required. Enter takes the default or leaves the argument out, and
Ctrl-D calls nothing. A device that its owner allows to ask questions asks you, too: you
then have five minutes, or the --timeout. With --yes you are asked nothing before the call,
and with --json nothing at all.

DEVICE may be a pattern such as 'lamp-*', in quotes. The devices that match and have the
tool are listed, and you confirm once; a tool that only reads needs no confirmation. Each
device has an outcome of its own.

A tool for people only, such as one that restarts the device, asks for confirmation
first; --yes confirms.

The answer is printed as JSON: the value, or else a list of texts, images and so on.
Pictures, sound and other data are written to new files in the current directory, or to
the one that --output names. With --json the answer contains their paths.

The exit code says what happened:

  0  the tool ran, on all devices
  2  wrong command line: the tool did not run
  3  refused by the gateway: the tool did not run
  4  device offline or busy: the tool did not run
  5  refused by the device: the tool did not run
  6  the tool may have run: the device failed or did not answer. With a pattern, it ran
     or may have run on a part of the devices
  7  no gateway is running: the tool did not run
  8  you may not use the gateway: the tool did not run`,
		Example: `  ferrule call robot gpio_write pin=2 value=true
  ferrule call robot beep
  ferrule call doorbell take_photo --output door.jpg
  ferrule call 'lamp-*' set on=false
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
			c := a.newCaller(yes, timeout)
			defer c.Close()
			if calling.IsPattern(args[0]) {
				if output != "" {
					return usageError{errors.New("--output names one file, and a pattern stands for several devices; leave it out")}
				}
				return a.callMany(cmd.Context(), c, args[0], args[1], args[2:])
			}
			tool, values, err := c.prepare(cmd.Context(), args[0], args[1], args[2:])
			if err != nil {
				return err
			}
			result, err := c.call(cmd.Context(), args[0], args[1], values, c.progress)
			var e *ferrule.Error
			if errors.As(err, &e) { // it may also have data
				arguments.Suggest(e, args[2:], json.RawMessage(tool.Input))
				a.save(e.Content, output)
				for i := range e.Content {
					e.Content[i].Data = nil
				}
			}
			if err != nil {
				return err
			}
			if result.Age > 0 {
				c.progress(ferrule.Progress{Message: fmt.Sprintf("cached answer, %v old", result.Age)})
			}
			return a.printResult(result, output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "new `FILE` for a picture, sound or other data in the answer")
	cmd.MarkFlagFilename("output")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "confirm, and ask for no arguments")
	cmd.Flags().Var((*durationFlag)(&timeout), "timeout", "longest `duration` to wait; default the deadline of the tool")
	return cmd
}

// printResult prints an answer, and writes its binary parts to files.
func (a *app) printResult(result *ferrule.Result, output string) error {
	value, files, err := a.resultValue(result, output)
	if err == nil && output != "" && files == 0 {
		fmt.Fprintf(a.stderr, "%s was not written: the answer has no picture, sound or other data.\n", output)
	}
	if err != nil {
		return err
	}
	return a.printJSON(value)
}

// resultValue returns an answer for JSON, and writes its binary parts to files.
func (a *app) resultValue(result *ferrule.Result, output string) (value any, files int, err error) {
	parts, files, err := a.save(result.Content, output)
	switch {
	case err != nil:
		return nil, files, fmt.Errorf("the tool ran, but its answer could not be written to a file: %w", err)
	case len(result.Value) == 0 && result.Content != nil:
		return parts, files, nil
	case a.json && files > 0:
		return map[string]any{"value": result.Value, "content": parts}, files, nil
	}
	return result.Value, files, nil
}

// save writes the binary parts of an answer to files, and says so.
func (a *app) save(content []ferrule.Content, output string) (parts []attachment.Part, files int, err error) {
	parts, err = attachment.Save(content, output, time.Now())
	for _, part := range parts {
		if part.Path != "" {
			files++
			fmt.Fprintf(a.stderr, "Wrote %s (%s, %d bytes).\n", a.style(bold, part.Path), ferrule.OneLine(ferrule.Clean(part.MIME, ferrule.MaxWord), watchtext.MaxShown), part.Bytes)
		}
	}
	return parts, files, err
}

// completeCall completes devices, then their tools, then arguments and their values.
func (a *app) completeCall(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completeDevice(cmd, args, toComplete)
	}
	about, err := a.describe(cmd.Context(), args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var words []string
	if len(args) == 1 {
		for _, t := range about.Tools {
			if t.Quarantine == "" {
				words = append(words, cobra.CompletionWithDesc(t.Name, ferrule.OneLine(t.Text, 60)))
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
	all, open := calling.Complete(about, args[1], args[2:], toComplete)
	for _, c := range all {
		words = append(words, cobra.CompletionWithDesc(c.Word, c.Text))
	}
	if open {
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
