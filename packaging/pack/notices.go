package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// notices writes the licences of Go and of every module that is linked into one
// of the binaries. They ask for it.
func notices(to io.Writer, binaries []string) error {
	versions := make(map[string]string)
	for _, binary := range binaries {
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			return err
		}
		for _, m := range modules(info) {
			versions[m.Path] = m.Version
		}
	}
	root, err := goSays("env", "GOROOT")
	if err != nil {
		return err
	}
	fmt.Fprintln(to, "Ferrule is made with the works of others. These are their licences.")
	if err := notice(to, "Go", root); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(versions)) {
		dir, err := goSays("list", "-m", "-f", "{{.Dir}}", path)
		if err != nil {
			return err
		}
		if err := notice(to, path+" "+versions[path], dir); err != nil {
			return err
		}
	}
	return nil
}

var noticeName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)`)

// notice writes what stands about the licence in a folder.
func notice(to io.Writer, of, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", of, err)
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !noticeName.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(to, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("=", 72), of, e.Name(), strings.TrimSpace(string(text)))
	}
	if !found {
		return fmt.Errorf("%s has no licence in %s", of, dir)
	}
	return nil
}

// goSays is what the go command prints.
func goSays(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}
