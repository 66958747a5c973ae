package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// greedyToy is a toy that nobody adopted, and that lists tools with large schemas. No
// other toy has equal ones.
type greedyToy struct {
	xiaozhi.Conn
	number, tools, properties int
}

// Recv answers tools/list, and passes on everything else.
func (c *greedyToy) Recv(ctx context.Context) (xiaozhi.Message, error) {
	for {
		m, err := c.Conn.Recv(ctx)
		var in struct {
			Session string `json:"session_id"`
			Payload struct {
				ID     json.RawMessage
				Method string
				Params struct{ Cursor string }
			}
		}
		if err != nil || json.Unmarshal(m.Data, &in) != nil || in.Payload.Method != "tools/list" {
			return m, err
		}
		if err := c.Send(ctx, xiaozhi.Message{Data: c.page(in.Session, in.Payload.ID, in.Payload.Params.Cursor)}); err != nil {
			return m, err
		}
	}
}

// page returns one page of the list: a single tool.
func (c *greedyToy) page(session string, id json.RawMessage, cursor string) []byte {
	n, _ := strconv.Atoi(cursor)
	var b strings.Builder
	fmt.Fprintf(&b, `{"session_id":%q,"type":"mcp","payload":{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"tool-%d","description":"One of many","inputSchema":{"type":"object","properties":{`, session, id, n)
	for p := range c.properties {
		if p > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"%x-%x-%x":{}`, c.number, n, p)
	}
	b.WriteString(`}}}]`)
	if n+1 < c.tools {
		fmt.Fprintf(&b, `,"nextCursor":"%d"`, n+1)
	}
	b.WriteString(`}}}`)
	return []byte(b.String())
}

// memoryOf returns a size of a process from /proc, such as VmRSS, in bytes.
func memoryOf(t *testing.T, pid int, what string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\n"+what+":")
	kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// TestStrangersUseLittle connects devices that nobody adopted, with 30 tools of 3,700
// properties each. All are pending, also after a restart. .ci/measure checks that the memory of
// the gateway hardly grows, even at its peak, and that it answers within a second after a
// restart.
func TestStrangersUseLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	const toys, limit = 12, 64 << 20
	data := t.TempDir()
	web, dialIn := natscluster.Port(t), natscluster.Port(t)
	settings := fmt.Sprintf("listen: 127.0.0.1:%d\ndial_in: {listen: 127.0.0.1:%d, mqtt: \"off\"}\n", web, dialIn)
	file := filepath.Join(data, "ferrule.yaml")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	answers := func() bool {
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", web))
		if err == nil {
			response.Body.Close()
		}
		return err == nil && response.StatusCode == http.StatusOK
	}
	start := func() (up *exec.Cmd, took time.Duration) {
		up = exec.Command("ferrule", "up", "--data", data, "--config", file)
		begun := time.Now()
		startProcess(t, up)
		wait.For(t, "the gateway answers", answers)
		return up, time.Since(begun)
	}
	up, usual := start()
	before := memoryOf(t, up.Process.Pid, "VmRSS")
	for n := range toys {
		toy := newToy(t, n+1, "ws")
		settings, err := toy.CheckIn(t.Context(), fmt.Sprintf("http://127.0.0.1:%d/xiaozhi/ota/", dialIn), toy.Identity)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := toy.dial(settings)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan struct{})
		go func() {
			defer close(over)
			toy.ServeConn(ctx, &greedyToy{conn, n, 30, 3700}, true)
		}()
		t.Cleanup(func() { cancel(); <-over })
	}
	pending := func() int {
		out, _ := exec.Command("ferrule", "devices", "--data", data, "--json").Output()
		var all []struct{ State, Trust, Kind string }
		json.Unmarshal(out, &all)
		n := 0
		for _, dev := range all {
			if dev.Trust == "pending" && dev.Kind != "" {
				n++
			}
		}
		return n
	}
	wait.Within(t, 3*time.Minute, "all are pending", func() bool { return pending() == toys })
	peak := memoryOf(t, up.Process.Pid, "VmHWM")
	t.Logf("memory: %d MB before, %d MB at most, %d MB now", before>>20, peak>>20, memoryOf(t, up.Process.Pid, "VmRSS")>>20)
	figure.AtMost(t, "bytes by which the memory grows", peak-before, limit)
	up.Process.Signal(os.Interrupt)
	up.Wait()
	_, took := start()
	figure.AtMost(t, "time until the gateway answers after a restart", took, max(time.Second, 3*usual)) // on a busy machine everything is slow
	if n := pending(); n != toys {
		t.Errorf("%d devices are pending", n)
	}
}
