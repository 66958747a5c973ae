package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var kilnSecond = flag.Duration("kiln-second", 20*time.Millisecond, "how long a second of TestTaskOfDeadNodes lasts on its board")

const kilnOverlay = `
match: {device: rig-uno}
tools:
  start_kiln:
    effect: changes
    job:
      poll: kiln_status
      id: job
      done: {state: done}
      failed: {state: stopped}
      message: "{state}"
      cancel: stop_kiln
  kiln_status: {effect: reads}
`

// taskNode is a gateway in a process of its own, at which a board can dial in.
type taskNode struct {
	t                          *testing.T
	name, data, settings, dial string
	listen                     string
	cmd                        *exec.Cmd
}

func newTaskNode(t *testing.T, name string, servers *natscluster.Cluster) *taskNode {
	t.Helper()
	n := &taskNode{t: t, name: name, data: t.TempDir(), dial: freeAddress(t), listen: freeAddress(t)}
	cfg := testConfig()
	joins(&cfg, name, servers)
	withOverlay(t, kilnOverlay)(&cfg)
	cfg.Listen = n.listen
	settings, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.settings = string(settings)
	t.Cleanup(n.kill)
	return n
}

func (n *taskNode) start() {
	n.t.Helper()
	n.cmd = exec.Command("dialed", n.settings, n.data, n.dial)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	n.cmd.Stderr = n.t.Output()
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
}

func (n *taskNode) kill() {
	if n.cmd != nil {
		n.cmd.Process.Kill()
		n.cmd.Wait()
		n.cmd = nil
	}
}

// request makes one request of an agent that knows tasks. Each has a connection of its own.
func (n *taskNode) request(method, name string, params map[string]any) (map[string]any, error) {
	return requestTask(n.t.Context(), n.listen, method, name, params, nil)
}

// TestTaskOfDeadNodes runs a job of ten minutes on an Uno as a task, in compressed time. The
// agent is killed in the middle of it, its gateway is killed and restarted, and then killed for
// good; the board moves to another node, and another agent gets the outcome there. The job ran
// once.
func TestTaskOfDeadNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	for second := *kilnSecond; ; second *= 3 {
		early := false
		t.Run(second.String(), func(t *testing.T) { early = taskOfDeadNodes(t, second) })
		if !early {
			return
		}
		t.Logf("the job was over too early: this machine is too slow for seconds of %v", second)
	}
}

// taskOfDeadNodes does that with seconds of a length. It reports whether the job was over
// before all gateways were killed.
func taskOfDeadNodes(t *testing.T, second time.Duration) (early bool) {
	const tool, seconds = "rig-uno__start_kiln", 600
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	board := uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "uno"), Kiln: second})
	line := bridge(t, board)
	a, b := newTaskNode(t, "a", servers), newTaskNode(t, "b", servers)
	a.start()
	b.start()
	line.move(a.dial)
	agent := exec.Command("tasker", a.listen, tool, fmt.Sprintf(`{"seconds":%d}`, seconds))
	agent.SysProcAttr, agent.Stderr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, t.Output()
	said, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	defer agent.Process.Kill()
	task := ""
	lines := bufio.NewScanner(said)
	firing := false
	for !firing && lines.Scan() { // it is killed in the middle of the task
		if task == "" {
			task = lines.Text()
		}
		firing = strings.HasSuffix(lines.Text(), "firing")
	}
	agent.Process.Kill()
	if err := agent.Wait(); task == "" || firing && agent.ProcessState.Exited() {
		t.Fatalf("the agent has task %q: %v", task, err)
	}
	get := func(n *taskNode) (map[string]any, error) {
		return n.request("tasks/get", task, map[string]any{"taskId": task})
	}
	working := func(n *taskNode, what string) bool {
		t.Helper()
		wait.For(t, what, func() bool {
			got, err := get(n)
			if early = err == nil && isDone(got); early {
				return true
			}
			if err == nil && got["status"] != "working" {
				t.Fatalf("%s: %v", what, got)
			}
			message, _ := got["statusMessage"].(string)
			return err == nil && strings.HasSuffix(message, " says: firing")
		})
		return !early
	}
	if !working(a, "node a follows the job") || !working(b, "node b answers for it") {
		return early
	}
	a.kill()
	a.start()
	if !working(a, "node a follows the job after its restart") {
		return early
	}
	a.kill()
	line.move(b.dial)
	agent = exec.Command("tasker", b.listen, tool, "", task) // it has nothing but the ID
	agent.SysProcAttr, agent.Stderr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, t.Output()
	timer := time.AfterFunc(second*seconds+wait.Ample, func() { agent.Process.Kill() })
	defer timer.Stop()
	out, err := agent.Output()
	if err != nil {
		t.Fatalf("the second agent: %v: %s", err, out)
	}
	all := strings.Split(strings.TrimSpace(string(out)), "\n")
	var first map[string]any
	if err := json.Unmarshal([]byte(all[len(all)-1]), &first); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	text := fmt.Sprint(first["result"])
	if !isDone(first) {
		t.Errorf("the outcome is %v", first)
	}
	if again, err := get(b); err != nil || fmt.Sprint(again["result"]) != text {
		t.Errorf("then it is %v, %v", again, err)
	}
	status := "rig-uno__kiln_status"
	starts, err := b.request("tools/call", status, map[string]any{"name": status, "arguments": map[string]any{}})
	if err != nil || !strings.Contains(fmt.Sprint(starts), `"starts":1`) && !strings.Contains(fmt.Sprint(starts), "starts:1") {
		t.Errorf("the board says %v, %v; want one start", starts, err)
	}
	return false
}

// isDone reports whether a task has completed its job.
func isDone(task map[string]any) bool {
	text := fmt.Sprint(task["result"])
	return task["status"] == "completed" && strings.Contains(text, "done") && !strings.Contains(text, "isError")
}
