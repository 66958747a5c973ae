package model

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Nodes and values of the model.
const (
	nodeA, nodeB = 0, 1

	asked, allowed = 1, 2 // approvals
)

// state is the part of the model's state that the code has as well.
type state struct {
	up        [2]int
	approvals [4]int // by node and content
	stops     [4]int // of each node: known, lifted
	leases    [2]int
	link, on  int
}

// stopped reports whether a node is stopped.
func (s state) stopped(node int) bool { return s.stops[2*node]&^s.stops[2*node+1] != 0 }

// transition is a step of the model, and the state after it.
type transition struct {
	name  string
	arg   int
	after state
}

// trace is one execution of the model.
type trace struct {
	seed  int
	same  bool // both calls ask for the same
	begin state
	steps []transition
}

// seeds returns the seeds of the traces that a test replays. They are the same in each run,
// unless FERRULE_TEST_TRACES says how many random ones to take.
func seeds(t *testing.T) []int {
	t.Helper()
	n, seed := 60, func(i int) int { return 1 + i }
	if text := os.Getenv("FERRULE_TEST_TRACES"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		seed = func(int) int { return 1 + rand.IntN(1<<30) }
	}
	all := make([]int, n)
	for i := range all {
		all[i] = seed(i)
	}
	return all
}

// simulate returns the execution of a scope of the model that a seed leads to.
func simulate(t *testing.T, scope, seed int) trace {
	t.Helper()
	path, err := filepath.Abs("guard.pml")
	if err != nil {
		t.Fatal(err)
	}
	tr := trace{seed: seed}
	out := output(t, t.TempDir(), "spin", "-DSIMULATE", fmt.Sprintf("-DSCOPES=%d", scope), "-n"+strconv.Itoa(tr.seed), path)
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		var numbers []int
		for _, w := range words {
			if n, err := strconv.Atoi(w); err == nil {
				numbers = append(numbers, n)
			}
		}
		switch {
		case len(words) == 3 && words[0] == "begin":
			tr.same = numbers[0] == 1
		case len(words) > 0 && words[0] == "state":
			s := state{up: [2]int(numbers), approvals: [4]int(numbers[2:]), stops: [4]int(numbers[6:]), leases: [2]int(numbers[10:]), link: numbers[12], on: numbers[13]}
			if len(tr.steps) == 0 {
				tr.begin = s
			} else {
				tr.steps[len(tr.steps)-1].after = s
			}
		case len(words) == 2 && strings.Contains(words[0], "_"):
			tr.steps = append(tr.steps, transition{name: words[0], arg: numbers[0]})
		}
	}
	if len(tr.steps) == 0 {
		t.Fatalf("no steps:\n%s", out)
	}
	return tr
}

// machine makes the steps of the model with the real code.
type machine interface {
	// do makes a step. It returns an error if the code cannot.
	do(step transition) error
	// compare returns an error if the code is not in a state of the model.
	compare(want state) error
}

// replay makes the steps of a trace. It returns an error if the code differs from the
// model.
func (tr trace) replay(m machine) error {
	for i, s := range tr.steps {
		err := m.do(s)
		if err == nil {
			err = m.compare(s.after)
		}
		if err != nil {
			var made []string
			for _, s := range tr.steps[:i+1] {
				made = append(made, fmt.Sprint(s.name, " ", s.arg))
			}
			return fmt.Errorf("seed %d: after %s: %w", tr.seed, strings.Join(made, ", "), err)
		}
	}
	return nil
}

// made counts the steps of traces, to see that a test is not empty.
type made map[string]int

func (m made) add(tr trace) {
	for _, s := range tr.steps {
		m[s.name]++
	}
}

func (m made) want(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if m[name] == 0 {
			t.Errorf("no trace has the step %s", name)
		}
	}
}
