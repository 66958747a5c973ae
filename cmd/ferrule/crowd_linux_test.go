//go:build bench

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var toyCount = flag.Int("toys", 1500, "how many voice toys TestCrowd has on each medium; a process has to be allowed as many files")

// TestCrowd runs many idle voice toys on one node, over each transport. It measures the
// memory per toy, the work of an idle node, and the time until all toys are admitted
// again after a restart and after all but the first connections were cut at once.
//
// A toy is weighed after a restart, trusted by then: what was made once, when it was
// adopted, has gone.
func TestCrowd(t *testing.T) {
	t.Run("ws", func(t *testing.T) { crowdOfToys(t, "ws", *toyCount, 12<<10, 22<<10) })
	t.Run("mqtt", func(t *testing.T) { crowdOfToys(t, "mqtt", *toyCount, 16<<10, 26<<10) })
}

// crowdOfToys measures a crowd of toys. Aim is the goal for a toy, limit fails the test.
func crowdOfToys(t *testing.T, medium string, count, aim, limit int) {
	few, rest := count/10, 20*time.Second
	cut := time.Minute + time.Duration(count)*8*time.Millisecond
	n := newToyNode(t)
	n.start()
	none := n.memory(t)
	n.crowd(medium, 1, few)
	n.waits(few)
	n.adoptAll()
	n.restart(few)
	some := n.memory(t)

	begun := time.Now()
	n.crowd(medium, few+1, count-few, "--misbehave", "storm", "--cut", cut.String())
	n.waits(count)
	t.Logf("%s: %d toys that are new are admitted after %v", medium, count-few, time.Since(begun).Round(10*time.Millisecond))
	n.adoptAll()
	for _, dev := range n.devices() {
		if dev.Trust != string(ferrule.TrustAdopted) {
			t.Fatalf("%+v", dev)
		}
	}
	t.Logf("%s: after a restart all %d are there after %v", medium, count, n.restart(count).Round(10*time.Millisecond))
	all := n.memory(t)
	each := (all - some) / (count - few)
	t.Logf("%s: memory of the node: %d KB without toys, %d KB with %d, %d KB with %d", medium, none>>10, some>>10, few, all>>10, count)
	t.Logf("%s: memory of an idle toy: %d bytes for each one more; the aim is %d, at most %d", medium, each, aim, limit)
	if each > limit {
		t.Errorf("%d bytes", each)
	}
	worked := processorTime(t, n.cmd.Process.Pid)
	time.Sleep(rest)
	worked = processorTime(t, n.cmd.Process.Pid) - worked
	t.Logf("%s: at rest the node works %.1f %% of a core, at most 5", medium, 100*worked.Seconds()/rest.Seconds())
	if worked > rest/20 {
		t.Errorf("it worked %v in %v", worked, rest)
	}

	called := n.callOf(n.first())
	medians(200, called)
	usual := medians(500, called)[0]
	wait.For(t, "the links are cut", func() bool {
		time.Sleep(50 * time.Millisecond)
		return n.online() < count/2
	})
	lost := time.Now()
	var during []time.Duration
	back := make(chan struct{})
	go func() {
		defer close(back)
		n.waits(count)
	}()
	for again := false; !again; {
		start := time.Now()
		called()
		during = append(during, time.Since(start))
		select {
		case <-back:
			again = true
		default:
		}
	}
	t.Logf("%s: links cut at once: all %d are admitted again after %v", medium, count-few, time.Since(lost).Round(10*time.Millisecond))
	most(t, fmt.Sprintf("%s: a call to a toy that was there all the time, while others come back (%d calls), against a usual one", medium, len(during)),
		[]time.Duration{median(during)}, []time.Duration{usual}, 2)
}

// toyNode is a gateway in a process of its own, which toys dial.
type toyNode struct {
	process
	t      *testing.T
	cmd    *exec.Cmd
	health string
	ota    string
	client *control.Client
	said   bytes.Buffer
}

