package doctor

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// variables lists the environment variables that commands read.
var variables = []string{
	"FERRULE_CONFIG", "FERRULE_DATA", "FERRULE_LISTEN", "SERIAL_PORT", "SERIAL_BAUD", "DEVICES", "XDG_CONFIG_HOME", "XDG_DATA_HOME", CheckVariable,
}

// secret matches the names of variables whose values are not shown.
var secret = regexp.MustCompile(`TOKEN|SECRET|PASSWORD|KEY`)

// environment lists the variables that have an effect, and those that should have one.
func (d *Doctor) environment(context.Context) []Finding {
	set := make(map[string]string)
	for _, text := range d.environ {
		if name, value, _ := strings.Cut(text, "="); value != "" && (slices.Contains(variables, name) || strings.HasPrefix(name, "FERRULE_")) {
			set[name] = value
		}
	}
	var all []Finding
	for name, value := range set {
		if secret.MatchString(name) {
			value = "(not shown)"
		}
		f := Finding{Check: "variable", About: name, State: Fine, Found: name + "=" + value}
		if reason, next := ignored(name, set); reason != "" {
			f.State, f.Next = Note, next
			f.Found += ": " + reason
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Finding) int { return strings.Compare(a.About, b.About) })
	if len(all) == 0 {
		all = append(all, Finding{Check: "variable", State: Fine, Found: "no variables are set"})
	}
	if err := (&config.Devices{}).AddEnvironment(); err != nil {
		all = append(all, Finding{Check: "devices", State: Wrong, Found: err.Error(), Next: "correct or unset it; a gateway does not start with it"})
	}
	return all
}

// ignored returns why a variable that is set has no effect, or "".
func ignored(name string, set map[string]string) (reason, next string) {
	switch {
	case !slices.Contains(variables, name):
		return "unknown variable", fmt.Sprintf("known variables are %s", strings.Join(variables[:3], ", "))
	case name == "SERIAL_BAUD" && set["SERIAL_PORT"] == "":
		return "has no effect without SERIAL_PORT", "set SERIAL_PORT too, or use --serial PORT@BAUD"
	case name == "DEVICES" && set["SERIAL_PORT"] != "":
		return "has no effect because SERIAL_PORT is set", "unset one of them"
	}
	return "", ""
}
