package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestSecretsStayHidden: a gateway whose servers cannot be reached does not show the
// secrets in their addresses, and neither do the commands that report its state.
func TestSecretsStayHidden(t *testing.T) {
	if testing.Short() {
		t.Skip("this waits until servers cannot be reached")
	}
	const secret = "hunter2hunter2hunter2"
	shared := filepath.Join(t.TempDir(), "cluster.secret")
	if err := os.WriteFile(shared, []byte(secret+secret), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := strings.ReplaceAll(`
auth: {tokens: [{name: claude, token: SECRET-claude}]}
devices: {http: [{url: 'http://127.0.0.1:1/mcp', name: lamp, token: SECRET}]}
endpoints: [{name: home, url: 'ws://me:SECRET@127.0.0.1:1/?token=SECRET'}]
cluster: {mode: join, secret: '`+shared+`', servers: ['nats://me:SECRET@127.0.0.1:1']}
telemetry: {traces: {endpoint: 'http://me:SECRET@127.0.0.1:1'}}
`, "SECRET", secret)
	r := newReloadable(t, settings)
	r.start("--verbose")
	var said []string
	run := func(args ...string) string {
		_, text := r.run(args...)
		said = append(said, text)
		return text
	}
	wait.For(t, "the log has the reasons", func() bool {
		run("call", "lamp", "switch", "on=true") // is traced
		log := r.logged()
		return strings.Contains(log, "endpoint home: not connected") && strings.Contains(log, "cluster: not working") && strings.Contains(log, "traces")
	})
	resp, err := http.Get(strings.TrimSuffix(r.url, "/mcp") + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	health, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	said = append(said, string(health))
	if text := run("doctor"); !strings.Contains(text, "home") {
		t.Errorf("the doctor does not know the endpoint: %s", text)
	}
	run("doctor", "--json")
	run("devices", "--json")
	run("audit", "--json")
	r.write("ferrule.yaml", strings.ReplaceAll(settings, secret, "other"+secret))
	if text := run("reload"); !strings.Contains(text, "  telemetry.traces.endpoint\n") ||
		!strings.Contains(text, "the token of claude was replaced") || !strings.Contains(text, "  endpoints\n") {
		t.Errorf("got %s", text)
	}
	run("reload", "--json")
	r.write("ferrule.yaml", settings+"calls: {dedline: 5s}\n")
	run("reload")
	run("reload", "--json")
	for _, text := range append(said, r.logged()) {
		if strings.Contains(text, secret) {
			t.Errorf("a secret is shown: %s", text)
		}
	}
	// Nor do the files that the gateway writes contain them.
	err = filepath.WalkDir(os.Getenv("FERRULE_DATA"), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), secret) {
			t.Errorf("%s contains a secret", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
