package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// vulncheck runs the step of the gate with another database, on one small package.
func vulncheck(t *testing.T, db string) (string, error) {
	t.Helper()
	cmd := exec.Command("bash", "../.ci/vulncheck", "./internal/lifecycle")
	cmd.Env = append(os.Environ(), "GOVULNDB="+db)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestVulncheckOffline checks that the gate says so when it could not look for known
// vulnerabilities.
func TestVulncheckOffline(t *testing.T) {
	for _, db := range []string{"http://127.0.0.1:1", "file:///nowhere"} {
		out, err := vulncheck(t, db)
		if err != nil || !strings.HasPrefix(out, "NOT CHECKED: known vulnerabilities. govulncheck did not run, because its database cannot be reached at "+db) || strings.Contains(out, "\nchecked:") {
			t.Errorf("%s: %v, %s", db, err, out)
		}
	}
}

// TestVulncheck checks that the gate fails if the code calls something with a known
// vulnerability, and passes if there is none.
func TestVulncheck(t *testing.T) {
	if testing.Short() {
		t.Skip("builds govulncheck")
	}
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const when = `"modified":"2026-01-01T00:00:00Z"`
	write("index/db.json", "{"+when+"}")
	write("index/vulns.json", "[]")
	write("index/modules.json", "[]")
	if out, err := vulncheck(t, "file://"+dir); err != nil || !strings.Contains(out, "checked: known vulnerabilities") || strings.Contains(out, "NOT CHECKED") {
		t.Errorf("without vulnerabilities: %v, %s", err, out)
	}
	write("index/vulns.json", `[{"id":"GO-2026-0001",`+when+`}]`)
	write("index/modules.json", `[{"path":"stdlib","vulns":[{"id":"GO-2026-0001",`+when+`}]}]`)
	write("ID/GO-2026-0001.json", `{"schema_version":"1.3.1","id":"GO-2026-0001",`+when+`,"published":"2026-01-01T00:00:00Z","summary":"made up","details":"made up",
		"affected":[{"package":{"name":"stdlib","ecosystem":"Go"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
		"ecosystem_specific":{"imports":[{"path":"context","symbols":["WithCancel","WithTimeout","WithCancelCause"]}]}}],"references":[],"database_specific":{"url":"https://example.org"}}`)
	if out, err := vulncheck(t, "file://"+dir); err == nil || !strings.Contains(out, "GO-2026-0001") {
		t.Errorf("with a vulnerability: %v, %s", err, out)
	}
}
