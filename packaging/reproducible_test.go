package packaging_test

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestReproducible builds the release again from a copy of the tree without git, with a
// strict umask. It must produce the same bytes.
func TestReproducible(t *testing.T) {
	dir := dist(t)
	tree := copyTree(t)
	out := t.TempDir()
	cmd := exec.Command("sh", "-c", `umask 077 && exec bash .ci/release snapshot "$0"`, out)
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), "VERSION="+released(t), "SOURCE_DATE_EPOCH="+epoch(t))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	first, second := read(t, filepath.Join(dir, "SHA256SUMS")), read(t, filepath.Join(out, "SHA256SUMS"))
	if first != second {
		t.Errorf("first build:\n%s\nsecond build:\n%s", first, second)
	}
}

// TestFromSource builds the program as docs/how-to/install.md describes, with an empty build
// cache. It must be identical to the released program.
func TestFromSource(t *testing.T) {
	dist(t)
	if doc := read(t, "../docs/how-to/install.md"); !strings.Contains(doc, `CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.stamped=$VERSION" -o ferrule ./cmd/ferrule`) {
		t.Error("docs/how-to/install.md has another build command")
	}
	out := filepath.Join(t.TempDir(), "ferrule")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.stamped="+released(t), "-o", out, "./cmd/ferrule")
	cmd.Dir = copyTree(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=", "GOCACHE="+cmp.Or(os.Getenv("FERRULE_COLD"), t.TempDir()))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !bytes.Equal([]byte(read(t, out)), unpack(t, platforms[0].archive(t))["ferrule"].data) {
		t.Error("the program differs from the released one")
	}
}

// copyTree copies all files of the tree that git does not ignore.
func copyTree(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	for name := range strings.SplitSeq(must(t, "..", "git", "ls-files", "-coz", "--exclude-standard"), "\x00") {
		from := filepath.Join("..", name)
		info, err := os.Stat(from)
		if name == "" || err != nil || info.IsDir() {
			continue
		}
		copyFile(t, from, filepath.Join(to, name))
	}
	return to
}

// copyFile copies a file with its permissions.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, []byte(read(t, from)), info.Mode().Perm()); err != nil {
		t.Fatal(err)
	}
}

// epoch returns the modification time of all files of the release, in Unix seconds.
func epoch(t *testing.T) string {
	t.Helper()
	return strconv.FormatInt(unpack(t, platforms[0].archive(t))["LICENSE"].at.Unix(), 10)
}
