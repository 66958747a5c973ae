package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestREADME runs the first two blocks of commands in the README as they stand,
// but for the addresses, the building and the waiting, and compares what they print with what
// the README shows.
func TestREADME(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(sh|text)\n(.*?)```").FindAllStringSubmatch(string(readme), 4)
	if len(blocks) != 4 {
		t.Fatalf("the README has %d blocks", len(blocks))
	}
	addr, err := freeAddr()
	if err != nil {
		t.Fatal(err)
	}
	run := func(script string) string {
		t.Helper()
		script = strings.ReplaceAll(script, "127.0.0.1:4242", addr)
		script = strings.ReplaceAll(script, "./ferrule ", "ferrule ")
		script = strings.Replace(script, "sleep 1\n", "until ferrule devices | grep online; do sleep 0.1; done >&2\n", 1)
		script = strings.Replace(script, "make build", `trap 'kill $servers' EXIT`, 1)
		script = strings.ReplaceAll(script, "&\n", "& servers=\"$servers $!\"\n")
		cmd := exec.Command("sh")
		cmd.Stdin = strings.NewReader(script)
		cmd.Env = append(os.Environ(), "FERRULE_LISTEN=127.0.0.1:0", "GORACE=atexit_sleep_ms=0")
		out, _ := cmd.Output() // what the gateway logs is not part of it
		return string(out)
	}
	t.Setenv("FERRULE_DATA", filepath.Join(t.TempDir(), "data"))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())

	out := run(blocks[0][2] + "\n{ " + strings.TrimSpace(blocks[2][2]) + "; } 2>&1\n")
	if !strings.Contains(out, blocks[1][2]+blocks[1][2]) {
		t.Errorf("the README shows\n%sand its commands print\n%s", blocks[1][2], out)
	}
	if !strings.Contains(out, blocks[3][2]) {
		t.Errorf("the README shows\n%sand its command prints\n%s", blocks[3][2], out)
	}
}
