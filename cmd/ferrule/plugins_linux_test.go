package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// lines returns the lines of a file that the plugin wrote.
func lines(t *testing.T, dir, name string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// startPlugin runs a gateway with the plugin weather.
func startPlugin(t *testing.T, change ...func(*config.Config)) (g *testGateway, dir string) {
	t.Helper()
	path, err := exec.LookPath("plugin")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	g = startGateway(t, nil, append(change, func(c *config.Config) {
		c.Plugins = []config.Plugin{{Name: "weather", Exec: []string{path}, Env: map[string]ferrule.Secret{"DIR": ferrule.Secret(dir)}}}
	})...)
	g.online("weather")
	return g, dir
}

// registrations returns what the journal says about registered tools.
func (g *testGateway) registrations() (all []string) {
	g.t.Helper()
	err := journal.Read(g.data, func(e ferrule.Entry) error {
		if e.Phase == ferrule.Registration {
			all = append(all, e.Message)
		}
		return nil
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return all
}

// TestPlugin: a program with tools is a device like any other. It is restarted when it ends,
// no call is made twice, tools that it adds wait for the owner, and nothing of it is left when
// the gateway ends.
func TestPlugin(t *testing.T) {
	t.Setenv("FERRULE_SECRET_OF_GATEWAY", "hunter2")
	g, dir := startPlugin(t)
	agent := dialAgent(t, g, "2025-11-25", "/mcp")
	if told, err := agent.use(t.Context(), "weather__forecast", `{"city":"Oslo"}`); err != nil || !strings.Contains(told.text, "rain in Oslo") {
		t.Errorf("got %+v, %v", told, err)
	}
	if got := strings.Join(lines(t, dir, "environment"), " "); strings.Contains(got, "hunter2") || !strings.Contains(got, "DIR=") {
		t.Errorf("the environment is %s", got)
	}

	told, err := agent.use(t.Context(), "weather__crash", `{}`)
	if err != nil || told.code != ferrule.Unanswered || !told.mayHaveRun {
		t.Errorf("got %+v, %v", told, err)
	}
	told, err = agent.use(t.Context(), "weather__forecast", `{"city":"Rome"}`) // it waits for the next process
	if err != nil || !strings.Contains(told.text, "rain in Rome") {
		t.Errorf("got %+v, %v", told, err)
	}
	calls := lines(t, dir, "calls")
	if n := len(slices.DeleteFunc(slices.Clone(calls), func(name string) bool { return name != "crash" })); n != 1 || len(lines(t, dir, "pids")) != 2 {
		t.Errorf("calls %q, processes %q", calls, lines(t, dir, "pids"))
	}

	if told, err := agent.use(t.Context(), "weather__grow", `{}`); err != nil || told.isError {
		t.Errorf("got %+v, %v", told, err)
	}
	wait.For(t, "a change waits for the owner", func() bool { return g.device("weather").Waiting > 0 })
	if told, err := agent.use(t.Context(), "weather__snow", `{}`); err == nil && !told.isError {
		t.Errorf("got %+v", told)
	}
	for len(agent.tools) > 0 {
		<-agent.tools
	}
	if err := g.accept("weather"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-agent.tools:
	case <-time.After(wait.Ample):
		t.Error("the agent was not told that the list has changed")
	}
	agent.mustUse("weather__snow", `{}`, nil)
	want := []string{"weather: registered 3 tools: crash, forecast, grow", "weather: registered 1 tools: snow"}
	wait.For(t, "both registrations are recorded", func() bool { return slices.Equal(g.registrations(), want) })
	if out := g.outcomes("weather", "crash"); len(out) != 1 || out[0].Code != ferrule.Unanswered {
		t.Errorf("the journal has %+v", out)
	}

	pids := lines(t, dir, "pids")
	g.stop()
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
}

// TestPluginRules: the policy, the stop and scopes hold for a plugin.
func TestPluginRules(t *testing.T) {
	g, dir := startPlugin(t, func(c *config.Config) { c.Policy.Preset = "read-only" })
	if text, err := g.call("weather", "forecast", `{"city":"Oslo"}`, 0); err != nil || !strings.Contains(text, "Oslo") {
		t.Errorf("got %s, %v", text, err)
	}
	if _, err := g.call("weather", "grow", `{}`, 0); ferrule.AsError(err).Code != ferrule.Denied {
		t.Errorf("got %v", err)
	}
	if calls := lines(t, dir, "calls"); !slices.Equal(calls, []string{"forecast"}) {
		t.Errorf("the plugin was called %q", calls)
	}
}

// TestPluginReload: plugins come and go with the configuration, and others stay.
func TestPluginReload(t *testing.T) {
	path, err := exec.LookPath("plugin")
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{"one": t.TempDir(), "two": t.TempDir()}
	settings := func(names ...string) string {
		text := openLoopback + "plugins:\n"
		for _, name := range names {
			text += fmt.Sprintf("  - {name: %s, exec: [%s], env: {DIR: %s}}\n", name, path, dirs[name])
		}
		return text
	}
	r := newReloadable(t, settings("one")).start()
	r.until("one", ferrule.StateOnline)
	r.write("ferrule.yaml", settings("one", "two"))
	if status, out := r.run("reload"); status != 0 || !strings.Contains(out, "plugins: two was added") {
		t.Errorf("got %s", out)
	}
	r.until("two", ferrule.StateOnline)
	r.write("ferrule.yaml", settings("one"))
	if status, out := r.run("reload"); status != 0 || !strings.Contains(out, "plugins: two was removed") {
		t.Errorf("got %s", out)
	}
	r.until("two", ferrule.StateOffline)
	if n := len(lines(t, dirs["one"], "pids")); n != 1 {
		t.Errorf("one was started %d times", n)
	}
	if err := os.Chmod(filepath.Join(r.dir, "ferrule.yaml"), 0o666); err != nil {
		t.Fatal(err)
	}
	if status, out := r.run("reload"); status == 0 || !strings.Contains(out, "everybody can change it") {
		t.Errorf("got %s", out)
	}
}
