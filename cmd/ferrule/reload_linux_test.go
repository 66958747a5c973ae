package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// reloadable is a `ferrule up` process with a configuration file.
type reloadable struct {
	commandLine
	cmd  *exec.Cmd
	dir  string
	url  string // of MCP
	gone chan error

	mu  sync.Mutex
	log bytes.Buffer
}

// newReloadable returns one that is not started yet.
func newReloadable(t *testing.T, settings string) *reloadable {
	t.Helper()
	r := &reloadable{commandLine: newCommandLine(t), gone: make(chan error, 1)}
	r.dir = filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "ferrule")
	r.write("ferrule.yaml", settings)
	return r
}

// start runs `ferrule up` as a process of its own.
func (r *reloadable) start(flags ...string) *reloadable {
	t := r.t
	t.Helper()
	r.cmd = exec.Command("ferrule", append([]string{"up"}, flags...)...)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	up := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			r.mu.Lock()
			fmt.Fprintln(&r.log, lines.Text())
			r.mu.Unlock()
			if url := regexp.MustCompile(`https?://\S+/mcp`).FindString(lines.Text()); url != "" {
				select {
				case up <- url:
				default:
				}
			}
		}
		r.gone <- r.cmd.Wait()
		close(r.gone)
	}()
	t.Cleanup(func() {
		r.cmd.Process.Kill()
		for range r.gone {
		}
	})
	select {
	case r.url = <-up:
	case err := <-r.gone:
		t.Fatalf("it ended: %v\n%s", err, r.logged())
	case <-time.After(wait.Ample):
		t.Fatalf("it does not start: %s", r.logged())
	}
	return r
}

func (r *reloadable) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// write writes a file next to the configuration.
func (r *reloadable) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// hangup sends SIGHUP and waits until the log says something new.
func (r *reloadable) hangup(says string) {
	r.t.Helper()
	before := strings.Count(r.logged(), says)
	if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		r.t.Fatal(err)
	}
	wait.For(r.t, "the log says "+says, func() bool {
		select {
		case err := <-r.gone:
			r.t.Fatalf("SIGHUP ended the gateway: %v\n%s", err, r.logged())
		default:
		}
		return strings.Count(r.logged(), says) > before
	})
}

