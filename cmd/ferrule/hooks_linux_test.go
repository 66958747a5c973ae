package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestHooks: a program refuses what the policy permits, and a web service is told how calls
// ended. When the program fails, calls are refused, and everything can still be stopped.
func TestHooks(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "guard")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(script, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// It refuses to greet Mallory.
	write(`case "$(cat)" in *Mallory*) echo '{"allow":false,"reason":"not her"}';; *) echo '{"allow":true}';; esac`)
	var mu sync.Mutex
	var told []string
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m struct {
			Call, Tool, Effect string
			Principal          ferrule.Principal
			Outcome            struct{ Code string }
		}
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil || m.Call == "" || r.Header.Get("Authorization") != "Bearer 0123456789abcdef" {
			t.Errorf("got %+v, %v", m, err)
		}
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprintf("%s %s %s %s", m.Principal.Name, m.Tool, m.Effect, m.Outcome.Code))
	}))
	defer service.Close()
	g := startGateway(t, nil, func(c *config.Config) {
		c.Hooks = []config.Hook{
			{Name: "guard", Exec: []string{script}, Effects: []string{"changes", "endangers"}, Timeout: config.Interval(30 * time.Second)},
			{Name: "audit", URL: service.URL, Token: "0123456789abcdef", When: []string{"after"}},
		}
	})
	var called []string
	for _, tool := range []builtin.Tool{greeter("greet", ferrule.Reads, &called), greeter("shout", ferrule.Changes, &called)} {
		if _, err := g.Register("greeter", tool); err != nil {
			t.Fatal(err)
		}
	}
	agent := dialAgent(t, g, "2025-11-25", "/mcp")
	agent.mustUse("greeter__shout", `{"name":"Anna"}`, nil)
	refused, err := agent.use(t.Context(), "greeter__shout", `{"name":"Mallory"}`)
	if err != nil || refused.code != ferrule.Denied || refused.mayHaveRun || !strings.Contains(refused.text, "refused by the hook guard: not her") {
		t.Errorf("got %+v, %v", refused, err)
	}
	agent.mustUse("greeter__greet", `{"name":"Mallory"}`, nil) // it only reads

	write("exit 1")
	failed, err := agent.use(t.Context(), "greeter__shout", `{"name":"Anna"}`)
	if err != nil || failed.code != ferrule.Denied || !strings.Contains(failed.text, "the hook guard failed") {
		t.Errorf("got %+v, %v", failed, err)
	}
	if all := g.Status().Hooks; len(all) != 1 || !strings.Contains(all[0], "hook guard fails since") {
		t.Errorf("the status has %q", all)
	}
	if _, err := g.call(ferrule.GatewayID, ferrule.StopTool, `{"reason":"a test"}`, 0); err != nil {
		t.Errorf("a failing hook kept a stop: %v", err)
	}
	if got := strings.Join(called, " "); got != "shout greet" {
		t.Errorf("called %s", got)
	}
	const name = "local/test"
	want := []string{name + " shout changes ", name + " shout changes denied", name + " greet reads ", name + " shout changes denied"}
	wait.For(t, "the service was told all outcomes", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(told) == len(want)
	})
	mu.Lock()
	defer mu.Unlock()
	for _, line := range want {
		if !strings.Contains(strings.Join(told, "\n"), line) {
			t.Errorf("told %q, want %q", told, line)
		}
	}
}
