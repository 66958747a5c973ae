//go:build bench

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// The tests in this file measure one thing against another in the same run, and
// assert the ratio. They are meant for `go test -tags bench`, without the race
// detector.

// simProcess runs simulated boards in a process.
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

func dialRaw(t *testing.T, addr string) *raw {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return newRaw(conn)
}

// trip returns a raw round trip.
func trip(t *testing.T, bare *raw, method, args string) func() {
	return func() {
		if _, err := bare.roundTrip(method, args); err != nil {
			t.Fatal(err)
		}
	}
}

// rounds is how often each ratio is measured. The machine is shared, so the median
// counts.
const rounds = 9

// medians runs functions in turn, n times each, and returns the median of each.
func medians(n int, things ...func()) []time.Duration {
	times := make([][]time.Duration, len(things))
	for i := range n {
		for k := range things {
			k = (k + i) % len(things) // none is always first
			start := time.Now()
			things[k]()
			times[k] = append(times[k], time.Since(start))
		}
	}
	all := make([]time.Duration, len(things))
	for k := range times {
		all[k] = median(times[k])
	}
	return all
}

func median[T cmp.Ordered](of []T) T {
	slices.Sort(of)
	return of[len(of)/2]
}

// most checks the ratio of got and base, which were measured in pairs, and prints it.
func most[T int | time.Duration](t *testing.T, name string, got, base []T, limit float64) {
	t.Helper()
	ratios := ratiosOf(got, base)
	ratio := median(ratios)
	t.Logf("%s: %v against %v, ratio %.2f (%.2f to %.2f), at most %.2f", name,
		median(got), median(base), ratio, ratios[0], ratios[len(ratios)-1], limit)
	if ratio > limit {
		t.Errorf("%s: ratio %.2f is more than %.2f", name, ratio, limit)
	}
}

// ratiosOf returns the ratio of each pair.
func ratiosOf[T int | time.Duration](got, base []T) (ratios []float64) {
	for i := range got {
		ratios = append(ratios, float64(got[i])/float64(base[i]))
	}
	return ratios
}

// within measures until the median of the ratios is within a limit, at most three times, and
// returns the last measurement: others who use the machine can make it only look worse.
func within(t *testing.T, limit float64, measure func() (got, base []time.Duration)) (got, base []time.Duration) {
	t.Helper()
	for range 3 {
		got, base = measure()
		ratio := median(ratiosOf(got, base))
		if ratio <= limit {
			break
		}
		t.Logf("a ratio of %.2f is more than %.2f", ratio, limit)
	}
	return got, base
}

// compare measures got against base in rounds of n calls, in turn, for at least some
// seconds, and checks their ratio.
func compare(t *testing.T, name string, n int, got, base func(), limit float64) {
	t.Helper()
	medians(n/2, got, base) // to warm up
	gots, bases := within(t, limit, func() (gots, bases []time.Duration) {
		for start := time.Now(); len(gots) < rounds || time.Since(start) < 5*time.Second; {
			m := medians(n, got, base)
			gots, bases = append(gots, m[0]), append(bases, m[1])
		}
		return gots, bases
	})
	most(t, name, gots, bases, limit)
}

