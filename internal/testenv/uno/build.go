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

// Examples returns the folder of the examples for firmware authors, docs/firmware.
func Examples() string {
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
	}
	return filepath.Join(dir, "docs/firmware")
}

type need struct{ file, debian string }

// needs are the tools for building, with their Debian packages.
var needs = []need{
	{"gcc", "gcc libc6-dev"},
	{"avr-gcc", "gcc-avr"},
	{"/usr/lib/avr/include/avr/io.h", "avr-libc"},
	{"/usr/include/simavr/sim_avr.h", "libsimavr-dev"},
}

// sketchNeeds are the tools for building sketches.
var sketchNeeds = []need{
	{"make", "make"},
	{"avr-g++", "gcc-avr"},
	{"/usr/share/arduino/hardware/arduino/avr/cores/arduino/Arduino.h", "arduino-core-avr"},
}

// missing returns the packages that are not installed.
func missing(needs []need) []string {
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

// require skips the test if packages are missing, except in CI.
func require(t testing.TB, needs []need) {
	t.Helper()
	packages := missing(needs)
	if packages == nil {
		return
	}
	skip := t.Skipf
	if os.Getenv("CI") != "" {
		skip = t.Fatalf
	}
	skip("the emulated board needs Debian's %s", strings.Join(packages, " "))
}

// build returns the paths of the runner and of the firmware for the options.
func build(t testing.TB, o Options) (runner, firmware string) {
	t.Helper()
	require(t, needs)
	runner, err := compile("source.c", runnerSource, "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-lsimavr")
	if err != nil {
		t.Fatal(err)
	}
	if o.Sketch != "" {
		return runner, Sketch(t, o.Sketch, o.Flags)
	}
	flags := append([]string{"-mmcu=atmega328p", "-Os", "-std=gnu11", "-Wall", "-Wextra", "-Werror"}, o.defines()...)
	firmware, err = compile("source.c", firmwareSource, "avr-gcc", flags...)
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
	if o.Kiln > 0 {
		defines = append(defines, fmt.Sprintf("-DKILN_MS=%d", max(o.Kiln.Milliseconds(), 1)))
	}
	if o.Fragments {
		defines = append(defines, "-DFRAGMENTS")
	}
	return defines
}

var (
	mu    sync.Mutex
	built = make(map[string]*os.File) // by the command that built it
)

// once runs a build and returns the path of the file that it opened, or that an earlier build
// with this key opened. The file is deleted, so nothing is left when this process ends.
func once(key string, build func(dir string) (name string, err error)) (string, error) {
	mu.Lock()
	defer mu.Unlock()
	f := built[key]
	if f == nil {
		dir, err := os.MkdirTemp("", "uno")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(dir)
		name, err := build(dir)
		if err != nil {
			return "", fmt.Errorf("%s: %w", key, err)
		}
		if f, err = os.Open(filepath.Join(dir, name)); err != nil {
			return "", err
		}
		built[key] = f
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), nil
}

// compile builds a program from one file.
func compile(name string, source []byte, compiler string, flags ...string) (string, error) {
	return once(compiler+" "+strings.Join(flags, " "), func(dir string) (string, error) {
		if err := os.WriteFile(filepath.Join(dir, name), source, 0o600); err != nil {
			return "", err
		}
		// Libraries must follow the source that needs them.
		return "program", command(dir, compiler, append([]string{"-o", "program", name}, flags...)...)
	})
}

// Sketch builds an Arduino sketch and returns the path of its firmware. Without a slash, the
// folder is one of the examples. The core is built only once.
func Sketch(t testing.TB, folder, flags string) string {
	t.Helper()
	require(t, sketchNeeds)
	core, err := once("core", func(dir string) (string, error) {
		return "core.a", command(Examples(), "make", "-s", "-j2", "OUT="+dir, dir+"/core.a")
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(folder, "/") {
		folder = filepath.Join(Examples(), folder)
	}
	if folder, err = filepath.Abs(folder); err != nil {
		t.Fatal(err)
	}
	firmware, err := once("sketch "+folder+" "+flags, func(dir string) (string, error) {
		if err := os.Symlink(core, dir+"/core.a"); err != nil {
			return "", err
		}
		name := filepath.Base(folder) + ".elf"
		return name, command(Examples(), "make", "-s", "-o", dir+"/core.a", "OUT="+dir, "DIR="+filepath.Dir(folder), "FLAGS="+flags, dir+"/"+name)
	})
	if err != nil {
		t.Fatal(err)
	}
	return firmware
}

func command(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	return nil
}
