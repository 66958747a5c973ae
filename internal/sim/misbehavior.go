package sim

import (
	"fmt"
	"strings"
)

// Misbehavior is the name of something that a simulated device can do wrong, and what it is.
type Misbehavior struct{ Name, Text string }

// BoardMisbehaviors returns those of boards, sorted by name.
func BoardMisbehaviors() (all []Misbehavior) {
	for _, b := range Behaviors() {
		all = append(all, Misbehavior{b.Name, b.Text})
	}
	return all
}

// ToyMisbehaviors returns those of voice toys, sorted by name.
func ToyMisbehaviors() (all []Misbehavior) {
	for _, b := range ToyBehaviors() {
		all = append(all, Misbehavior{b.Name, b.Text})
	}
	return all
}

// ListMisbehaviors returns them for a help text, one in each line.
func ListMisbehaviors(all []Misbehavior) string {
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "  %-16s %s\n", m.Name, m.Text)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