// TestReload: a rotated token works without a restart, the old one stops working at once
// and on open streams, a mistake leaves everything as it is, and no board restarts.
func TestReload(t *testing.T) {
	if testing.Short() {
		t.Skip("this runs an emulated board")
	}
	board := uno.Start(t, uno.Options{BootTime: 200 * time.Millisecond, Link: filepath.Join(t.TempDir(), "board")})
	const old, fresh = "old-old-old-old-old", "new-new-new-new-new"
	settings := fmt.Sprintf(`
devices:
  serial: [{port: %s, name: uno}]
auth:
  tokens:
    - {name: claude, file: claude.token}
    - {name: codex, token: codex-codex-codex-codex}
`, board.Path())
	r := newReloadable(t, settings)
	r.write("claude.token", old)
	r.start()
	before := r.until("uno", ferrule.StateOnline)
	resets := board.Resets()

	type stream struct {
		version string
		ended   chan error
	}
	var streams []stream
	var agents []*plainAgent
	for _, version := range mcpVersions {
		agent, err := newPlainAgent(t.Context(), withToken(old), r.url, version)
		if err != nil {
			t.Fatal(err)
		}
		agents = append(agents, agent)
		resp, err := agent.listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		s := stream{version, make(chan error, 1)}
		go func() {
			_, err := io.Copy(io.Discard, resp.Body)
			s.ended <- err
		}()
		streams = append(streams, s)
	}
	other, err := newPlainAgent(t.Context(), withToken("codex-codex-codex-codex"), r.url, legacy)
	if err != nil {
		t.Fatal(err)
	}
	othersStream, err := other.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer othersStream.Body.Close()
	othersEnd := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, othersStream.Body)
		othersEnd <- err
	}()

	// A token is rotated.
	r.write("claude.token", fresh+"\n")
	r.hangup("the token of claude was replaced")
	for i, agent := range agents {
		if _, err := agent.call(t.Context(), "uno__gpio_read", `{"pin":13}`); err != errStatus(http.StatusUnauthorized) {
			t.Errorf("%s: the old token: %v", agent.mcpVersion, err)
		}
		select {
		case <-streams[i].ended:
		case <-time.After(wait.Ample):
			t.Errorf("%s: the stream of the old token is still open", streams[i].version)
		}
		agent.client = withToken(fresh) // its session continues
		if _, err := agent.call(t.Context(), "uno__gpio_write", `{"pin":13,"value":true}`); err != nil {
			t.Errorf("%s: the new token: %v", agent.mcpVersion, err)
		}
	}
	if _, err := other.call(t.Context(), "uno__gpio_read", `{"pin":13}`); err != nil {
		t.Errorf("a token that did not change: %v", err)
	}
	select {
	case err := <-othersEnd:
		t.Errorf("the stream of a token that did not change ended: %v", err)
	default:
	}

	// A mistake leaves the old configuration running.
	r.write("ferrule.yaml", settings+"calls: {dedline: 5s}\n")
	r.hangup("the configuration was not reloaded; the gateway keeps running with the previous one")
	code, text := r.run("reload")
	if code != exitNotRun || !strings.Contains(text, "nothing was reloaded, and the gateway keeps running as before") ||
		!strings.Contains(text, `unknown key "dedline"`) || strings.Contains(text, fresh) {
		t.Errorf("got %d and %s", code, text)
	}
	if _, err := agents[0].call(t.Context(), "uno__gpio_read", `{"pin":13}`); err != nil {
		t.Errorf("after a mistake: %v", err)
	}

	// What needs a restart is listed, and is listed again.
	r.write("ferrule.yaml", settings+"calls: {deadline: 5s}\n")
	for range 2 {
		r.want(0, "Needs a restart:\n  calls.deadline: 30s -> 5s\n", "reload")
	}
	// A file without tokens, perhaps cut short, does not open the gateway.
	r.write("ferrule.yaml", settings[:strings.Index(settings, "auth:")])
	r.want(0, "auth.tokens: the token of codex was removed\n", "reload")
	if _, err := newPlainAgent(t.Context(), withToken(""), r.url, legacy); err != errStatus(http.StatusUnauthorized) {
		t.Errorf("without tokens: %v", err)
	}
	// Another name for an open board waits: it would have to be opened again.
	r.write("ferrule.yaml", strings.Replace(settings, "name: uno", "name: heater, baud: 115200", 1))
	r.want(0, "Needs a restart:\n  devices.serial: the name and trust of "+board.Path()+", unless you plug it in again\n", "reload")

	if now := r.device("uno"); board.Resets() != resets || now.State != string(ferrule.StateOnline) || !now.Since.Equal(before.Since) {
		t.Errorf("%d resets, before %d: %+v", board.Resets(), resets, now)
	}
	board.WaitPin("B5", true) // it never lost the state of its output
}

// TestReloadDevices: devices appear and go with the configuration, overlays take effect,
// and what did not change stays connected.
func TestReloadDevices(t *testing.T) {
	fleet := startSim(t, sim.Config{Count: 2})
	devices := func(names ...string) string {
		text := openLoopback + "devices:\n  tcp:\n"
		for i, name := range names {
			text += fmt.Sprintf("    - {address: '%s', name: %s}\n", fleet.Addrs()[i], name)
		}
		return text
	}
	r := newReloadable(t, devices("robot")).start()
	robot := r.until("robot", ferrule.StateOnline)
	agent, err := newPlainAgent(t.Context(), http.DefaultClient, r.url, legacy)
	if err != nil {
		t.Fatal(err)
	}

	r.write("ferrule.yaml", devices("robot", "arm"))
	r.want(0, "Changed:\n  devices.tcp: arm at "+fleet.Addrs()[1]+" was added\n", "reload")
	r.until("arm", ferrule.StateOnline)
	r.want(0, "Nothing has changed.\n", "reload")

	r.write("overlays/safe.yaml", "match: {device: arm}\ntools: {gpio_write: {effect: endangers}}\n")
	r.want(0, "overlays: they changed for arm\n", "reload")
	r.want(0, "gpio_write  endangers", "tools", "arm")
	r.want(0, "gpio_write  changes", "tools", "robot")
	r.write("overlays/safe.yaml", "match: {device: arm}\ntools: {gpio_wirte: {effect: endangers}}\n")
	r.want(0, "overlays: they changed for arm\n", "reload")
	r.want(0, `an overlay names the tool "gpio_wirte", which the device does not have`, "tools", "arm")
	r.write("overlays/safe.yaml", "match: {device: arm}\ntools: {gpio_write: {effect: harmless}}\n")
	r.want(exitNotRun, "effect: must be reads, changes or endangers", "reload")
	if err := os.Remove(filepath.Join(r.dir, "overlays/safe.yaml")); err != nil {
		t.Fatal(err)
	}
	r.want(0, "overlays: they changed for arm\n", "reload")
	if _, text := r.run("tools", "arm"); strings.Contains(text, "gpio_wirte") || !strings.Contains(text, "gpio_write  changes") {
		t.Errorf("got %s", text)
	}

	r.write("ferrule.yaml", devices("robot", "crane"))
	r.want(0, "devices.tcp: crane at "+fleet.Addrs()[1]+" changed", "reload")
	r.until("crane", ferrule.StateOnline)
	r.write("ferrule.yaml", devices("robot"))
	r.want(0, "devices.tcp: crane at "+fleet.Addrs()[1]+" was removed, and is listed as offline until you forget it", "reload")
	r.until("crane", ferrule.StateOffline)

	if now := r.device("robot"); now.State != string(ferrule.StateOnline) || !now.Since.Equal(robot.Since) {
		t.Errorf("robot was disconnected: %+v, before %+v", now, robot)
	}
	if _, err := agent.call(t.Context(), "robot__gpio_read", `{"pin":2}`); err != nil {
		t.Errorf("the session from before: %v", err)
	}
}

