package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// The users of TestService.
const (
	serviceUser  = 2001
	serviceGroup = 2000
	memberUser   = 2002 // a member of the group
	otherUser    = 2003
)

// serviceMachine is a machine on which the packaged service runs, with other users.
type serviceMachine struct {
	t   *testing.T
	dir string
}

// command returns a ferrule command of a user, with a home directory of its own.
func (m serviceMachine) command(uid uint32, args ...string) *exec.Cmd {
	m.t.Helper()
	home := filepath.Join(m.dir, fmt.Sprint(uid))
	if err := os.Mkdir(home, 0o700); err == nil {
		err = os.Chown(home, int(uid), int(uid))
		if err != nil {
			m.t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(m.t.Context(), "/proc/self/exe", args...)
	cmd.Args[0] = "ferrule"
	cmd.Dir = "/"
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}
	user := &syscall.Credential{Uid: uid, Gid: uid}
	switch uid {
	case serviceUser:
		user.Gid = serviceGroup
	case memberUser:
		user.Groups = []uint32{serviceGroup}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// run runs a command of a user.
func (m serviceMachine) run(uid uint32, args ...string) (code int, text string) {
	m.t.Helper()
	out, err := m.command(uid, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	} else if err != nil {
		code = exit.ExitCode()
	}
	return code, string(out)
}

// want runs a command of a user and checks its exit code and a part of its output. The
// doctor is run again if the gateway or a check took too long on a busy machine.
func (m serviceMachine) want(uid uint32, code int, words string, args ...string) {
	m.t.Helper()
	got, text := m.run(uid, args...)
	for range 3 {
		if !strings.Contains(text, "took too long") && !strings.Contains(text, "no answer within") {
			break
		}
		got, text = m.run(uid, args...)
	}
	if got != code || !strings.Contains(text, words) {
		m.t.Errorf("user %d, ferrule %s: want %d and %q, got %d and\n%s", uid, strings.Join(args, " "), code, words, got, text)
	}
}

// TestService checks that the packaged service and the users of the machine meet: members
// of its group use it without a flag, others are told why they cannot, and agent programs
// are pointed at it.
func TestService(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	if os.Getuid() != 0 {
		t.Skip("only root can run commands as other users")
	}
	if !inNamespace(t, 0) {
		return
	}
	usb := usbBus{t}
	usb.mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	usb.mount("tmpfs", "/run", "tmpfs", 0, "mode=755")
	m := serviceMachine{t, "/run/users"}
	runtime, data := filepath.Dir(control.ServiceSocket), filepath.Join(m.dir, "data")
	usb.must(os.Mkdir(m.dir, 0o755))
	m.want(memberUser, exitNoGateway, "no gateway is running", "devices")
	for dir, mode := range map[string]os.FileMode{runtime: 0o750, data: 0o700} { // as systemd does
		usb.must(os.Mkdir(dir, mode))
		usb.must(os.Chmod(dir, mode))
		usb.must(os.Chown(dir, serviceUser, serviceGroup))
	}
	addr, err := freeAddr()
	usb.must(err)
	m.start(serviceUser, "sim", "mcpu", "--tcp", addr)
	up := []string{"up", "--data", data, "--group-socket", control.ServiceSocket, "--listen", "127.0.0.1:0", "--tcp", "robot=" + addr, "--tcp", "away=127.0.0.1:1"}
	service := m.start(serviceUser, up...)
	wait.For(t, "the board is online", func() bool {
		_, text := m.run(memberUser, "devices", "--json")
		return strings.Contains(text, `"id":"robot","state":"online"`)
	})

	// A member uses it; others may not, and both can tell that from a device that is offline.
	m.want(memberUser, 0, "robot", "devices")
	m.want(memberUser, 0, "", "call", "robot", "gpio_write", "pin=2", "value=true")
	m.want(memberUser, exitNotReached, "away", "call", "away", "gpio_write")
	m.want(memberUser, exitNotAllowed, "belongs to another user", "devices", "--data", data)
	m.want(memberUser, exitNoGateway, "no gateway is running", "devices", "--data", filepath.Join(m.dir, "2002", "lab"))
	m.want(otherUser, exitNotAllowed, "usermod -aG ferrule", "devices")
	m.want(otherUser, exitNotAllowed, "usermod -aG ferrule", "call", "robot", "gpio_write", "pin=2", "value=true")
	m.want(memberUser, exitNotRun, "sudo -u ferrule ferrule audit", "audit")

	// Agent programs of a member are pointed at the service.
	m.want(memberUser, 0, `"--service"`, "setup", "zed", "--print")
	m.want(otherUser, exitNotAllowed, "usermod -aG ferrule", "setup", "zed")
	m.want(memberUser, 0, `"--serial"`, "setup", "zed", "--print", "--", "--serial", "auto")
	m.want(memberUser, exitOther, "  fine   the service of this machine is running. ", "doctor", "--all")
	m.want(otherUser, exitOther, "  wrong  the service of this machine cannot be reached: you may not use this gateway", "doctor")

	// `ferrule mcp` joins the service, and no second gateway opens its ports.
	// Nor does one while the service restarts: the session waits for it.
	one, two := m.session("mcp"), m.session("mcp", "--service")
	one.write(2)
	two.write(2)
	usb.must(service.Process.Signal(syscall.SIGTERM))
	usb.must(service.Wait())
	service = m.start(serviceUser, up...)
	one.write(3)
	two.write(3)
	if _, err := os.Stat(filepath.Join(m.dir, "2002/.local/share/ferrule/journal.log")); err == nil {
		t.Error("a second gateway was started")
	}
	one.end()
	two.end()
	m.want(serviceUser, 0, `"role":"agent","name":"uid 2002/local/test","auth":"stdio","user":"uid 2002"`, "audit", "--all", "--json", "--data", data)
	m.want(serviceUser, 0, `"role":"person","name":"uid 2002"`, "audit", "--all", "--json", "--data", data)

	usb.must(service.Process.Signal(syscall.SIGTERM))
	usb.must(service.Wait())
	m.want(memberUser, exitNoGateway, "no gateway is running", "devices")
}

// start starts a command that runs until the test ends.
func (m serviceMachine) start(uid uint32, args ...string) *exec.Cmd {
	m.t.Helper()
	cmd := m.command(uid, args...)
	cmd.Stdout, cmd.Stderr = m.t.Output(), m.t.Output()
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	return cmd
}

// agentSession is a session of an agent program with `ferrule mcp`.
type agentSession struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

// session starts `ferrule mcp` as a member, and a session with it.
func (m serviceMachine) session(args ...string) *agentSession {
	m.t.Helper()
	cmd := m.command(memberUser, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	cmd.Stderr = m.t.Output()
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	s := &agentSession{m.t, cmd, in, bufio.NewScanner(out)}
	s.ask(1, `"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s
}

// ask sends a request and returns the answer.
func (s *agentSession) ask(id int, request string) string {
	s.t.Helper()
	fmt.Fprintf(s.in, "{\"jsonrpc\":\"2.0\",\"id\":%d,%s}\n", id, request)
	for s.lines.Scan() {
		var answer struct{ ID int }
		json.Unmarshal(s.lines.Bytes(), &answer)
		if answer.ID == id {
			return s.lines.Text()
		}
	}
	s.t.Fatal("ferrule mcp ended")
	return ""
}

// write switches an output of the board.
func (s *agentSession) write(id int) {
	s.t.Helper()
	text := s.ask(id, `"method":"tools/call","params":{"name":"robot__gpio_write","arguments":{"pin":2,"value":true}}`)
	if !strings.Contains(text, `"result"`) || strings.Contains(text, `"isError":true`) {
		s.t.Errorf("%q: got %s", s.cmd.Args, text)
	}
}

// end ends the session.
func (s *agentSession) end() {
	s.in.Close()
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("%q: %v", s.cmd.Args, err)
	}
}