// pipelineCall returns a function that calls a tool through the pipeline, in this process.
func pipelineCall(t *testing.T, g *testGateway, device, tool, args string) func() {
	return func() {
		if _, err := g.call(device, tool, args, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRatioRead compares the local pipeline for a read-only tool to a raw round trip. It was
// 1.45 in the gate before there was a guard, which may add a tenth.
func TestRatioRead(t *testing.T) {
	addrs := simProcess(t, 2)
	g := startGateway(t, map[string]string{"robot": addrs[0]})
	g.online("robot")
	bare := dialRaw(t, addrs[1])
	const args = `{"pin":2}`
	compare(t, "reading over TCP: pipeline against raw", 1000,
		pipelineCall(t, g, "robot", "gpio_read", args), trip(t, bare, "gpio_read", args), 1.6)
}

// TestRatioChange compares the local pipeline for a tool that changes something to one that only
// reads and a bare synced append: the intent must be on disk before the device is called, and
// nobody waits for the sync of the outcome.
func TestRatioChange(t *testing.T) {
	g := startGateway(t, map[string]string{"robot": simProcess(t, 1)[0]})
	g.online("robot")
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
	change, read := pipelineCall(t, g, "robot", "gpio_write", `{"pin":2,"value":true}`), pipelineCall(t, g, "robot", "gpio_read", `{"pin":2}`)
	readSynced := func() {
		appendSynced()
		read()
	}
	compare(t, "changing over TCP against reading and one synced append", 400, change, readSynced, 1.3)
}

// TestRatioFleet checks that two thousand devices are admitted in time and in little
// memory, and that calls to one of them take as long as to a single device. They come
// and go three times.
func TestRatioFleet(t *testing.T) {
	const count, processes, calls = 2000, 4, 3000
	single := simProcess(t, 1)
	var addrs []string
	for range processes {
		addrs = append(addrs, simProcess(t, count/processes)...)
	}
	one := startGateway(t, map[string]string{"robot": single[0]})
	one.online("robot")
	alone := pipelineCall(t, one, "robot", "gpio_read", `{"pin":2}`)
	medians(500, alone)
	var got, base, turnGot, turnBase []time.Duration
	for range 3 {
		before := medians(calls, alone)[0]
		all := admit(t, addrs)
		among := pipelineCall(t, all, all.Fleet.Devices()[count/2].ID, "gpio_read", `{"pin":2}`)
		medians(500, among)
		with := medians(calls, among)[0]
		inTurn := medians(calls, among, alone)
		turnGot, turnBase = append(turnGot, inTurn[0]), append(turnBase, inTurn[1])
		all.stop()
		medians(500, alone)
		got, base = append(got, with), append(base, (before+medians(calls, alone)[0])/2)
	}
	most(t, "the pipeline to one of 2,000 against that to a single one", got, base, 1.2)
	most(t, "the same, in turn, while both are there", turnGot, turnBase, 1.2)
}

// admit starts a gateway with many devices and checks the cost.
func admit(t *testing.T, addrs []string) *testGateway {
	t.Helper()
	count := len(addrs)
	memory, goroutines := residentSet(t), runtime.NumGoroutine()
	start := time.Now()
	g := startGateway(t, nil, func(c *config.Config) {
		for _, addr := range addrs {
			c.Devices.TCP = append(c.Devices.TCP, config.TCPDevice{Address: addr})
		}
	}, unmeasured) // they stay idle
	wait.For(t, "all are admitted", func() bool {
		online := 0
		for _, dev := range g.Fleet.Devices() {
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
	for _, dev := range g.Fleet.Devices() {
		_, m, _ := g.Fleet.Lookup(dev.ID)
		kinds[dev.Kind], manifests[m] = true, true
	}
	if len(kinds) != 1 || len(manifests) != 1 {
		t.Errorf("%d Kinds and %d manifests, want one", len(kinds), len(manifests))
	}
	each := (residentSet(t) - memory) / count
	t.Logf("memory of an idle admitted device: %d bytes of RSS, at most 40960", each)
	if each > 40<<10 {
		t.Errorf("%d bytes", each)
	}
	more := 0
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) { // some have something to end
		if more = runtime.NumGoroutine() - goroutines; more <= count+100 || time.Now().After(end) {
			break
		}
	}
	t.Logf("%d goroutines for %d devices, at most one each and 100", more, count)
	if more > count+100 {
		t.Errorf("%d goroutines", more)
	}
	return g
}

// residentSet returns the memory of this process after a garbage collection.
func residentSet(t *testing.T) int {
	t.Helper()
	memory, err := residentMemory()
	if err != nil {
		t.Fatal(err)
	}
	return memory
}