// TestReloadDeviceToken: a device whose token file changed is connected again with the
// new token. The file is relative to the configuration file.
func TestReloadDeviceToken(t *testing.T) {
	var accepted atomic.Value
	accepted.Store("Bearer one")
	lamp := lampThing("lamp").Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != accepted.Load() {
			http.Error(w, "another token", http.StatusUnauthorized)
			return
		}
		lamp.ServeHTTP(w, r)
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	r := newReloadable(t, "devices: {http: [{url: '"+server.URL+"/mcp', name: lamp, file: lamp.token}]}\n")
	r.write("lamp.token", "one\n")
	r.start()
	r.until("lamp", ferrule.StateOnline)
	r.want(0, `{"on":true}`, "call", "lamp", "switch", "on=true")
	accepted.Store("Bearer two")
	r.write("lamp.token", "two\n")
	r.want(0, "devices.http: another token for "+server.URL+"/mcp\n", "reload")
	wait.For(t, "the device works with its new token", func() bool {
		code, _ := r.run("call", "lamp", "switch", "on=false")
		return code == 0
	})
}

// TestReloadOpenLoopback: a gateway that is open to this machine is closed at once, for
// open streams too. It is opened by a restart only.
func TestReloadOpenLoopback(t *testing.T) {
	r := newReloadable(t, openLoopback).start()
	agent, err := newPlainAgent(t.Context(), http.DefaultClient, r.url, legacy)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := agent.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, stream.Body)
		close(ended)
	}()
	if _, err := newPlainAgent(t.Context(), withToken("nonsense-of-sixteen"), r.url, legacy); err != errStatus(http.StatusUnauthorized) {
		t.Errorf("with a wrong token: %v", err)
	}
	r.write("ferrule.yaml", "agents: {open_loopback: true, hosts: [ferrule.example.com]}\n")
	r.want(exitNotRun, "agents.open_loopback: other machines reach the gateway under the names in agents.hosts", "reload")
	r.write("ferrule.yaml", "agents: {hosts: [ferrule.example.com]}\n")
	r.want(0, "agents.open_loopback: false\n", "reload")
	select {
	case <-ended:
	case <-time.After(wait.Ample):
		t.Error("the stream of a caller without a token is still open")
	}
	for range 2 {
		if _, err := newPlainAgent(t.Context(), http.DefaultClient, r.url, legacy); err != errStatus(http.StatusUnauthorized) {
			t.Errorf("without a token: %v", err)
		}
		r.write("ferrule.yaml", openLoopback)
		r.want(0, "Needs a restart:\n  agents.open_loopback: false -> true\n", "reload")
	}
}

// TestTerminalClosed: a gateway on a terminal ends when the terminal is closed, although
// the kernel says so with SIGHUP.
func TestTerminalClosed(t *testing.T) {
	newCommandLine(t)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	// script gives the gateway a terminal of its own, which is closed with it.
	cmd := exec.CommandContext(ctx, "script", "-qfc", "stty rows 24 columns 80; echo process $$; exec ferrule up", "/dev/null")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "is up:") {
		var pid int
		if n, _ := fmt.Sscanf(lines.Text(), "process %d", &pid); n == 1 {
			defer func() {
				if t.Failed() {
					syscall.Kill(pid, syscall.SIGKILL)
				}
			}()
		}
	}
	cmd.Process.Kill() // the terminal is gone
	cmd.Wait()
	wait.For(t, "the gateway has ended", func() bool {
		lock, err := datadir.Lock(os.Getenv("FERRULE_DATA"))
		if err == nil {
			lock.Close()
		}
		return err == nil
	})
}
