package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNATSTenants checks that the example is the output of the script. Tests of the
// example then hold for every generated file.
func TestNATSTenants(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	if got := must(t, "nats", sh, "tenants", "acme", "globex"); got != read(t, "nats/accounts.conf") {
		t.Error("nats/accounts.conf is not the output of `sh tenants acme globex`")
	}
	for _, args := range [][]string{{}, {"--accounts"}, {"acme", "acme-operator"}, {"a.b"}, {"*"}, {">"}, {"acme globex"}, {""}} {
		if out, err := run(t, "nats", sh, append([]string{"tenants"}, args...)...); err == nil {
			t.Errorf("%q: no error, output\n%s", args, out)
		}
	}
}

// TestNATSVariables checks that the comment of cluster.conf explains all its variables.
func TestNATSVariables(t *testing.T) {
	text := read(t, "nats/cluster.conf")
	head, _, _ := strings.Cut(text, "\n\n")
	for _, name := range regexp.MustCompile(`(?m)^ *[a-z_]+: \$(\w+)$`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(head, "#   "+name[1]+" ") {
			t.Errorf("%s is not explained", name[1])
		}
	}
}

// TestNATSUnit checks the unit with systemd-analyze and logs its exposure level.
func TestNATSUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip(err)
	}
	// nats-server may not be installed on this machine.
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	here := filepath.Join(t.TempDir(), "nats-server.service")
	text := strings.Replace(read(t, "nats/nats-server.service"), "ExecStart=/usr/local/bin/nats-server", "ExecStart="+program, 1)
	if err := os.WriteFile(here, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := must(t, "", "systemd-analyze", "verify", "--man=no", here); out != "" {
		t.Errorf("systemd-analyze printed\n%s", out)
	}
	t.Log(lastLine(must(t, "", "systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20", here)))
}
