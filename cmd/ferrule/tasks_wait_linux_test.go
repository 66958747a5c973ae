package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestWaitAsTask: wait_for of an agent that knows tasks is a task. An agent that comes back
// with nothing but its ID gets the result. If the gateway is stopped or killed, the wait ends,
// and the task says so. A wait of an agent without tasks ends with the connection.
func TestWaitAsTask(t *testing.T) {
	n := newNode(t, "a", 1, "")
	overlays := t.TempDir()
	const often = `
match: {device: a-0}
tools:
  gpio_read: {effect: reads}
polls:
  lamp:
    tool: gpio_read
    args: {pin: 2}
    every: 200ms
`
	if err := os.WriteFile(filepath.Join(overlays, "lamp.yaml"), []byte(often), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(n.data, "ferrule.yaml")
	settings, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(settings, "overlays: "+overlays+"\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.reaches("a-0", 30*time.Second)
	const tool = "gateway__wait_for"
	request := func(method, name string, params map[string]any) (map[string]any, error) {
		return requestTask(t.Context(), n.listen, method, name, params, nil)
	}
	lamp := ""
	measured := func() {
		t.Helper()
		lamp = ""
		wait.For(t, "the lamp is measured", func() bool {
			result, err := n.call("gateway", "latest", `{"device":"a-0"}`)
			if err != nil {
				return false
			}
			for _, word := range strings.Split(string(result.Value), `"`) {
				if strings.HasPrefix(word, "lamp") {
					lamp = word
				}
			}
			return lamp != ""
		})
	}
	measured()
	begin := func(value int) (id string) {
		t.Helper()
		condition := map[string]any{"device": "a-0", "signal": lamp, "equals": value}
		task, err := request("tools/call", tool, map[string]any{"name": tool, "arguments": map[string]any{"conditions": []any{condition}, "deadline": "1h"}})
		if err != nil || task["resultType"] != "task" || task["status"] != "working" {
			t.Fatalf("got %v, %v", task, err)
		}
		return task["taskId"].(string)
	}
	ended := func(id string) (text string) {
		t.Helper()
		wait.For(t, "the task has ended", func() bool {
			got, err := request("tasks/get", id, map[string]any{"taskId": id})
			if err != nil || got["status"] == "working" {
				return false
			}
			if got["status"] != "completed" {
				t.Fatalf("got %v", got)
			}
			text = fmt.Sprint(got["result"])
			return true
		})
		return text
	}

	id := begin(1)
	if got, err := request("tasks/get", id, map[string]any{"taskId": id}); err != nil || got["status"] != "working" {
		t.Fatalf("before the lamp is on: %v, %v", got, err)
	}
	if _, err := n.call("a-0", "gpio_write", `{"pin":2,"value":true}`); err != nil {
		t.Fatal(err)
	}
	text := ended(id)
	if strings.Contains(text, "isError") || !strings.Contains(text, "met:true") {
		t.Errorf("the result is %s", text)
	}
	if again := ended(id); again != text {
		t.Errorf("first %s, then %s", text, again)
	}

	for name, end := range map[string]func(){"killed": n.kill, "stopped": n.stop} {
		measured()
		id := begin(5)
		plain := &nodeAgent{t: t, node: n}
		gone := make(chan error, 1)
		go func() {
			gone <- plain.call(tool, map[string]any{"conditions": []any{map[string]any{"device": "a-0", "signal": lamp, "equals": 6}}, "deadline": "30s"})
		}()
		wait.For(t, "both wait", func() bool {
			plain.mu.Lock()
			defer plain.mu.Unlock()
			return plain.session != nil
		})
		start := time.Now()
		end()
		select {
		case err := <-gone:
			if err == nil {
				t.Errorf("%s: the wait of an agent without tasks was met", name)
			}
		case <-time.After(25 * time.Second):
			t.Errorf("%s: the wait of an agent without tasks goes on", name)
		}
		t.Logf("%s: it took %v", name, time.Since(start))
		n.start()
		n.reaches("a-0", 30*time.Second)
		if text := ended(id); !strings.Contains(text, "isError:true") || !strings.Contains(text, "gateway stopped") && !strings.Contains(text, "gateway was stopped") || !strings.Contains(text, "again") || strings.Contains(text, "may have run") {
			t.Errorf("%s: the task ended with %s", name, text)
		}
	}
}
