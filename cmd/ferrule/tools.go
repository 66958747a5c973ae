package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func (a *app) toolsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "tools [DEVICE]",
		Short: "Show the tools of a device",
		Long: `Show the tools of a device, or of all devices: their arguments, their effect (reads,
changes or endangers), and why a tool cannot be used. Resources and prompts are listed
by name.`,
		Example:           "  ferrule tools robot\n  ferrule tools robot --json",
		Args:              atMostOne,
		ValidArgsFunction: a.completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				about, err := a.describe(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(about)
				}
				a.printTools(about)
				return nil
			}
			devices, err := a.devices(cmd.Context())
			if err != nil {
				return err
			}
			all := []builtin.DescribeDeviceOutput{}
			for _, d := range devices {
				about, err := a.describe(cmd.Context(), d.ID)
				if err != nil {
					return err
				}
				all = append(all, about)
			}
			if a.json {
				return a.printJSON(all)
			}
			if len(all) == 0 {
				fmt.Fprintln(a.stdout, noDevices)
			}
			for _, about := range all {
				a.printTools(about)
			}
			return nil
		},
	}
}

func (a *app) describe(ctx context.Context, device string) (builtin.DescribeDeviceOutput, error) {
	return callGateway[builtin.DescribeDeviceOutput](ctx, a, "describe_device", builtin.DescribeDeviceInput{Device: device})
}

func (a *app) printTools(about builtin.DescribeDeviceOutput) {
	d := about.Device
	fmt.Fprintf(a.stdout, "%s  ", a.style(bold, d.ID))
	if d.Model != "" {
		fmt.Fprintf(a.stdout, "%s %s  ", d.Model, d.Version)
	}
	fmt.Fprintln(a.stdout, a.state(d.State))
	if text := d.LabelText(); text != "" {
		fmt.Fprintf(a.stdout, "  labels: %s\n", text)
	}
	if text := d.Remark(); text != "" && d.State != string(ferrule.StateOnline) {
		fmt.Fprintf(a.stdout, "  %s\n", text)
	}
	for _, note := range d.Notes {
		fmt.Fprintf(a.stdout, "  note: %s\n", note)
	}
	if len(about.Tools) == 0 {
		fmt.Fprintln(a.stdout, "  no tools")
	}
	for _, t := range about.Tools {
		fmt.Fprintf(a.stdout, "\n  %s  %s\n", a.style(bold, t.Name), a.style(faint, traits(t)))
		if t.Text != "" {
			fmt.Fprintf(a.stdout, "    %s\n", ferrule.OneLine(t.Text, 200))
		}
		if t.Quarantine != "" {
			fmt.Fprintf(a.stdout, "    %s %s\n", a.style(red, "cannot be used:"), t.Quarantine)
			continue
		}
		for _, line := range arguments(json.RawMessage(t.Input)) {
			fmt.Fprintf(a.stdout, "    %s\n", line)
		}
	}
	a.printNames("resources", about.Resources, about.MoreResources)
	a.printNames("prompts", about.Prompts, about.MorePrompts)
	fmt.Fprintln(a.stdout)
}

// printNames lists resources or prompts.
func (a *app) printNames(what string, names []string, more int) {
	if len(names)+more == 0 {
		return
	}
	fmt.Fprintf(a.stdout, "\n  %s\n", a.style(bold, what))
	for _, name := range names {
		fmt.Fprintf(a.stdout, "    %s\n", ferrule.OneLine(name, 200))
	}
	if more > 0 {
		fmt.Fprintf(a.stdout, "    and %d more\n", more)
	}
}

// traits describes the effect of a tool in a few words.
func traits(t builtin.DescribedTool) string {
	words := []string{t.Effect}
	if t.Idempotent {
		words = append(words, "idempotent")
	}
	if t.UserOnly {
		words = append(words, "people only")
	}
	if t.Poll != "" {
		words = append(words, "polled every "+t.Poll)
	}
	if t.Deadline != "" {
		words = append(words, "deadline "+t.Deadline)
	}
	switch t.Cache {
	case "":
	case "0s":
		words = append(words, "never cached")
	default:
		words = append(words, "cached for "+t.Cache)
	}
	return strings.Join(words, ", ")
}

// property is the schema of an argument.
type property struct {
	Type        typeNames         `json:"type"`
	AnyOf       []property        `json:"anyOf"`
	OneOf       []property        `json:"oneOf"`
	Description string            `json:"description"`
	Minimum     *json.Number      `json:"minimum"`
	Maximum     *json.Number      `json:"maximum"`
	Enum        []json.RawMessage `json:"enum"`
	Default     json.RawMessage   `json:"default"`
}

// typeNames are the types of a value: a schema has one name or a list.
type typeNames []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *typeNames) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = typeNames{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// types returns the types that a property declares itself or as alternatives.
func (p property) types() (all []string) {
	all = append(all, p.Type...)
	for _, other := range slices.Concat(p.AnyOf, p.OneOf) {
		all = append(all, other.Type...)
	}
	return all
}

// allows reports whether a text is one of the values that a property lists.
func (p property) allows(text string) bool {
	return slices.ContainsFunc(p.Enum, func(raw json.RawMessage) bool {
		var value string
		return json.Unmarshal(raw, &value) == nil && value == text
	})
}

// bounds describes the values of an argument in a few words.
func (p property) bounds() string {
	var words string
	if len(p.Enum) > 0 {
		var each []string
		for _, v := range p.Enum {
			each = append(each, string(v))
		}
		words += " " + strings.Join(each, " or ")
	}
	switch {
	case p.Minimum != nil && p.Maximum != nil:
		words += fmt.Sprintf(" from %s to %s", p.Minimum, p.Maximum)
	case p.Minimum != nil:
		words += fmt.Sprintf(" from %s", p.Minimum)
	case p.Maximum != nil:
		words += fmt.Sprintf(" up to %s", p.Maximum)
	}
	if p.Default != nil {
		words += " (default " + string(p.Default) + ")"
	}
	return words
}

// input is the schema of a tool's arguments.
type input struct {
	Properties map[string]property `json:"properties"`
	Required   []string            `json:"required"`
	More       any                 `json:"additionalProperties"` // false if no others are allowed
}

func parseInput(schema json.RawMessage) (in input) {
	json.Unmarshal(schema, &in) // without a schema, in stays empty
	return in
}

// arguments describes the arguments of a tool, one per line.
func arguments(schema json.RawMessage) []string {
	in := parseInput(schema)
	if len(in.Properties) == 0 && in.More != false {
		return []string{"declares no arguments; see the description"}
	}
	var lines []string
	for name, p := range in.Properties {
		line := name
		if types := p.types(); len(types) > 0 {
			line += ": " + strings.Join(types, " or ")
		}
		if bounds := ferrule.OneLine(p.bounds(), 120); bounds != "" {
			line += " " + bounds
		}
		if !slices.Contains(in.Required, name) {
			line += ", optional"
		}
		if p.Description != "" {
			line += ", " + ferrule.OneLine(p.Description, 120)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}
