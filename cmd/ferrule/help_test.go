package main

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write generated files instead of comparing them")

// TestHelp compares the help of every command with testdata/help.golden. With -update it
// writes the file, so that a reviewer sees all help texts at once.
func TestHelp(t *testing.T) {
	const golden = "testdata/help.golden"
	var all bytes.Buffer
	root := (&app{stdout: &all, stderr: &all}).root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		all.WriteString("$ " + cmd.CommandPath() + " --help\n")
		cmd.InitDefaultHelpFlag()
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		all.WriteString("\n")
		for _, sub := range cmd.Commands() {
			add(sub)
		}
	}
	add(root)
	if *update {
		if err := os.WriteFile(golden, all.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(all.Bytes(), want) {
		t.Errorf("%s is out of date; run `go test ./cmd/ferrule -run TestHelp -update`", golden)
	}
}
