package packaging_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// root is a directory in which packages are installed and programs run with chroot.
type root string

// newRoot creates a root directory with the user root, the given programs of this machine
// and their libraries.
func newRoot(t *testing.T, programs ...string) root {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("chroot needs root")
	}
	r := root(t.TempDir())
	for _, program := range programs {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		copyFile(t, path, r.path("/usr/bin/"+program))
		for _, library := range regexp.MustCompile(`/\S+`).FindAllString(must(t, "", "ldd", path), -1) {
			copyFile(t, strings.TrimSuffix(library, ":"), r.path(library))
		}
	}
	r.write(t, "/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
	r.write(t, "/etc/group", "root:x:0:\n")
	r.write(t, "/dev/null", "") // a regular file is enough
	return r
}

func (r root) path(name string) string { return filepath.Join(string(r), name) }

func (r root) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(r.path(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.path(name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// id returns a number from the line of name in /etc/passwd or /etc/group.
func (r root) id(t *testing.T, file, name string, column int) uint32 {
	t.Helper()
	for line := range strings.Lines(read(t, r.path(file))) {
		if fields := strings.Split(strings.TrimSpace(line), ":"); fields[0] == name {
			id, err := strconv.ParseUint(fields[column], 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			return uint32(id)
		}
	}
	t.Fatalf("%s has no %s", file, name)
	return 0
}

// command returns a command that runs in the root directory as a user.
func (r root) command(user *syscall.Credential, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/bin"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: string(r), Credential: user}
	return cmd
}

// gateway starts a gateway, checks its health, lists its devices with another command,
// and stops it. It reports whether agents need a token.
func (r root) gateway(t *testing.T, user *syscall.Credential, env []string, args ...string) (needsToken bool) {
	t.Helper()
	cmd := r.command(user, env, args...)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(log).ReadString('\n')
	port := regexp.MustCompile(`:(\d+)/mcp,`).FindStringSubmatch(line)
	if err != nil || port == nil || !strings.Contains(line, "ferrule "+released(t)+" is up") {
		cmd.Process.Kill() // ends its output, which is read next
		rest, _ := io.ReadAll(log)
		t.Fatalf("%v: %s%s", err, line, rest)
	}
	go io.Copy(io.Discard, log)
	client := &http.Client{Timeout: 10 * time.Second}
	url := "http://127.0.0.1:" + port[1]
	answer, err := client.Get(url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	var health struct{ Status string }
	err = json.NewDecoder(answer.Body).Decode(&health)
	answer.Body.Close()
	if err != nil || health.Status != "ok" {
		t.Errorf("health: %+v, %v", health, err)
	}
	if answer, err = client.Get(url + "/mcp"); err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if out, err := r.command(user, env, args[0], "devices", "--data", "/var/lib/ferrule").CombinedOutput(); err != nil {
		t.Errorf("ferrule devices: %v\n%s", err, out)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("exited with %v", err)
	}
	return answer.StatusCode == http.StatusUnauthorized
}
