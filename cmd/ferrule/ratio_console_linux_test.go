//go:build bench

package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

const (
	// openConsoles is how many people look at a board at the same time.
	openConsoles = 200
	// consolesPerLogin is how many pages of one login may be open.
	consolesPerLogin = 32
	// fastPoll measures the voltage of a board four times a second.
	fastPoll = "match: {device: robot}\npolls:\n  volts: {tool: adc_read, args: {pin: 34}, every: 250ms}\n"
)

// TestRatioConsoles compares the calls of an agent while 200 consoles show the live curve of the
// same board with its calls while none is open, in turn, through the same gateway. It prints what
// the consoles take of the processor and of memory.
func TestRatioConsoles(t *testing.T) {
	overlays := t.TempDir()
	if err := os.WriteFile(filepath.Join(overlays, "robot.yaml"), []byte(fastPoll), 0o600); err != nil {
		t.Fatal(err)
	}
	p := upProcess(t, "weighed", simProcess(t, 1)[0], openLoopback+"overlays: "+overlays+"\n")
	people := logins(t, p, (openConsoles+consolesPerLogin-1)/consolesPerLogin)
	before := p.memory(t)
	w := openStreams(t, people, "/live/devices/robot/control")
	w.receive(t)
	used, received, began := p.cpu(t), w.messages.Load(), time.Now()
	for time.Since(began) < 3*time.Second {
		w.receive(t)
	}
	took := time.Since(began)
	t.Logf("%d consoles with a live curve: %.2f s of the processor per second, %d KB each, %.0f samples per second", openConsoles,
		(p.cpu(t)-used).Seconds()/took.Seconds(), (p.memory(t)-before)/openConsoles>>10, float64(w.messages.Load()-received)/took.Seconds())
	w.close()

	const args, calls = `{"pin":2}`, 500
	call := make(map[string]func())
	with, without := make(map[string][]time.Duration), make(map[string][]time.Duration)
	for _, version := range mcpVersions {
		call[version] = agentCall(t, p.url, version, "robot__gpio_read", args)
		medians(calls, call[version]) // to warm up
	}
	var cpuWithout, cpuWith, timeWithout, timeWith time.Duration
	for range rounds {
		used, began := p.cpu(t), time.Now()
		for _, version := range mcpVersions {
			without[version] = append(without[version], medians(calls, call[version])[0])
		}
		cpuWithout += p.cpu(t) - used
		timeWithout += time.Since(began)
		w := openStreams(t, people, "/live/devices/robot/control")
		w.receive(t)
		used, began = p.cpu(t), time.Now()
		for _, version := range mcpVersions {
			with[version] = append(with[version], medians(calls, call[version])[0])
		}
		cpuWith += p.cpu(t) - used
		timeWith += time.Since(began)
		w.receive(t)
		w.close()
	}
	t.Logf("while the agent calls: on average %v per call against %v, %.2f s of the processor per second against %.2f", timeWith/(rounds*calls*time.Duration(len(mcpVersions))), timeWithout/(rounds*calls*time.Duration(len(mcpVersions))), cpuWith.Seconds()/timeWith.Seconds(), cpuWithout.Seconds()/timeWithout.Seconds())
	for _, version := range mcpVersions {
		most(t, fmt.Sprintf("%s: a call of an agent with %d open consoles against none", version, openConsoles), with[version], without[version], 1.2)
	}
}

// cpu returns how much of the processor a process has used.
func (p process) cpu(t testing.TB) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	var user, system int
	fields := strings.Fields(rest)
	fmt.Sscan(fields[11], &user)
	fmt.Sscan(fields[12], &system)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// logins logs the owner in with some browsers.
func logins(t *testing.T, p process, count int) (all []*person) {
	t.Helper()
	at, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	for range count {
		out, err := exec.Command("ferrule", "login", "--data", p.data).Output()
		if err != nil {
			t.Fatal(err)
		}
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		who := &person{t, http.Client{Jar: jar, Transport: &http.Transport{}}, "http://" + at.Host}
		link := strings.TrimPrefix(strings.TrimSpace(loginLink.FindString(string(out))), who.at)
		_, page := who.open(link, nil)
		if code, page := who.open(link, url.Values{"csrf": {csrfIn(page)}}); code != http.StatusOK {
			t.Fatalf("%d %s", code, page)
		}
		all = append(all, who)
	}
	return all
}

// openPages are the live updates of open pages.
type openPages struct {
	close    func()
	messages atomic.Int64
	each     []atomic.Int64 // messages with samples of each page
	failed   atomic.Pointer[error]
}

// openStreams opens the live updates of a page as browsers do, until close is called.
func openStreams(t *testing.T, people []*person, path string) *openPages {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	w := &openPages{each: make([]atomic.Int64, openConsoles), close: sync.OnceFunc(func() { cancel(); wg.Wait() })}
	t.Cleanup(w.close)
	for i := range openConsoles {
		who := people[i/consolesPerLogin]
		wg.Go(func() {
			if err := w.read(ctx, &who.http, who.at+path, i); ctx.Err() == nil {
				err = cmp.Or(err, fmt.Errorf("%s has ended", path))
				w.failed.Store(&err)
			}
		})
	}
	return w
}

// read reads the live updates of one page.
func (w *openPages) read(ctx context.Context, client *http.Client, url string, i int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if lines.Text() == "event: samples" {
			w.each[i].Add(1)
			w.messages.Add(1)
		}
	}
	return lines.Err()
}

// receive waits until each page has received new samples.
func (w *openPages) receive(t *testing.T) {
	t.Helper()
	before := make([]int64, len(w.each))
	for i := range before {
		before[i] = w.each[i].Load()
	}
	wait.For(t, "each page receives samples", func() bool {
		if err := w.failed.Load(); err != nil {
			t.Fatal(*err)
		}
		for i := range before {
			if w.each[i].Load() == before[i] {
				return false
			}
		}
		return true
	})
}
