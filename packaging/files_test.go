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

// TestBoardFiles checks that the unit of `ferrule board`, its udev rules and its groups name the
// same groups, and that the unit asks for a token.
func TestBoardFiles(t *testing.T) {
	unit, rules := read(t, "ferrule-board.service"), read(t, "61-ferrule-board.rules")
	groups := regexp.MustCompile(`(?m)^SupplementaryGroups=(.*)$`).FindStringSubmatch(unit)
	var made, ruled []string
	for _, m := range regexp.MustCompile(`(?m)^g (\w+) `).FindAllStringSubmatch(read(t, "ferrule-board.sysusers"), -1) {
		made = append(made, m[1])
	}
	for _, m := range regexp.MustCompile(`(?:GROUP="|chgrp (?:-R )?)(\w+)`).FindAllStringSubmatch(rules, -1) {
		ruled = append(ruled, m[1])
	}
	slices.Sort(ruled)
	if ruled = slices.Compact(ruled); groups == nil || !slices.Equal(strings.Fields(groups[1]), made) || !slices.Equal(ruled, made) {
		t.Errorf("groups of the unit are %q, of sysusers %q, of the rules %q", groups, made, ruled)
	}
	token := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/ferrule board --token-file (\S+)$`).FindStringSubmatch(unit)
	if token == nil || !strings.Contains(read(t, "../docs/how-to/raspberry-pi.md"), "file: "+token[1]+"\n") {
		t.Errorf("the page and the unit do not name the same token file: %q", token)
	}
}
