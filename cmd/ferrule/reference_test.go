package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// TestReference checks that docs/reference/commands.md has the help of every command and the sample
// configuration. With -update it writes the file.
func TestReference(t *testing.T) {
	const file = "../../docs/reference/commands.md"
	var b strings.Builder
	b.WriteString("# Reference\n\n<!-- Generated from the help of the commands: `go test ./cmd/ferrule -run TestReference -update`. -->\n")
	a := &app{stdout: io.Discard, stderr: io.Discard}
	describeCommand(&b, a.root())
	fmt.Fprintf(&b, "\n## ferrule.yaml\n\n`ferrule up` reads `ferrule/ferrule.yaml` in the configuration directory, or the file that `--config` names.\n\n```yaml\n%s```\n", config.Sample)
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Error("docs/reference/commands.md is out of date; run `go test ./cmd/ferrule -run TestReference -update`")
	}
}

// describeCommand writes a command and its subcommands.
func describeCommand(b *strings.Builder, cmd *cobra.Command) {
	if cmd.Runnable() || cmd.HasSubCommands() {
		fmt.Fprintf(b, "\n## %s\n\n", cmd.CommandPath())
		text := cmd.Long
		if text == "" {
			text = cmd.Short + "."
		}
		fmt.Fprintf(b, "```text\n%s\n```\n", text)
		if cmd.Runnable() {
			fmt.Fprintf(b, "\nUsage: `%s`\n", cmd.UseLine())
		}
		if cmd.Example != "" {
			fmt.Fprintf(b, "\n```sh\n%s\n```\n", regexp.MustCompile(`(?m)^  `).ReplaceAllString(cmd.Example, ""))
		}
		if flags := cmd.LocalFlags().FlagUsages(); flags != "" {
			fmt.Fprintf(b, "\n```text\n%s```\n", flags)
		}
	}
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			describeCommand(b, sub)
		}
	}
}

// TestDependencies checks that docs/explanation/dependencies.md lists exactly the direct dependencies.
func TestDependencies(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/explanation/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	var required, listed []string
	for line := range strings.Lines(string(mod)) {
		if m := regexp.MustCompile(`^\s+(\S+) v\S+$`).FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			required = append(required, m[1])
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(string(doc), -1) {
		listed = append(listed, m[1])
	}
	slices.Sort(required)
	slices.Sort(listed)
	if !slices.Equal(required, listed) {
		t.Errorf("go.mod requires\n%q\nbut docs/explanation/dependencies.md lists\n%q", required, listed)
	}
}
