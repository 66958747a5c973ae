package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var kills = flag.Int("kills", 2, "how often TestNodes kills a server or a node")

// upNode is a `ferrule up` process that is a node with boards.
type upNode struct {
	t      *testing.T
	name   string
	data   string
	listen string
	args   []string
	prefix []string // of the command, such as ip netns exec NAME
	cmd    *exec.Cmd
	boards *sim.Fleet
}

// newNode makes a node with simulated boards, called NAME-0 and so on. Cluster is the
// rest of its config, below `cluster:`.
func newNode(t *testing.T, name string, boards int, cluster string) *upNode {
	t.Helper()
	n := &upNode{t: t, name: name, data: t.TempDir(), listen: freeAddress(t)}
	file := fmt.Sprintf(openLoopback+"listen: %s\nretry: {min: 20ms, max: 500ms}\ncluster:\n  node: %s\n%s", n.listen, name, cluster)
	if boards > 0 {
		n.boards = startSim(t, sim.Config{Count: boards})
		file += "devices:\n  tcp:\n"
		for i, addr := range n.boards.Addrs() {
			file += fmt.Sprintf("    - {address: %q, name: %s-%d}\n", addr, name, i)
		}
	}
	path := filepath.Join(n.data, "ferrule.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	n.args = []string{"up", "--config", path, "--data", n.data}
	return n
}

func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// start starts the process. It ends with the test.
func (n *upNode) start() {
	n.t.Helper()
	program, err := exec.LookPath("ferrule")
	if err != nil {
		n.t.Fatal(err)
	}
	command := append(slices.Clone(n.prefix), append([]string{program}, n.args...)...)
	n.cmd = exec.Command(command[0], command[1:]...)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.OpenFile(filepath.Join(n.data, "up.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	defer log.Close()
	n.cmd.Stderr = log
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		n.kill()
		if n.t.Failed() {
			said, _ := os.ReadFile(log.Name())
			n.t.Logf("node %s said\n%s", n.name, said[max(0, len(said)-3000):])
		}
	})
}

// kill kills the process, if it runs.
func (n *upNode) kill() {
	if n.cmd != nil {
		n.cmd.Process.Kill()
		n.cmd.Wait()
		n.cmd = nil
	}
}

// stop ends the process with an interrupt.
func (n *upNode) stop() {
	n.t.Helper()
	n.cmd.Process.Signal(os.Interrupt)
	if err := n.cmd.Wait(); err != nil {
		n.t.Errorf("node %s: %v", n.name, err)
	}
	n.cmd = nil
}

// call calls a tool.
func (n *upNode) call(device, tool, args string) (*ferrule.Result, error) {
	socket, err := control.SocketPath(n.data)
	if err != nil {
		n.t.Fatal(err)
	}
	client := control.NewClient(socket)
	defer client.Close()
	ctx, cancel := context.WithTimeout(n.t.Context(), wait.Ample)
	defer cancel()
	return client.Handle(ctx, &ferrule.Call{
		Principal: ferrule.Principal{Role: ferrule.Person, Name: "test"}, Device: device, Tool: tool, Args: json.RawMessage(args),
	})
}

// reaches waits until a device can be called from the node.
func (n *upNode) reaches(device string, within time.Duration) {
	n.t.Helper()
	var err error
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err = n.call(device, "gpio_read", `{"pin":2}`); err == nil {
			return
		}
	}
	n.t.Fatalf("%s cannot reach %s within %v: %v", n.name, device, within, err)
}

// nodeAgent is an agent of a node that reconnects when the node does.
type nodeAgent struct {
	t       *testing.T
	node    *upNode
	mu      sync.Mutex
	session *mcp.ClientSession
}

func (a *nodeAgent) connected() (*mcp.ClientSession, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session != nil {
		return a.session, nil
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(a.t.Context(), &mcp.StreamableClientTransport{Endpoint: "http://" + a.node.listen + "/mcp", MaxRetries: -1}, nil)
	if err == nil {
		a.session = session
	}
	return session, err
}

func (a *nodeAgent) lost(session *mcp.ClientSession) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session == session && session != nil {
		session.Close()
		a.session = nil
	}
}

// errAway means that the outcome is unknown: the agent's own node ended.
var errAway = errors.New("the node of the agent went away")

