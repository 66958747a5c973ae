//go:build linux

package uno

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

//go:embed firmware.c
var firmwareSource []byte

//go:embed runner.c
var runnerSource []byte

//go:embed testdata/arduino/lines.cpp
var linesSource []byte

//go:embed testdata/arduino/Arduino.h
var arduinoHeader []byte

// needs are the tools for building, with their Debian packages.
var needs = []struct{ file, debian string }{
	{"gcc", "gcc libc6-dev"},
	{"avr-gcc", "gcc-avr"},
	{"avr-g++", "gcc-avr"},
	{"/usr/lib/avr/include/avr/io.h", "avr-libc"},
	{"/usr/include/simavr/sim_avr.h", "libsimavr-dev"},
}

// missing returns the packages that are not installed.
func missing() []string {
	var packages []string
	for _, n := range needs {
		_, err := exec.LookPath(n.file)
		if filepath.IsAbs(n.file) {
			_, err = os.Stat(n.file)
		}
		if err != nil {
			packages = append(packages, n.debian)
		}
	}
	return packages
}

// build returns the paths of the runner and of the firmware for the options.
func build(t testing.TB, o Options) (runner, firmware string) {
	t.Helper()
	if packages := missing(); packages != nil {
		skip := t.Skipf
		if os.Getenv("CI") != "" {
			skip = t.Fatalf
		}
		skip("the emulated board needs Debian's %s", strings.Join(packages, " "))
	}
	runner, err := compile(files{"source.c": runnerSource}, "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-lsimavr")
	if err != nil {
		t.Fatal(err)
	}
	flags := append([]string{"-mmcu=atmega328p", "-Os", "-std=gnu11", "-Wall", "-Wextra", "-Werror"}, o.defines()...)
	if o.Lines != nil {
		lines, err := compile(files{"source.cpp": linesSource, "Arduino.h": arduinoHeader, "LineStream.h": o.Lines}, "avr-g++",
			"-mmcu=atmega328p", "-Os", "-std=gnu++11", "-fno-exceptions", "-fno-threadsafe-statics", "-Wall", "-Wextra", "-Werror", "-I.", "-c")
		if err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "-x", "none", lines)
	}
	firmware, err = compile(files{"source.c": firmwareSource}, "avr-gcc", flags...)
	if err != nil {
		t.Fatal(err)
	}
	return runner, firmware
}

func (o Options) defines() []string {
	var defines []string
	if o.Baud != 0 {
		defines = append(defines, fmt.Sprintf("-DBAUD=%d", o.Baud))
	}
	if o.Large {
		defines = append(defines, "-DLARGE")
	}
	if o.Fragments {
		defines = append(defines, "-DFRAGMENTS")
	}
	if o.Lines != nil {
		defines = append(defines, "-DLINES")
	}
	return defines
}

var (
	mu    sync.Mutex
	built = make(map[string]*os.File) // by the command that built it
)

// files are the files that a compiler gets, by name. One is the source.
type files map[string][]byte

// compile builds a program or an object once and returns its path. The file is open but
// deleted, so nothing is left when this process ends.
func compile(in files, compiler string, flags ...string) (string, error) {
	mu.Lock()
	defer mu.Unlock()
	command := compiler + " " + strings.Join(flags, " ")
	f := built[command]
	if f == nil {
		var err error
		if f, err = compileNew(in, compiler, flags); err != nil {
			return "", fmt.Errorf("%s: %w", command, err)
		}
		built[command] = f
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), nil
}

func compileNew(in files, compiler string, flags []string) (*os.File, error) {
	dir, err := os.MkdirTemp("", "uno")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source := ""
	for name, text := range in {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, err
		}
		if strings.HasPrefix(name, "source.") {
			source = name
		}
	}
	// Libraries must follow the source that needs them.
	cmd := exec.Command(compiler, append([]string{"-o", "program", source}, flags...)...)
	cmd.Dir = dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, output)
	}
	return os.Open(filepath.Join(dir, "program"))
}
