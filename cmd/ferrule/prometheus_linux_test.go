package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// prometheus is a Prometheus server that scrapes a gateway, with a token.
type prometheus struct {
	t       *testing.T
	address string
}

func startPrometheus(t *testing.T, target, token string) *prometheus {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("this needs Prometheus: ", err)
	}
	dir := t.TempDir()
	file := fmt.Sprintf("global: {scrape_interval: 200ms}\nscrape_configs:\n  - job_name: ferrule\n    static_configs: [{targets: [%q]}]\n    authorization: {credentials: %q}\n", target, token)
	path := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &prometheus{t, freeAddress(t)}
	cmd := exec.Command(program, "--config.file", path, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", p.address, "--log.level", "warn")
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return p
}

// ask returns the values of a query. It is not ok if the query is invalid.
func (p *prometheus) ask(query string) (values []string, ok bool) {
	resp, err := http.Get("http://" + p.address + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return nil, false
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, false
	}
	var answer struct {
		Status string
		Data   struct{ Result []struct{ Value [2]any } }
	}
	if err := json.Unmarshal(data, &answer); err != nil || answer.Status != "success" {
		p.t.Logf("%s: %s", query, data)
		return nil, false
	}
	for _, r := range answer.Data.Result {
		values = append(values, fmt.Sprint(r.Value[1]))
	}
	return values, true
}

// TestPrometheus lets a real Prometheus scrape a gateway and answer every query of the
// dashboard.
func TestPrometheus(t *testing.T) {
	const token = "a-token-of-sixteen"
	g := startGateway(t, map[string]string{"robot": startSim(t, sim.Config{}).Addrs()[0]}, func(c *config.Config) {
		c.Telemetry.Readings = true
		c.Telemetry.Traces.Endpoint = receiver(t).url
	}, needsToken(config.Token{Name: "prometheus", Token: token, Scopes: []string{"metrics"}}))
	g.online("robot")
	if _, err := g.Dock.Label("robot", map[string]string{"room": "kitchen"}, nil); err != nil {
		t.Fatal(err)
	}
	p := startPrometheus(t, g.Addr(), token)
	call := func() bool {
		for _, args := range []string{`{"pin":2,"value":true}`, `{}`} {
			g.call("robot", "gpio_write", args, time.Second)
		}
		values, _ := p.ask(`sum(rate(ferrule_calls_total[10s]))`)
		return len(values) == 1 && values[0] != "0"
	}
	wrong := func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+g.Addr()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer wrong-wrong-wrong-wrong")
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}
	wait.For(t, "calls are counted", call)
	if values, _ := p.ask(`up{job="ferrule"}`); len(values) != 1 || values[0] != "1" {
		t.Errorf("it is up: %v", values)
	}
	values, _ := p.ask(`sum by (outcome) (ferrule_calls_total{role="agent",outcome=~"ok|invalid"}) > 0`)
	if len(values) != 2 {
		t.Errorf("outcomes are %v", values)
	}

	data, err := os.ReadFile("../../packaging/grafana/ferrule.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			query := strings.NewReplacer("$__rate_interval", "10s", "$instance", ".*").Replace(target.Expr)
			wait.For(t, "there is an answer to "+query, func() bool {
				wrong() // one panel shows who was refused
				values, _ := p.ask(query)
				return len(values) > 0
			})
			asked++
		}
	}
	t.Logf("%d questions", asked)
}
