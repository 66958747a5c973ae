package main

import (
	"flag"
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

var update = flag.Bool("update", false, "rewrite docs/reference/commands.md")

// TestReference: docs/reference/commands.md says what the commands say of themselves, and
// has the sample of the configuration.
func TestReference(t *testing.T) {
	const file = "../../docs/reference/commands.md"
	var b strings.Builder
	b.WriteString("# Reference\n\n<!-- Made of the commands' own help by `go test ./cmd/ferrule -run TestReference -update`. -->\n")
	a := &app{stdout: io.Discard, stderr: io.Discard}
	describeCommand(&b, a.root())
	fmt.Fprintf(&b, "\n## ferrule.yaml\n\n`ferrule up` reads `ferrule/ferrule.yaml` in the configuration directory, or what `--config` names.\n\n```yaml\n%s```\n", config.Sample)
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
		t.Error("docs/reference/commands.md is not up to date; run this test with -update")
	}
}

// describeCommand writes a command and those below it.
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

// TestDependencies: every library that the module needs has its line in
// docs/explanation/dependencies.md, and no other has.
func TestDependencies(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/explanation/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	var needed, told []string
	for line := range strings.Lines(string(mod)) {
		if m := regexp.MustCompile(`^\s+(\S+) v\S+$`).FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			needed = append(needed, m[1])
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(string(doc), -1) {
		told = append(told, m[1])
	}
	slices.Sort(needed)
	slices.Sort(told)
	if !slices.Equal(needed, told) {
		t.Errorf("go.mod requires directly\n%q\nand docs/explanation/dependencies.md tells of\n%q", needed, told)
	}
}
