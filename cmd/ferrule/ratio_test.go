//go:build bench

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/config"
)

// The tests in this file measure one thing against another in the same run, and
// assert the ratio. They are meant for `go test -tags bench`, without the race
// detector.

// simProcess runs simulated boards in a process of their own.
func simProcess(t *testing.T, count int) []string {
	t.Helper()
	cmd := exec.Command("ferrule", "sim", "mcpu", "--tcp", "127.0.0.1:0", "--count", fmt.Sprint(count), "--json")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	var started struct{ Addresses []string }
	if err := json.NewDecoder(out).Decode(&started); err != nil {
		t.Fatal(err)
	}
	return started.Addresses
}

// raw is a bare connection to a board: the same bytes there and back, the answer
// decoded, and nothing around it.
type raw struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
	id   int
}

func dialRaw(t *testing.T, addr string) *raw {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &raw{t: t, conn: conn, in: bufio.NewReader(conn)}
}

// roundTrip sends one request and reads its answer, as the plainest client would.
func (r *raw) roundTrip(method, params string) {
	r.id = r.id%32767 + 1
	if _, err := fmt.Fprintf(r.conn, `{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}`+"\n", r.id, method, params); err != nil {
		r.t.Fatal(err)
	}
	line, err := r.in.ReadSlice('\n')
	if err != nil {
		r.t.Fatal(err)
	}
	var answer struct {
		ID     int             `json:"id"`
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(line, &answer); err != nil || answer.ID != r.id || answer.Result == nil {
		r.t.Fatalf("%s: %v", line, err)
	}
}

// measure runs things in turn, n times each, and returns the median of each.
func measure(n int, things ...func()) []time.Duration {
	times := make([][]time.Duration, len(things))
	for i := range n {
		for k := range things {
			k = (k + i) % len(things) // so that none is always first
			start := time.Now()
			things[k]()
			times[k] = append(times[k], time.Since(start))
		}
	}
	medians := make([]time.Duration, len(things))
	for k := range times {
		slices.Sort(times[k])
		medians[k] = times[k][len(times[k])/2]
	}
	return medians
}

// most asserts a ratio, and prints it with what it is made of.
func most(t *testing.T, name string, got, base time.Duration, limit float64) {
	t.Helper()
	ratio := float64(got) / float64(base)
	t.Logf("%s: %v against %v, ratio %.2f, at most %.2f", name, got, base, ratio, limit)
	if ratio > limit {
		t.Errorf("%s: ratio %.2f is more than %.2f", name, ratio, limit)
	}
}

// road returns a call of a tool on the whole road, in this process.
func road(t *testing.T, g *testGateway, device, tool, args string) func() {
	return func() {
		if _, err := g.call(device, tool, args, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRatioRead: the local road for a tool that reads, against the same round
// trip written raw.
func TestRatioRead(t *testing.T) {
	addrs := simProcess(t, 2)
	g := startGateway(t, map[string]string{"robot": addrs[0]})
	g.online("robot")
	bare := dialRaw(t, addrs[1])
	const args = `{"pin":2}`
	call, trip := road(t, g, "robot", "gpio_read", args), func() { bare.roundTrip("gpio_read", args) }
	measure(500, call, trip) // to warm up
	m := measure(5000, call, trip)
	most(t, "reading over TCP: road against raw", m[0], m[1], 1.4)
}

// TestRatioChange: the local road for a tool that changes something, with its two
// synced records, against a raw round trip and two bare synced appends.
func TestRatioChange(t *testing.T) {
	addrs := simProcess(t, 2)
	g := startGateway(t, map[string]string{"robot": addrs[0]})
	g.online("robot")
	bare := dialRaw(t, addrs[1])
	file, err := os.Create(filepath.Join(g.data, "bare"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	record := []byte(strings.Repeat("x", 300) + "\n")
	appendSynced := func() {
		if _, err := file.Write(record); err != nil {
			t.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	const args = `{"pin":2,"value":true}`
	call := road(t, g, "robot", "gpio_write", args)
	trip := func() {
		appendSynced()
		bare.roundTrip("gpio_write", args)
		appendSynced()
	}
	measure(200, call, trip)
	m := measure(2000, call, trip)
	most(t, "changing over TCP: road against raw and two synced appends", m[0], m[1], 1.2)
}

// TestRatioFleet: two thousand devices in other processes are admitted in time and
// in little memory, and the road to one of them is as long as to a single one.
func TestRatioFleet(t *testing.T) {
	const count, processes = 2000, 4
	single := simProcess(t, 1)
	var addrs []string
	for range processes {
		addrs = append(addrs, simProcess(t, count/processes)...)
	}
	one := startGateway(t, map[string]string{"robot": single[0]})
	one.online("robot")
	const args = `{"pin":2}`
	alone := road(t, one, "robot", "gpio_read", args)
	measure(500, alone)
	before := measure(3000, alone)[0]

	rss := residentSet(t)
	start := time.Now()
	all := startGateway(t, nil, func(c *config.Config) {
		for _, addr := range addrs {
			c.Devices.TCP = append(c.Devices.TCP, config.TCPDevice{Address: addr})
		}
	})
	eventually(t, 60*time.Second, "all are admitted", func() bool {
		online := 0
		for _, dev := range all.fleet.Devices() {
			if dev.State == ferrule.StateOnline {
				online++
			}
		}
		return online == count
	})
	took := time.Since(start)
	t.Logf("%d devices admitted in %v, at most 20s", count, took.Round(time.Millisecond))
	if took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	kinds := make(map[ferrule.Kind]bool)
	manifests := make(map[*ferrule.Manifest]bool)
	for _, dev := range all.fleet.Devices() {
		_, m, _ := all.fleet.Lookup(dev.ID)
		kinds[dev.Kind], manifests[m] = true, true
	}
	if len(kinds) != 1 || len(manifests) != 1 {
		t.Errorf("%d Kinds and %d manifests, want one", len(kinds), len(manifests))
	}
	raw := (residentSet0(t) - rss) / count
	each := (residentSet(t) - rss) / count
	t.Logf("memory of an idle admitted device: %d bytes of RSS, %d with garbage not yet returned; at most 40960", each, raw)
	t.Logf("%d goroutines for %d devices", runtime.NumGoroutine(), count)
	if each > 40<<10 {
		t.Errorf("%d bytes", each)
	}

	device := all.fleet.Devices()[count/2].ID
	among := road(t, all, device, "gpio_read", args)
	measure(500, among)
	with := measure(3000, among)[0]
	all.stop()
	measure(500, alone)
	after := measure(3000, alone)[0]
	t.Logf("the road to a single device: %v before, %v after", before, after)
	most(t, "the road to one of 2,000 against the road to a single one", with, max(before, after), 1.2)
}

// residentSet is the memory of this process after its garbage was given back.
func residentSet(t *testing.T) int {
	t.Helper()
	debug.FreeOSMemory()
	return residentSet0(t)
}

func residentSet0(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var kb int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
			return kb << 10
		}
	}
	t.Fatal("there is no VmRSS")
	return 0
}
