package packaging_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestUser checks that scripts/preinstall creates the user of ferrule.sysusers.
func TestUser(t *testing.T) {
	file := strings.Split(strings.TrimSpace(read(t, "ferrule.sysusers")), "\n")
	file = slices.DeleteFunc(file, func(line string) bool { return strings.HasPrefix(line, "#") })
	if script := read(t, "scripts/preinstall"); !strings.Contains(script, "<<'END'\n"+strings.Join(file, "\n")+"\nEND\n") {
		t.Errorf("scripts/preinstall does not contain ferrule.sysusers:\n%s", strings.Join(file, "\n"))
	}
}

// TestUSBVendors checks that the udev rules cover the vendors that docs/reference/serial-ports.md lists.
// Another test compares that list with the boards that `auto` opens.
func TestUSBVendors(t *testing.T) {
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([0-9A-F]{4})` \\|").FindAllStringSubmatch(read(t, "../docs/reference/serial-ports.md"), -1) {
		listed = append(listed, strings.ToLower(row[1]))
	}
	rules := read(t, "60-ferrule.rules")
	for _, key := range []string{"ATTR", "ATTRS"} {
		var inRules []string
		for _, m := range regexp.MustCompile(`(?m)^`+key+`\{idVendor\}=="([0-9a-f]{4})"`).FindAllStringSubmatch(rules, -1) {
			inRules = append(inRules, m[1])
		}
		if !slices.Equal(listed, inRules) {
			t.Errorf("docs/reference/serial-ports.md lists %q, the rules for %s list %q", listed, key, inRules)
		}
	}
}
