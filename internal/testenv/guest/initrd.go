//go:build linux

package guest

import (
	"bufio"
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed init.sh
var initScript []byte

// writeInitrd writes the guest's file system.
func writeInitrd(to string, c Config) error {
	const busybox = "/bin/busybox"
	if err := static(busybox); err != nil {
		return fmt.Errorf("the guest needs Debian's busybox-static: %w", err)
	}
	files := map[string]string{}
	maps.Copy(files, c.Files)
	parameters := make(map[int]string)
	files["bin/busybox"] = busybox
	for i, m := range c.Modules {
		if !filepath.IsAbs(m) {
			var err error
			if m, err = one(c.Kernel, "lib/modules/*/"+m); err != nil {
				return err
			}
		}
		files[fmt.Sprintf("modules/%02d.ko", i)] = m
		parameters[i] = c.Parameters[strings.TrimSuffix(filepath.Base(m), ".ko")]
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	a := newArchive(f)
	a.add("init", initScript)
	for i, text := range parameters {
		a.add(fmt.Sprintf("modules/%02d.parameters", i), []byte(text))
	}
	for name, from := range files {
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		a.add(name, content)
	}
	return a.close()
}

// static returns an error if a program needs shared libraries.
func static(program string) error {
	f, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer f.Close()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return errors.New(program + " needs shared libraries")
	}
	return nil
}

// one returns the only file of a kernel that matches a pattern.
func one(kernel, pattern string) (string, error) {
	found, err := filepath.Glob(filepath.Join(kernel, pattern))
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("the guest needs one kernel of Debian's linux-image-amd64, unpacked in %s: %s matches %q", kernel, pattern, found)
	}
	return found[0], nil
}

// archive writes an initrd: a cpio archive in the format "newc".
type archive struct {
	out     *bufio.Writer
	entries int
	folders map[string]bool
}

const (
	modeFolder  = 0o040755
	modeProgram = 0o100755
)

func newArchive(w io.Writer) *archive {
	return &archive{out: bufio.NewWriter(w), folders: map[string]bool{".": true}}
}

// add writes an executable file, after the folders that contain it.
func (a *archive) add(name string, content []byte) {
	a.addFolder(path.Dir(name))
	a.entry(name, modeProgram, content)
}

func (a *archive) addFolder(name string) {
	if a.folders[name] {
		return
	}
	a.folders[name] = true
	a.addFolder(path.Dir(name))
	a.entry(name, modeFolder, nil)
}

// entry writes a header of 13 numbers, the name and the content. The header with the
// name, and the content, are padded to 4 bytes.
func (a *archive) entry(name string, mode int, content []byte) {
	a.entries++
	header := [13]int{0: a.entries, 1: mode, 4: 1, 6: len(content), 11: len(name) + 1}
	fmt.Fprint(a.out, "070701")
	for _, n := range header {
		fmt.Fprintf(a.out, "%08x", n)
	}
	fmt.Fprint(a.out, name, "\x00")
	a.pad(6 + 13*8 + len(name) + 1)
	a.out.Write(content)
	a.pad(len(content))
}

func (a *archive) pad(written int) {
	for ; written%4 != 0; written++ {
		a.out.WriteByte(0)
	}
}

// close ends the archive and returns the first write error.
func (a *archive) close() error {
	a.entry("TRAILER!!!", 0, nil)
	return a.out.Flush()
}