func newToyNode(t *testing.T) *toyNode {
	t.Helper()
	n := &toyNode{t: t, process: process{data: t.TempDir()}}
	web, dialIn, mqtt := natscluster.Port(t), natscluster.Port(t), natscluster.Port(t)
	settings := fmt.Sprintf("listen: 127.0.0.1:%d\ndial_in: {listen: 127.0.0.1:%d, mqtt: 127.0.0.1:%d, devices: 100000}\n", web, dialIn, mqtt)
	if err := os.WriteFile(n.file(), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	n.health, n.ota = fmt.Sprintf("http://127.0.0.1:%d/healthz", web), fmt.Sprintf("http://127.0.0.1:%d/xiaozhi/ota/", dialIn)
	socket, err := control.SocketPath(n.data)
	if err != nil {
		t.Fatal(err)
	}
	n.client = control.NewClient(socket)
	t.Cleanup(func() {
		n.client.Close()
		if t.Failed() {
			t.Logf("the node said last: %s", n.said.Bytes()[max(0, n.said.Len()-4096):])
		}
	})
	return n
}

func (n *toyNode) file() string { return filepath.Join(n.data, "ferrule.yaml") }

// start starts the process. It ends with the test.
func (n *toyNode) start() {
	n.t.Helper()
	n.cmd = exec.Command("weighed", "up", "--data", n.data, "--config", n.file())
	n.cmd.Stderr = &n.said
	n.in, n.out = startProcess(n.t, n.cmd)
	wait.For(n.t, "the node is up", func() bool { return n.online() >= 0 })
}

// settled is how long to wait after the last device before memory is measured: caches
// are dropped by then.
const settled = 15 * time.Second

// restart ends the process with an interrupt, starts another, and returns how long it
// took until the toys were back.
func (n *toyNode) restart(count int) time.Duration {
	n.t.Helper()
	n.cmd.Process.Signal(os.Interrupt)
	n.cmd.Wait()
	begun := time.Now()
	n.start()
	n.waits(count)
	took := time.Since(begun)
	time.Sleep(settled)
	return took
}

// crowd starts toys, in a process of their own.
func (n *toyNode) crowd(medium string, first, count int, more ...string) {
	n.t.Helper()
	args := []string{"sim", "xiaozhi", "--" + medium, n.ota, "--first", fmt.Sprint(first), "--count", fmt.Sprint(count), "--from", "127.1.0.0/16"}
	cmd := exec.Command("ferrule", append(args, more...)...)
	_, out := startProcess(n.t, cmd)
	go out.WriteTo(new(bytes.Buffer)) // keeps it from blocking
}

// online returns the number of toys, or -1 if the node does not answer.
func (n *toyNode) online() int {
	resp, err := http.Get(n.health)
	if err != nil {
		return -1
	}
	body, err := wholeBody(resp)
	var health struct{ Devices map[ferrule.State]int }
	if err != nil || json.Unmarshal([]byte(body), &health) != nil {
		return -1
	}
	return health.Devices[ferrule.StateOnline]
}

// waits waits until a number of toys are online.
func (n *toyNode) waits(count int) {
	for end := time.Now().Add(5 * time.Minute); n.online() != count; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			n.t.Errorf("%d of %d are there", n.online(), count)
			return
		}
	}
}

// devices returns the devices of the node.
func (n *toyNode) devices() (all []builtin.DescribedDevice) {
	n.t.Helper()
	for in := (builtin.ListDevicesInput{Limit: 1000}); ; {
		page, err := control.CallBuiltin[builtin.ListDevicesOutput](n.t.Context(), n.client, "list_devices", in)
		if err != nil {
			n.t.Fatal(err)
		}
		all = append(all, page.Devices...)
		if in.After = page.Next; page.Next == "" {
			return all
		}
	}
}

// first returns the toy with the lowest address, which is in the first crowd.
func (n *toyNode) first() string {
	n.t.Helper()
	return slices.MinFunc(n.devices(), func(a, b builtin.DescribedDevice) int { return strings.Compare(a.Address, b.Address) }).ID
}

// adoptAll trusts every toy.
func (n *toyNode) adoptAll() {
	n.t.Helper()
	var wg sync.WaitGroup
	room := make(chan struct{}, 64)
	for _, dev := range n.devices() {
		if dev.Trust != string(ferrule.TrustPending) {
			continue
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			if _, err := control.CallBuiltin[builtin.TrustOutput](n.t.Context(), n.client, "adopt_device", builtin.TrustInput{Device: dev.ID}); err != nil {
				n.t.Errorf("%s: %v", dev.ID, err)
			}
		})
	}
	wg.Wait()
}

// callOf returns a function that calls a tool of a toy.
func (n *toyNode) callOf(device string) func() {
	call := ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "test"}, Device: device, Tool: "self.get_device_status", Args: json.RawMessage(`{}`)}
	return func() {
		asked := call
		if _, err := n.client.Handle(n.t.Context(), &asked); err != nil {
			n.t.Fatal(err)
		}
	}
}
