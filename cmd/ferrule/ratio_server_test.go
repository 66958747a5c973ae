//go:build bench

package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestRatioServer compares the latency of a device that is an MCP server through the
// gateway to that through a bare proxy made of the SDK. Two hundred calls, reads and
// prompts take turns, with the same GOGC in all processes.
func TestRatioServer(t *testing.T) {
	t.Setenv("GOGC", fmt.Sprint(gateway.SmallHeapGOGC))
	defer debug.SetGCPercent(debug.SetGCPercent(gateway.SmallHeapGOGC))
	for _, mix := range []struct {
		name  string
		args  []string
		limit float64
	}{
		{"tools that look", nil, 1.15},
		{"tools that may change something", []string{"changing"}, 0},
	} {
		parts := galleryProcess(t, mix.args...)
		gateway, bare := upGallery(t, parts), proxyProcess(t, parts)
		for _, mcpVersion := range mcpVersions {
			through, without := make(map[string]*mcp.ClientSession), make(map[string]*mcp.ClientSession)
			for _, part := range []string{"thing", "server"} {
				through[part] = connectAgent(t, mcpVersion, part, &mcp.StreamableClientTransport{Endpoint: gateway + "/mcp/devices/" + part}).ClientSession
				without[part] = connectAgent(t, mcpVersion, part, &mcp.StreamableClientTransport{Endpoint: bare + "/" + part}).ClientSession
			}
			tourBoth(t, through, without) // to warm up
			var gots, bases []time.Duration
			for range rounds {
				got, base := tourBoth(t, through, without)
				gots, bases = append(gots, got), append(bases, base)
			}
			name := fmt.Sprintf("%s, %s: the gateway against a bare proxy", mcpVersion, mix.name)
			if mix.limit > 0 {
				most(t, name, gots, bases, mix.limit)
				continue
			}
			got, base := median(gots), median(bases)
			t.Logf("%s: %v against %v, ratio %.2f, not bounded", name, got, base, float64(got)/float64(base))
		}
	}
}

// tourBoth makes the tour both ways in turn, and returns the medians.
func tourBoth(t *testing.T, through, without map[string]*mcp.ClientSession) (got, base time.Duration) {
	t.Helper()
	var gots, bases []time.Duration
	for i, v := range tour() {
		took := func(sessions map[string]*mcp.ClientSession) time.Duration {
			start := time.Now()
			v.do(t.Context(), sessions[v.part]) // some are errors on purpose
			return time.Since(start)
		}
		if i%2 == 0 {
			gots = append(gots, took(through))
			bases = append(bases, took(without))
		} else {
			bases = append(bases, took(without))
			gots = append(gots, took(through))
		}
	}
	return median(gots), median(bases)
}

// galleryProcess runs a gallery and returns its parts as NAME=URL.
func galleryProcess(t *testing.T, args ...string) (parts []string) {
	t.Helper()
	_, out := startProcess(t, exec.Command("gallery", args...))
	for range 2 {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, strings.TrimSpace(line))
	}
	return parts
}

// proxyProcess runs a bare proxy and returns its address.
func proxyProcess(t *testing.T, parts []string) string {
	t.Helper()
	_, out := startProcess(t, exec.Command("proxy", parts...))
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// upGallery runs `ferrule up` with the parts of a gallery and returns its address when
// they are online.
func upGallery(t *testing.T, parts []string) (address string) {
	t.Helper()
	args := []string{"up", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--config", openFile(t)}
	for _, part := range parts {
		args = append(args, "--http", part)
	}
	cmd := exec.Command("ferrule", args...)
	log, said := io.Pipe()
	cmd.Stderr = said
	startProcess(t, cmd)
	lines := bufio.NewScanner(log)
	for address == "" && lines.Scan() {
		if found := regexp.MustCompile(`(http://[0-9.:]+)/mcp`).FindStringSubmatch(lines.Text()); found != nil {
			address = found[1]
		}
	}
	go io.Copy(io.Discard, log)
	wait.For(t, "the gallery is online", func() bool {
		resp, err := http.Get(address + "/healthz")
		if err != nil {
			return false
		}
		body, _ := wholeBody(resp)
		return strings.Contains(body, `"online":2`)
	})
	return address
}