// call calls a tool.
func (a *nodeAgent) call(name string, args map[string]any) error {
	session, err := a.connected()
	if err != nil {
		return ferrule.Errorf(ferrule.Offline, "no gateway")
	}
	ctx, cancel := context.WithTimeout(a.t.Context(), wait.Ample)
	defer cancel()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		a.lost(session)
		return errAway
	}
	return toolError(result)
}

// toolError returns the error of a failed call.
func toolError(result *mcp.CallToolResult) error {
	if !result.IsError {
		return nil
	}
	data, err := json.Marshal(result.Meta["ferrule/error"])
	e := &ferrule.Error{}
	if err != nil || json.Unmarshal(data, e) != nil || e.Code == "" {
		return fmt.Errorf("%v says nothing that is understood", result.Content)
	}
	return e
}

// joining returns the configuration of a node that joins a cluster, with the rights of
// its tenant's operator.
func joining(c *natscluster.Cluster, more ...string) string {
	return joiningAs(c, "acme-operator", "acme", more...)
}

// joiningAs does the same for another user.
func joiningAs(c *natscluster.Cluster, user, tenant string, more ...string) string {
	out := "  mode: join\n  shards: 4\n  secret: " + c.Secret + "\n  ca: '" + c.CA + "'\n  tenant: " + tenant + "\n  servers: [" + strings.ReplaceAll(c.URLsAs(user), ",", ", ") + "]\n"
	for _, line := range more {
		out += "  " + line + "\n"
	}
	return out
}

// TestNodes kills servers and nodes of a cluster one after the other, while an agent
// calls all boards. Each call has one outcome that agrees with the count of the board,
// nothing runs twice, and the journals are intact.
func TestNodes(t *testing.T) {
	servers := natscluster.Start(t, natscluster.Options{})
	var nodes []*upNode
	for _, name := range []string{"a", "b", "c"} {
		n := newNode(t, name, 2, joining(servers))
		n.start()
		nodes = append(nodes, n)
	}
	var devices []string
	for _, n := range nodes {
		for i := range n.boards.Boards {
			devices = append(devices, fmt.Sprintf("%s-%d", n.name, i))
		}
	}
	for _, id := range devices {
		for _, n := range nodes {
			n.reaches(id, wait.Ample)
		}
	}

	traffic := startTraffic(t, nodes[0], devices)
	for i := range *kills {
		time.Sleep(time.Second + rand.N(time.Second))
		victim := i % 5
		switch {
		case victim < 3 && i%2 == 0:
			killServer(t, servers, victim, traffic)
		default:
			killNode(t, nodes[1+i%2], traffic)
		}
		for _, id := range devices {
			nodes[0].reaches(id, wait.Ample)
		}
	}
	outcomes := traffic.end()
	runs := make(map[string]int)
	for _, n := range nodes {
		for _, b := range n.boards.Boards {
			for token, count := range b.Runs() {
				runs[token] += count
			}
		}
	}
	judgeNodes(t, outcomes, runs)
	for what, took := range traffic.recoveries {
		figure.AtMost(t, "calls to other nodes are answered again after a "+what+" is killed", took, 2*time.Second)
	}
	journalsIntact(t, nodes, outcomes, runs)
}

// killServer kills a NATS server, measures the time until calls to all devices are
// answered again, and restarts it.
func killServer(t *testing.T, servers *natscluster.Cluster, i int, traffic *traffic) {
	t.Helper()
	traffic.measure("server", nil, servers.Servers[i].Kill)
	servers.Servers[i].Start()
	servers.WaitHealthy()
}

// killNode kills a node and restarts it. Calls to devices of other nodes must not be
// disturbed.
func killNode(t *testing.T, n *upNode, traffic *traffic) {
	t.Helper()
	traffic.measure("node", n, n.kill)
	n.start()
}

// traffic is an agent that calls all devices all the time.
type traffic struct {
	t          *testing.T
	devices    []string
	done       chan struct{}
	wg         sync.WaitGroup
	recoveries map[string]time.Duration // the longest after the end of each kind

	mu       sync.Mutex
	outcomes []outcome
	last     map[string]time.Time // when a call to each device was last begun that was answered
}

func startTraffic(t *testing.T, at *upNode, devices []string) *traffic {
	tr := &traffic{t: t, devices: devices, done: make(chan struct{}), recoveries: make(map[string]time.Duration), last: make(map[string]time.Time)}
	for w := range 2 {
		for _, id := range devices {
			agent := &nodeAgent{t: t, node: at}
			tr.wg.Go(func() { tr.run(agent, id, w) })
		}
	}
	return tr
}

