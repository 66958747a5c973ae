package hass

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// cases are the situations that every reader of discovery messages must survive, and the
// tests of each: PACKAGE.TEST, where hass is this package.
const cases = `
 1 a corpus of real messages: each entity is a tool, a signal or a note: hass.TestCorpus discovery.TestCorpus entity.TestCorpus template.TestCorpus
 2 both forms of one device are one kind: hass.TestKind discovery.TestWhole
 3 each abbreviation, in each block: discovery.TestAbbreviations discovery.TestAbbreviationsOfBlocks
 4 migration both ways, never gone: hass.TestMigration discovery.TestMigrate
 5 texts as Python writes them: discovery.TestPython template.TestRender
 6 availability: modes, orders, silence: hass.TestAvailability hass.TestSharedAvailability
 7 availability that flaps ten times a second: hass.TestFlapping
 8 echo: none, late, other value, retained, before the broker confirms: hass.TestEcho
 9 the broker has no subscriber, forbids it, or is lost: hass.TestBroker hass.TestDenied mqttclient.TestPublish
10 expiry: a sleeping device does not act late: hass.TestSleeper hass.TestExpiry hass.TestLinkExpiry
11 the broker is killed before it confirms; sent once: mqttclient.TestOnce hass.TestFaults main.TestHomeFaults
12 a device is renamed during a call: hass.TestRename
13 removal of one entity, and of all: hass.TestRemoval
14 retained configs of a dead device: hass.TestDeadDevice
15 all configs of the corpus at connect: hass.TestFlood mqttclient.TestFlood mqttclient.TestFloodUnlimited hass.TestMissing
16 long, wide, deep, duplicate and broken payloads: discovery.TestHostile discovery.TestBaseBomb hass.TestManyConfigs hass.TestLargeMessage
17 template bombs, also in availability: template.TestBombs template.TestBombsFail hass.TestBombs
18 command topics of the system, the bridge or a config, empty or long: hass.TestHostileTopics hass.TestQuarantine hass.TestBridgeUpdate
19 command topics with wildcards: hass.TestHostileTopics mqttclient.TestInvalid
20 command topics of another device: hass.TestHostileTopics hass.TestOwns
21 state topics with wildcards, or of another device: hass.TestHostileStates
22 identifiers of an adopted lock from another publisher: hass.TestStolenIdentity
23 one unique ID twice, one topic with two contents: hass.TestDuplicates
24 two brokers with the same identifiers: hass.TestTwoBrokers
25 codes and passwords are not shown: hass.TestSecrets hass.TestSecret entity.TestCodes
`

// TestCases checks that the tests of all cases exist.
func TestCases(t *testing.T) {
	folders := map[string]string{
		"hass": ".", "discovery": "discovery", "entity": "entity", "template": "template",
		"mqttclient": "../../../mqttclient", "main": "../../../../cmd/ferrule",
	}
	known := make(map[string]bool)
	for name, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range parsed.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
					known[name+"."+fn.Name.Name] = true
				}
			}
		}
	}
	count := 0
	for lines := bufio.NewScanner(strings.NewReader(strings.TrimSpace(cases))); lines.Scan(); count++ {
		line := lines.Text()
		for _, test := range strings.Fields(line[strings.LastIndex(line, ":")+1:]) {
			if !known[test] {
				t.Errorf("%s does not exist; it is a test of case %.60q", test, line)
			}
		}
	}
	if count != 25 {
		t.Errorf("%d cases", count)
	}
}

// TestBombs uses templates that take memory or time without end in a general engine, as a
// device does: in availability, in states and in commands. The device stays, what needs the
// template does not.
func TestBombs(t *testing.T) {
	for _, bomb := range []string{
		`{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}`,
		`{{ 'x'|center(1000000000) }}`,
		`{% for i in range(1000000000) %}{% endfor %}`,
		`{% set a='xxxxxxxxxxxxxxxx' %}` + strings.Repeat(`{% set a=a~a %}`, 24) + `{{ a }}`,
		`{% include '/etc/passwd' %}`,
	} {
		all := newSources(DefaultPrefix)
		d := &device{rules: []rule{all.rule(entityOf(t, `"avty_t":"a","avty_tpl":"`+bomb+`"`))}}
		all.read("a", []byte("online"))
		if absent := new(Hub).absence(d); absent == "" {
			t.Errorf("%.40s: the device is available", bomb)
		}
		o := offer{Topics: map[string]string{"x/set": ""}, Configs: []config{
			{"switch", "x", "good", `{"cmd_t":"x/set","stat_t":"x","dev":{"ids":"x"}}`},
			{"number", "x", "bad", `{"cmd_t":"x/set","cmd_tpl":"` + bomb + `","stat_t":"x","val_tpl":"` + bomb + `","dev":{"ids":"x"}}`},
		}}
		bubble(t, o, nil, func(t *testing.T, r *rig) {
			r.link.hear("x", "ON")
			if _, err := r.call(t.Context(), "bad", `{"value":5}`); err == nil {
				t.Errorf("%.40s: it was sent", bomb)
			}
			if got := r.values(`{"names":["good"]}`)["good"]; string(got.Value) != "true" {
				t.Errorf("%.40s: the good entity is %+v", bomb, got)
			}
			r.published()
		})
	}
}
