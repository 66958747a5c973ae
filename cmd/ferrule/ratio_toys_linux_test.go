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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/front/control"
	"github.com/ferrulehq/ferrule/rig/cluster"
)

var toyCount = flag.Int("toys", 3000, "how many voice toys TestRatioToys has on each medium; a process has to be allowed as many files")

// TestRatioToys: many idle voice toys on one node, on each medium: what one costs, when
// there are some and when there are ten times as many; how much the node works while
// they are at rest; and, after all links but those of the first were cut at once, how
// long it takes until all are admitted again, while calls to the first go on.
func TestRatioToys(t *testing.T) {
	for medium, limit := range map[string]int{"ws": 12 << 10, "mqtt": 16 << 10} {
		t.Run(medium, func(t *testing.T) { crowdOfToys(t, medium, *toyCount, limit) })
	}
}

func crowdOfToys(t *testing.T, medium string, count, limit int) {
	few, rest := count/10, 20*time.Second
	cut := rest + 20*time.Second + time.Duration(count)*4*time.Millisecond
	n := startToyNode(t)
	none := n.memory(t)
	n.crowd(medium, 1, few)
	n.waits(few)
	n.adoptAll()
	some := n.memory(t)
	called := n.road(n.devices()[0].ID)
	medians(200, called)

	begun := time.Now()
	n.crowd(medium, few+1, count-few, "--misbehave", "storm", "--cut", cut.String())
	n.waits(count)
	t.Logf("%s: %d toys more are admitted after %v", medium, count-few, time.Since(begun).Round(10*time.Millisecond))
	n.adoptAll()
	each, eachOfSome := (n.memory(t)-some)/(count-few), (some-none)/few
	t.Logf("%s: memory of an idle toy: %d bytes among %d, %d among %d, at most %d", medium, each, count, eachOfSome, few, limit)
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

	usual := medians(500, called)[0]
	eventually(t, cut, "the links are cut", func() bool {
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
	t.Logf("%s: all %d are admitted again after %v", medium, count-few, time.Since(lost).Round(10*time.Millisecond))
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
}

func startToyNode(t *testing.T) *toyNode {
	t.Helper()
	n := &toyNode{t: t, process: process{data: t.TempDir()}}
	web, http, mqtt := cluster.Port(t), cluster.Port(t), cluster.Port(t)
	file := filepath.Join(n.data, "ferrule.yaml")
	settings := fmt.Sprintf("listen: 127.0.0.1:%d\ndial_in: {listen: 127.0.0.1:%d, mqtt: 127.0.0.1:%d, devices: 100000}\n", web, http, mqtt)
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	n.cmd = exec.Command("weighed", "up", "--data", n.data, "--config", file)
	var said bytes.Buffer
	n.cmd.Stderr = &said
	n.in, n.out = startProcess(t, n.cmd)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the node said last: %s", said.Bytes()[max(0, said.Len()-4096):])
		}
	})
	n.health, n.ota = fmt.Sprintf("http://127.0.0.1:%d/healthz", web), fmt.Sprintf("http://127.0.0.1:%d/xiaozhi/ota/", http)
	socket, err := control.SocketPath(n.data)
	if err != nil {
		t.Fatal(err)
	}
	n.client = control.NewClient(socket)
	t.Cleanup(func() { n.client.Close() })
	eventually(t, 30*time.Second, "the node is up", func() bool { return n.online() == 0 })
	return n
}

// crowd starts toys, in a process of their own.
func (n *toyNode) crowd(medium string, first, count int, more ...string) {
	n.t.Helper()
	args := []string{"sim", "xiaozhi", "--" + medium, n.ota, "--first", fmt.Sprint(first), "--count", fmt.Sprint(count), "--from", "127.1.0.0/16"}
	cmd := exec.Command("ferrule", append(args, more...)...)
	_, out := startProcess(n.t, cmd)
	go out.WriteTo(new(bytes.Buffer)) // so that it does not wait
}

// online is how many toys there are; less than none if the node does not say.
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

// waits waits until so many toys are there.
func (n *toyNode) waits(count int) {
	for end := time.Now().Add(5 * time.Minute); n.online() != count; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			n.t.Errorf("%d of %d are there", n.online(), count)
			return
		}
	}
}

// devices are those that the node knows.
func (n *toyNode) devices() []*ferrule.Device {
	n.t.Helper()
	result, err := n.client.Handle(n.t.Context(), &ferrule.Call{Principal: me(), Device: ferrule.GatewayID, Tool: "list_devices", Args: json.RawMessage(`{}`)})
	if err != nil {
		n.t.Fatal(err)
	}
	var out struct{ Devices []*ferrule.Device }
	if err := json.Unmarshal(result.Value, &out); err != nil {
		n.t.Fatal(err)
	}
	return out.Devices
}

// adoptAll trusts every toy.
func (n *toyNode) adoptAll() {
	n.t.Helper()
	var wg sync.WaitGroup
	room := make(chan struct{}, 64)
	for _, dev := range n.devices() {
		if dev.Trust != ferrule.TrustHeld {
			continue
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			args := json.RawMessage(fmt.Sprintf(`{"device":%q}`, dev.ID))
			if _, err := n.client.Handle(n.t.Context(), &ferrule.Call{Principal: me(), Device: ferrule.GatewayID, Tool: "adopt_device", Args: args}); err != nil {
				n.t.Errorf("%s: %v", dev.ID, err)
			}
		})
	}
	wg.Wait()
}

// road returns a call of a toy.
func (n *toyNode) road(device string) func() {
	call := ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "test"}, Device: device, Tool: "self.get_device_status", Args: json.RawMessage(`{}`)}
	return func() {
		asked := call
		if _, err := n.client.Handle(n.t.Context(), &asked); err != nil && !strings.Contains(err.Error(), "context canceled") {
			n.t.Fatal(err)
		}
	}
}
