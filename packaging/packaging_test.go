// Package packaging_test checks the files of a release. `.ci/release check` runs it as
// root, with the tools that it installs and FERRULE_DIST set to the release. Without
// FERRULE_DIST, only the tests of the files in this folder run.
package packaging_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// platform is an operating system and architecture with a release.
type platform struct {
	os, arch    string // in archive names
	deb, rpm    string // architecture in the package names; empty without packages
	executable  string // file name of the program
	magic, word string // first bytes of the program, and their format
}

var platforms = []platform{
	{"linux", "amd64", "amd64", "x86_64", "ferrule", "\x7fELF\x02", "64-bit ELF"},
	{"linux", "arm64", "arm64", "aarch64", "ferrule", "\x7fELF\x02", "64-bit ELF"},
	{"linux", "armv7", "armhf", "armv7hl", "ferrule", "\x7fELF\x01", "32-bit ELF"},
	{"darwin", "arm64", "", "", "ferrule", "\xcf\xfa\xed\xfe", "64-bit Mach-O"},
	{"windows", "amd64", "", "", "ferrule.exe", "MZ", "PE"},
}

// dist returns the directory of the release, or skips the test.
func dist(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("FERRULE_DIST")
	if dir == "" {
		t.Skip("FERRULE_DIST is not set: `.ci/release check` sets it")
	}
	return dir
}

// one returns the only file of the release that matches pattern.
func one(t *testing.T, pattern string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dist(t), pattern))
	if err != nil || len(all) != 1 {
		t.Fatalf("%s: %q, %v", pattern, all, err)
	}
	return all[0]
}

func (p platform) archive(t *testing.T) string {
	if p.os == "windows" {
		return one(t, "ferrule_*_"+p.os+"_"+p.arch+".zip")
	}
	return one(t, "ferrule_*_"+p.os+"_"+p.arch+".tar.gz")
}

// released returns the version of the release.
func released(t *testing.T) string {
	t.Helper()
	name := filepath.Base(platforms[0].archive(t))
	return strings.TrimSuffix(strings.TrimPrefix(name, "ferrule_"), "_linux_amd64.tar.gz")
}

// entry is a file in an archive.
type entry struct {
	mode fs.FileMode
	at   time.Time
	data []byte
}

// unpack returns the files of an archive by name, without the top folder.
func unpack(t *testing.T, file string) map[string]entry {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]entry)
	add := func(name string, mode fs.FileMode, at time.Time, r io.Reader) {
		folder, rest, _ := strings.Cut(name, "/")
		if !strings.HasPrefix(filepath.Base(file), folder+".") || path.Clean(rest) != rest || strings.HasPrefix(rest, "..") {
			t.Errorf("%s contains an unexpected path %q", file, name)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[rest] = entry{mode, at, data}
	}
	if strings.HasSuffix(file, ".zip") {
		zr, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range zr.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			add(f.Name, f.Mode(), f.Modified, r)
			r.Close()
		}
		return all
	}
	gr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	tr := tar.NewReader(gr)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		add(h.Name, h.FileInfo().Mode(), h.ModTime, tr)
	}
}

// TestArchives checks that each archive has the program for its platform, with docs,
// completions and service files.
func TestArchives(t *testing.T) {
	dist(t)
	for _, p := range platforms {
		t.Run(p.os+" "+p.arch, func(t *testing.T) {
			files := unpack(t, p.archive(t))
			want := []string{p.executable, "README.md", "LICENSE", "THIRD-PARTY-LICENSES.txt", "ferrule.yaml"}
			switch p.os {
			case "linux":
				want = append(want, "man/ferrule.1", "completions/ferrule.bash", "service/ferrule.service", "service/60-ferrule.rules", "service/ferrule-board.service", "service/61-ferrule-board.rules")
			case "darwin":
				want = append(want, "man/ferrule.1", "completions/_ferrule")
			case "windows":
				want = append(want, "completions/ferrule.ps1")
			}
			for _, name := range want {
				if len(files[name].data) == 0 {
					t.Errorf("%s is missing", name)
				}
			}
			for name, e := range files {
				if want := map[bool]fs.FileMode{true: 0o755, false: 0o644}[name == p.executable]; e.mode != want {
					t.Errorf("%s has mode %v, want %v", name, e.mode, want)
				}
				if e.at.Unix() != files["LICENSE"].at.Unix() || e.at.Unix() > time.Now().Unix() {
					t.Errorf("%s has time %v", name, e.at)
				}
			}
			program := files[p.executable].data
			if !bytes.HasPrefix(program, []byte(p.magic)) {
				t.Errorf("the program starts with %q, want %s", program[:8], p.word)
			}
			if !bytes.Contains(program, []byte(released(t))) {
				t.Error("the program does not contain the version")
			}
		})
	}
}

// TestChecksums checks that SHA256SUMS lists every file with the right sum.
func TestChecksums(t *testing.T) {
	dir := dist(t)
	list, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^([0-9a-f]{64})  (\S+)$`).FindAllStringSubmatch(string(list), -1) {
		listed[m[2]] = m[1]
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "SHA256SUMS" {
			continue
		}
		if digest(t, filepath.Join(dir, e.Name())) != listed[e.Name()] {
			t.Errorf("wrong or missing checksum for %s", e.Name())
		}
		delete(listed, e.Name())
	}
	if len(listed) > 0 {
		t.Errorf("checksums of missing files: %v", listed)
	}
	if out, err := run(t, dir, "sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"); err != nil || out != "" {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
}

// run runs a command and returns its output.
func run(t *testing.T, dir, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must is like run, and fails the test on an error.
func must(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := run(t, dir, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// read returns the text of a file.
func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// digest returns the SHA-256 of a file in hex.
func digest(t *testing.T, path string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(read(t, path)))
	return hex.EncodeToString(sum[:])
}
