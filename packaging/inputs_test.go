package packaging_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestUser: the script that makes the user before the files come makes the one of
// the file.
func TestUser(t *testing.T) {
	file := strings.Split(strings.TrimSpace(read(t, "ferrule.sysusers")), "\n")
	file = slices.DeleteFunc(file, func(line string) bool { return strings.HasPrefix(line, "#") })
	if script := read(t, "scripts/preinstall"); !strings.Contains(script, "<<'END'\n"+strings.Join(file, "\n")+"\nEND\n") {
		t.Errorf("scripts/preinstall does not make what ferrule.sysusers says:\n%s", strings.Join(file, "\n"))
	}
}

// TestVendors: the rules are about the boards that docs/reference/serial-ports.md tells of, which
// are those that auto opens.
func TestVendors(t *testing.T) {
	var told []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([0-9A-F]{4})` \\|").FindAllStringSubmatch(read(t, "../docs/reference/serial-ports.md"), -1) {
		told = append(told, strings.ToLower(row[1]))
	}
	rules := read(t, "60-ferrule.rules")
	for _, key := range []string{"ATTR", "ATTRS"} {
		var ruled []string
		for _, m := range regexp.MustCompile(`(?m)^`+key+`\{idVendor\}=="([0-9a-f]{4})"`).FindAllStringSubmatch(rules, -1) {
			ruled = append(ruled, m[1])
		}
		if !slices.Equal(told, ruled) {
			t.Errorf("docs/reference/serial-ports.md tells of %q, and by %s the rules are about %q", told, key, ruled)
		}
	}
}