func (tr *traffic) run(agent *nodeAgent, device string, w int) {
	defer func() { agent.lost(agent.session) }()
	for i := 0; ; i++ {
		select {
		case <-tr.done:
			return
		default:
		}
		o := outcome{id: fmt.Sprintf("%s-%d-%d", device, w, i)}
		o.token = "token " + o.id
		start := time.Now()
		err := agent.call(device+"__pulse", map[string]any{"token": o.token})
		o.took = time.Since(start)
		switch e := (*ferrule.Error)(nil); {
		case err == nil:
			tr.mu.Lock()
			tr.last[device] = start
			tr.mu.Unlock()
		case errors.As(err, &e):
			o.code, o.ran = e.Code, e.MayHaveRun()
		default:
			o.code, o.ran = "away", true
		}
		tr.mu.Lock()
		tr.outcomes = append(tr.outcomes, o)
		tr.mu.Unlock()
		if o.code == ferrule.Offline {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// measure kills something and waits until a later call to every device is answered,
// except those of a node.
func (tr *traffic) measure(what string, but *upNode, kill func()) {
	tr.t.Helper()
	start := time.Now()
	kill()
	wait.For(tr.t, "calls are answered again after a "+what+" was killed", func() bool {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		for _, id := range tr.devices {
			if but != nil && strings.HasPrefix(id, but.name+"-") {
				continue
			}
			if !tr.last[id].After(start) {
				return false
			}
		}
		return true
	})
	tr.recoveries[what] = max(tr.recoveries[what], time.Since(start))
}

func (tr *traffic) end() []outcome {
	close(tr.done)
	tr.wg.Wait()
	return tr.outcomes
}

// judgeNodes compares outcomes with the counts of the boards.
func judgeNodes(t *testing.T, outcomes []outcome, runs map[string]int) {
	t.Helper()
	codes := make(map[ferrule.Code]int)
	var longest time.Duration
	for _, o := range outcomes {
		codes[o.code]++
		longest = max(longest, o.took)
		switch n := runs[o.token]; {
		case n > 1:
			t.Errorf("%s ran %d times", o.token, n)
		case o.code == "" && n != 1:
			t.Errorf("%s succeeded, and ran %d times", o.token, n)
		case o.code != "" && !o.ran && n != 0:
			t.Errorf("%s ran, and %s says that it did not", o.token, o.code)
		}
		switch o.code {
		case "", ferrule.Unanswered, ferrule.Offline:
		default:
			t.Errorf("%q ended in %s", o.token, o.code)
		}
	}
	t.Logf("%d calls: %v; the longest took %v", len(outcomes), codes, longest.Round(time.Millisecond))
}

// journalsIntact waits until the journals of all nodes are copied, and checks that they
// are intact and have all calls that ran.
func journalsIntact(t *testing.T, nodes []*upNode, outcomes []outcome, runs map[string]int) {
	t.Helper()
	recorded := make(map[string]bool)
	for _, n := range nodes { // the node that holds the board records the intent
		if err := journal.Read(n.data, func(e ferrule.Entry) error {
			if e.Phase == ferrule.Intent {
				var args struct{ Token string }
				if json.Unmarshal(e.Args, &args) == nil {
					recorded[args.Token] = true
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for token := range runs {
		if !recorded[token] {
			t.Errorf("%s ran, and is not in the journal", token)
		}
	}
	var out []byte
	wait.For(t, "the chains of all nodes are intact", func() bool {
		var err error
		out, err = exec.Command("ferrule", "audit", "verify", "--json", "--data", nodes[0].data).Output()
		var report struct {
			Chains []struct {
				Node              string
				Records, Uncopied int
			}
			Wrong int
		}
		if err != nil || json.Unmarshal(out, &report) != nil {
			return false
		}
		have, records, uncopied := make(map[string]bool), 0, 0
		for _, c := range report.Chains {
			have[c.Node] = true
			records += c.Records
			uncopied += c.Uncopied
		}
		return report.Wrong == 0 && uncopied == 0 && records >= len(runs) && len(have) == len(nodes)
	})
	t.Logf("audit verify: %.1000s", out)
}
