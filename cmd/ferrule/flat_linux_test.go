//go:build bench

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var flatTime = flag.Duration("flat", 4*time.Minute, "how long TestFlatMemory runs")

// TestFlatMemory runs a gateway with a hundred boards that are called all the time, and ten
// that misbehave in different ways and come and go. Its memory does not grow: the least in the
// last quarter is about the least in the second. The write buffers of NATS do not count. They
// fill for hours and are bounded; see writeBuffers.
func TestFlatMemory(t *testing.T) {
	args := []string{"up", "--listen", "127.0.0.1:0", "--data", t.TempDir()}
	var names []string
	add := func(name, address string) {
		names = append(names, name)
		args = append(args, "--tcp", name+"="+address)
	}
	for i, address := range simProcess(t, 100) {
		add(fmt.Sprint("good-", i), address)
	}
	var modes sync.WaitGroup
	defer modes.Wait()
	ended := make(chan struct{})
	defer close(ended)
	for _, mode := range []string{"changing", "hostile", "shrinking", "glued", "half-open", "huge-answer", "long-list", "bad-tools", "reboot", "short-list"} {
		address := net.JoinHostPort("127.0.0.1", fmt.Sprint(natscluster.Port(t)))
		add("bad-"+mode, address)
		modes.Go(func() { restless(t, ended, address, mode) })
	}
	up := exec.Command("ferrule", args...)
	up.Stderr = io.Discard
	startProcess(t, up)
	socket, err := control.SocketPath(args[4])
	if err != nil {
		t.Fatal(err)
	}
	client := control.NewClient(socket)
	defer client.Close()
	call := func() error {
		c := ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "test"}, Device: names[rand.IntN(len(names))], Tool: "gpio_read", Args: json.RawMessage(`{"pin":2}`), Timeout: ferrule.Duration(10 * time.Second)}
		if rand.IntN(4) == 0 {
			c.Tool, c.Args = "gpio_write", json.RawMessage(`{"pin":2,"value":true}`)
		}
		_, err := client.Handle(t.Context(), &c)
		if err != nil && strings.HasPrefix(c.Device, "good-") {
			return fmt.Errorf("%s of %s: %w", c.Tool, c.Device, err)
		}
		return nil
	}
	wait.For(t, "a hundred boards answer", func() bool {
		return !slices.ContainsFunc(names[:100], func(name string) bool {
			_, err := client.Handle(t.Context(), &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "test"}, Device: name, Tool: "gpio_read", Args: json.RawMessage(`{"pin":2}`)})
			return err != nil
		})
	})
	calls, buffers, least := 0, 0, [4]int{math.MaxInt, math.MaxInt, math.MaxInt, math.MaxInt}
	for begun, said := time.Now(), time.Now(); ; {
		if err := call(); err != nil {
			t.Fatal(err)
		}
		calls++
		quarter := int(4 * time.Since(begun) / *flatTime)
		if quarter == len(least) {
			break
		}
		buffers = writeBuffers(t, args[4])
		least[quarter] = min(least[quarter], memoryOf(t, up.Process.Pid, "RssAnon")-buffers)
		if time.Since(said) > *flatTime/8 {
			said = time.Now()
			t.Logf("after %v: %d calls, least memory in this quarter %d KB without the write buffers, now %d KB", time.Since(begun).Round(time.Second), calls, least[quarter]>>10, buffers>>10)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("least private memory without write buffers in each quarter of %v: %d, %d, %d and %d KB; the last is at most the second and a tenth", *flatTime, least[0]>>10, least[1]>>10, least[2]>>10, least[3]>>10)
	if least[3] > least[1]+least[1]/10 {
		t.Error("it grows")
	}
}

// restless runs a board that misbehaves for six of seven seconds, until ended.
func restless(t *testing.T, ended <-chan struct{}, address, mode string) {
	for {
		cmd := exec.Command("ferrule", "sim", "mcpu", "--tcp", address, "--misbehave", mode)
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return
		}
		over := false
		select {
		case <-ended:
			over = true
		case <-time.After(6 * time.Second):
		}
		cmd.Process.Kill()
		cmd.Wait()
		if over {
			return
		}
		time.Sleep(time.Second)
	}
}

// writeBuffers returns how many bytes of memory NATS holds to write its streams. For each
// stream that is written all the time it keeps the current file in memory, in a buffer of one of
// four sizes. A file is at most 8 MB long, and then the next one begins.
func writeBuffers(t *testing.T, data string) (total int) {
	t.Helper()
	streams, err := filepath.Glob(filepath.Join(data, "cluster", "jetstream", "*", "streams", "*", "msgs"))
	if err != nil || len(streams) == 0 {
		t.Fatalf("%d streams: %v", len(streams), err)
	}
	for _, dir := range streams {
		files, err := filepath.Glob(filepath.Join(dir, "*.blk"))
		if err != nil {
			t.Fatal(err)
		}
		var current os.FileInfo
		for _, file := range files {
			if info, err := os.Stat(file); err == nil && (current == nil || info.ModTime().After(current.ModTime())) {
				current = info
			}
		}
		if current == nil || time.Since(current.ModTime()) > 10*time.Second { // then NATS drops the buffer
			continue
		}
		sizes := []int{256 << 10, 1 << 20, 4 << 20, 8 << 20}
		at, _ := slices.BinarySearch(sizes, int(current.Size()))
		total += sizes[min(at, len(sizes)-1)]
	}
	return total
}
