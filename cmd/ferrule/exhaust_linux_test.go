package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestExhaustedPort: a program that opens connections and does not use them locks nobody
// out, neither agents nor commands, even if the gateway may open few files.
func TestExhaustedPort(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the gateway as a process")
	}
	few := filepath.Join(t.TempDir(), "few")
	if err := os.WriteFile(few, []byte("#!/bin/sh\nulimit -n 200\nexec ferrule \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := upProcess(t, few, startSim(t, sim.Config{}).Addrs()[0], "")
	at, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	for range 300 {
		conn, err := net.Dial("tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", at.Host) // needs no token, and keeps the connection
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "ferrule", "devices", "--data", p.data).CombinedOutput(); err != nil || !strings.Contains(string(out), "robot") {
		t.Errorf("a command: %v\n%s", err, out)
	}
	for _, mcpVersion := range mcpVersions {
		newRawAgent(t, p.url, mcpVersion, "").result("tools/call", map[string]any{"name": "robot__pulse", "arguments": map[string]any{"token": mcpVersion}})
	}
}
