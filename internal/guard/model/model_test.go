// Package model checks the model of approvals, leases, stop and the move of a device
// between nodes, in guard.pml. README.md explains it.
package model

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var allMutations = flag.Bool("all-mutations", false, "TestMutations checks every mutation, not one of each property")

// needSpin skips a test if the model checker is not installed; in the gate it must be.
func needSpin(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			skip := t.Skipf
			if os.Getenv("CI") != "" {
				skip = t.Fatalf
			}
			skip("checking the model needs Debian's spin, gcc and libc6-dev: %v", err)
		}
	}
}

// found is what the checker found in all states of the model.
type found struct {
	states     int
	violations map[string]int // by property
	steps      map[string]int // how often each transition was taken
}

// checkModel searches all states of the model with the given mutations.
func checkModel(t *testing.T, defines ...string) found {
	t.Helper()
	out := search(t, []string{"-DSAFETY", "-DNOREDUCE", "-O0"}, nil, defines...)
	f := found{violations: make(map[string]int), steps: make(map[string]int)}
	for _, m := range regexp.MustCompile(`(?m)^(property|taken) (\d+) (\w+)`).FindAllStringSubmatch(out, -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		if m[1] == "taken" {
			f.steps[m[3]] += n
		} else {
			f.violations[m[3]] += n
		}
	}
	m := regexp.MustCompile(`(\d+) states, stored`).FindStringSubmatch(out)
	if m == nil || len(f.violations) == 0 {
		t.Fatalf("the checker printed no result:\n%s", out)
	}
	f.states, _ = strconv.Atoi(m[1])
	return f
}

// search compiles the model and runs the checker. It fails if the checker finds an error
// of its own, such as an endless execution, or did not see every state.
func search(t *testing.T, flags, args []string, defines ...string) string {
	t.Helper()
	dir := t.TempDir()
	var spin []string
	for _, d := range defines {
		spin = append(spin, "-D"+d)
	}
	path, err := filepath.Abs("guard.pml")
	if err != nil {
		t.Fatal(err)
	}
	output(t, dir, "spin", append(spin, "-a", path)...)
	output(t, dir, "gcc", append(flags, "-w", "-DMEMLIM=2000", "-o", "pan", "pan.c")...)
	out := output(t, dir, "./pan", append(args, "-m1000", "-w20")...)
	if !strings.Contains(out, "errors: 0") || strings.Contains(out, "Search not completed") || strings.Contains(out, "max search depth too small") {
		t.Fatalf("the search is not complete:\n%s", out)
	}
	return out
}

// output runs a command that must succeed, and returns what it prints.
func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out[:min(len(out), 10000)])
	}
	return string(out)
}

// TestModel checks that no execution of the model violates a property, that every
// transition is taken in some execution, and that no execution goes on forever, without
// which "every lease ends" would say little.
func TestModel(t *testing.T) {
	needSpin(t)
	t.Parallel()
	t.Run("ends", func(t *testing.T) {
		t.Parallel()
		search(t, []string{"-DNP", "-DNOREDUCE", "-O1"}, []string{"-l"})
	})
	f := checkModel(t, "COUNT")
	t.Logf("%d states", f.states)
	for property, n := range f.violations {
		if n > 0 {
			t.Errorf("%s is violated in %d states", property, n)
		}
	}
	for _, name := range transitions(t) {
		if f.steps[name] == 0 {
			t.Errorf("the transition %s is never taken", name)
		}
	}
}

// TestMutations checks that the table in README.md has every mutation of the model, and
// that one of each property, or each one, violates the property that its guard protects, and
// no other.
func TestMutations(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	needSpin(t)
	t.Parallel()
	model, table := read(t, "guard.pml"), mutations(t)
	var named []string
	for _, m := range regexp.MustCompile(`(?m)^#ifn?def (NO_\w+)`).FindAllStringSubmatch(model, -1) {
		named = append(named, m[1])
	}
	slices.Sort(named)
	named = slices.Compact(named)
	if listed := slices.Sorted(maps.Keys(table)); !slices.Equal(named, listed) {
		t.Errorf("README.md lists the mutations %v; the model has %v", listed, named)
	}
	// The guards of a property are used in these scopes; the others are as without the
	// mutation.
	scopes := map[string]int{"run_once": 1, "approved_runs": 1 | 16, "approval_once": 1 | 16, "stopped": 2 | 4 | 16, "stop_spreads": 2 | 4 | 16, "lease_ends": 8 | 16}
	checked := make(map[string]bool)
	for _, name := range named {
		if checked[table[name]] && !*allMutations {
			continue
		}
		checked[table[name]] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var violated []string
			for property, n := range checkModel(t, name, fmt.Sprintf("SCOPES=%d", scopes[table[name]])).violations {
				if n > 0 {
					violated = append(violated, property)
				}
			}
			if want := []string{table[name]}; !slices.Equal(violated, want) {
				t.Errorf("without this guard %v is violated, want %v", violated, want)
			}
		})
	}
}

// mutations returns the table of README.md: the property by mutation.
func mutations(t *testing.T) map[string]string {
	t.Helper()
	table := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `(NO_\\w+)` \\|[^|]*\\| `(\\w+)` \\|$").FindAllStringSubmatch(read(t, "README.md"), -1) {
		table[m[1]] = m[2]
	}
	return table
}

// transitions returns the names of the transitions of the model. Other inlines do not
// count a step.
func transitions(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^inline (\w+)\(.*\) \{\n\tstep\("(\w+) `).FindAllStringSubmatch(read(t, "guard.pml"), -1) {
		if m[1] != m[2] {
			t.Errorf("the transition %s counts as %s", m[1], m[2])
		}
		names = append(names, m[1])
	}
	return names
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")))
}
