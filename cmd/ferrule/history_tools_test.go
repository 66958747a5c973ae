package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// measuredGateway runs a gateway with recorded measurements of a board.
func measuredGateway(t *testing.T) *testGateway {
	t.Helper()
	overlays := t.TempDir()
	// By default the buffer of light is read every half a minute.
	overlay := "match: {device: robot}\npolls:\n  light: {every: 1s}\n"
	if err := os.WriteFile(filepath.Join(overlays, "robot.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, map[string]string{"robot": startSim(t, sim.Config{}).Addrs()[0]}, func(c *config.Config) { c.Overlays = overlays })
	g.online("robot")
	wait.For(t, "measurements are recorded", func() bool {
		answer, err := g.call(ferrule.GatewayID, "history", `{"device":"robot","signals":["light"],"resolution":"raw"}`, ample)
		var out builtin.HistoryOutput
		return err == nil && json.Unmarshal([]byte(answer), &out) == nil && len(out.Signals[0].Points) > 0
	})
	return g
}

// TestHistoryTools checks that agents get measurements as numbers, as a chart and
// through SQL, in both versions of MCP.
func TestHistoryTools(t *testing.T) {
	g := measuredGateway(t)
	if _, err := g.call("robot", "gpio_write", `{"pin":2,"value":true}`, ample); err != nil {
		t.Fatal(err)
	}
	for _, mcpVersion := range mcpVersions {
		a := dialAgent(t, g, mcpVersion, "/mcp")
		for _, name := range []string{"gateway__latest", "gateway__history", "gateway__plot", "gateway__sql", "gateway__wait_for"} {
			if !slices.Contains(a.list(), name) {
				t.Errorf("%s: %s is not in %q", mcpVersion, name, a.list())
			}
		}
		var latest builtin.LatestOutput
		a.mustUse("gateway__latest", `{"device":"robot"}`, &latest)
		if at := slices.IndexFunc(latest.Signals, func(s builtin.LatestSignal) bool { return s.Name == "light" }); at < 0 || time.Duration(latest.Signals[at].Age) > time.Minute || latest.Signals[at].Within == 0 {
			t.Errorf("%s: the last is %+v", mcpVersion, latest)
		}
		var past builtin.HistoryOutput
		a.mustUse("gateway__history", `{"device":"robot","signals":["light"],"since":"5m"}`, &past)
		if len(past.Signals) != 1 || past.Signals[0].Resolution != "raw" || len(past.Signals[0].Points) == 0 {
			t.Errorf("%s: the past is %+v", mcpVersion, past)
		}
		told, err := a.use(t.Context(), "gateway__plot", `{"device":"robot","since":"2m"}`)
		if err != nil || told.isError || len(told.result.Content) != 2 || !strings.Contains(told.text, "light: min ") {
			t.Fatalf("%s: %+v, %v", mcpVersion, told, err)
		}
		image, ok := told.result.Content[0].(*mcp.ImageContent)
		if !ok || image.MIMEType != "image/png" {
			t.Fatalf("%s: %+v", mcpVersion, told.result.Content[0])
		}
		if picture, err := png.Decode(bytes.NewReader(image.Data)); err != nil || picture.Bounds().Dx() != 1000 {
			t.Errorf("%s: %v", mcpVersion, err)
		}
		var answer builtin.SQLOutput
		const query = `{"query":"SELECT signal, count(*) > 0 FROM samples WHERE device='robot' AND signal='light' GROUP BY 1"}`
		// A query may take two seconds, and starting its process can take as long on a
		// machine that is busy with other tests.
		wait.For(t, "a query has an answer in time", func() bool {
			told, err := a.use(t.Context(), "gateway__sql", query)
			return err == nil && !told.isError && json.Unmarshal([]byte(told.text), &answer) == nil
		})
		if fmt.Sprint(answer.Columns, answer.Rows) != "[signal count(*) > 0] [[light 1]]" {
			t.Errorf("%s: %+v", mcpVersion, answer)
		}
		wait.For(t, "a wrong query has an answer in time", func() bool {
			told, err = a.use(t.Context(), "gateway__sql", `{"query":"DROP TABLE raw"}`)
			return err != nil || told.code != ferrule.Limited
		})
		if err != nil || told.code != ferrule.Invalid || !strings.Contains(told.text, "samples(device, signal, time, value, within)") {
			t.Errorf("%s: %+v, %v", mcpVersion, told, err)
		}
	}
	wait.For(t, "the call is marked", func() bool { // the record is written within a second
		result, err := g.Pipeline.Handle(t.Context(), &ferrule.Call{
			Principal: ferrule.Principal{Role: ferrule.Agent, Name: "test"}, Device: ferrule.GatewayID, Tool: "plot", Args: json.RawMessage(`{"device":"robot","signals":["light"]}`),
		})
		return err == nil && strings.Contains(result.Content[1].Text, "Marked calls: 1.")
	})
}

// TestHostileSQL checks that expensive queries are ended, with the process that they run
// in, while the gateway goes on serving.
func TestHostileSQL(t *testing.T) {
	g := measuredGateway(t)
	stop := make(chan struct{})
	peak := make(chan int, 1)
	go func() { peak <- watchChildren(stop) }()
	var wg sync.WaitGroup
	var took [2]time.Duration
	for i, query := range [len(took)]string{
		"WITH RECURSIVE n(i) AS (VALUES(0) UNION SELECT i+1 FROM n) SELECT count(*) FROM n",
		"WITH RECURSIVE n(i, s) AS (VALUES(0, hex(zeroblob(1000))) UNION ALL SELECT i+1, s||i FROM n UNION ALL SELECT i+2, s||i FROM n) SELECT count(*) FROM n",
	} {
		wg.Go(func() {
			args, err := json.Marshal(map[string]string{"query": query})
			if err != nil {
				t.Error(err)
			}
			start := time.Now()
			_, err = g.call(ferrule.GatewayID, "sql", string(args), ample)
			if took[i] = time.Since(start); err == nil || ferrule.AsError(err).Code != ferrule.Limited {
				t.Errorf("%s: after %v: %v", query, took[i], err)
			}
		})
	}
	slowest := time.Duration(0)
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		start := time.Now()
		if _, err := g.call("robot", "gpio_read", `{"pin":2}`, ample); err != nil {
			t.Error(err)
		}
		slowest = max(slowest, time.Since(start))
	}
	wg.Wait()
	wait.For(t, "the processes of the queries have ended", func() bool { n, _ := queryProcesses(); return n == 0 })
	close(stop)
	t.Logf("a call meanwhile took %v at most", slowest.Round(time.Millisecond))
	figure.AtMost(t, "an expensive query", max(took[0], took[1]), 2500*time.Millisecond)
	figure.AtMost(t, "bytes of memory of an expensive query", <-peak, 64<<20)
	wait.For(t, "a harmless query is answered", func() bool { // a busy machine may need more than the time of a query
		answer, err := g.call(ferrule.GatewayID, "sql", `{"query":"SELECT 1+1 AS n"}`, ample)
		return err == nil && answer == `{"columns":["n"],"rows":[[2]]}`
	})
}

// queryProcesses returns the number of query processes and the memory of the largest, or
// 0 if the system does not show them.
func queryProcesses() (n, most int) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if line, err := os.ReadFile(path); err != nil || string(line) != "ferrule\x00"+gateway.SQLCommand+"\x00" {
			continue
		}
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		var kb, parent int
		for line := range strings.Lines(string(status)) {
			fmt.Sscanf(line, "VmHWM: %d kB", &kb)
			fmt.Sscanf(line, "PPid: %d", &parent)
		}
		if parent == os.Getpid() {
			n, most = n+1, max(most, kb<<10)
		}
	}
	return n, most
}

// watchChildren returns the largest memory of a query process.
func watchChildren(stop <-chan struct{}) (most int) {
	for {
		_, size := queryProcesses()
		most = max(most, size)
		select {
		case <-stop:
			return most
		case <-time.After(5 * time.Millisecond):
		}
	}
}
