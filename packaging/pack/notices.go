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

// notices writes the licenses of Go and of all modules in the binaries. Most licenses
// require that their text is distributed with the program.
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
	root, err := goCommand("env", "GOROOT")
	if err != nil {
		return err
	}
	fmt.Fprintln(to, "Ferrule contains the following third-party software.")
	if err := notice(to, "Go", root); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(versions)) {
		dir, err := goCommand("list", "-m", "-f", "{{.Dir}}", path)
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

// notice writes the license files in dir. There must be at least one.
func notice(to io.Writer, module, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", module, err)
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
		fmt.Fprintf(to, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("=", 72), module, e.Name(), strings.TrimSpace(string(text)))
	}
	if !found {
		return fmt.Errorf("%s: no license file in %s", module, dir)
	}
	return nil
}

// goCommand returns the output of the go command.
func goCommand(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}
