package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// variables are those that have an effect on commands.
var variables = []string{
	"FERRULE_CONFIG", "FERRULE_DATA", "FERRULE_LISTEN", "SERIAL_PORT", "SERIAL_BAUD", "DEVICES", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
}

// secret is the names of variables that are not shown.
var secret = regexp.MustCompile(`TOKEN|SECRET|PASSWORD|KEY`)

// environment tells which variables have an effect.
func (d *doctor) environment(context.Context) []finding {
	set := make(map[string]string)
	for _, text := range d.environ {
		if name, value, _ := strings.Cut(text, "="); value != "" && (slices.Contains(variables, name) || strings.HasPrefix(name, "FERRULE_")) {
			set[name] = value
		}
	}
	var all []finding
	for name, value := range set {
		if secret.MatchString(name) {
			value = "(not shown)"
		}
		f := finding{Check: "variable", About: name, State: fine, Found: name + "=" + value}
		if why, next := idle(name, set); why != "" {
			f.State, f.Next = note, next
			f.Found += ": " + why
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b finding) int { return strings.Compare(a.About, b.About) })
	if len(all) == 0 {
		all = append(all, finding{Check: "variable", State: fine, Found: "no variable has an effect"})
	}
	if err := fromEnvironment(&config.Devices{}); err != nil {
		all = append(all, finding{Check: "devices", State: wrong, Found: err.Error(), Next: "no gateway starts with it; correct it, or unset it"})
	}
	return all
}

// idle tells why a variable has no effect, though somebody set it.
func idle(name string, set map[string]string) (why, next string) {
	switch {
	case !slices.Contains(variables, name):
		return "nothing reads it", fmt.Sprintf("there are %s", strings.Join(variables[:3], ", "))
	case name == "SERIAL_BAUD" && set["SERIAL_PORT"] == "":
		return "it has no effect without SERIAL_PORT", "set that as well, or use --serial PORT@BAUD"
	case name == "DEVICES" && set["SERIAL_PORT"] != "":
		return "it has no effect beside SERIAL_PORT", "unset one of them"
	}
	return "", ""
}
