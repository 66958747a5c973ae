package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestSkillsNameTools checks that the skills of a gateway name only tools that it has, and
// that agents can use.
func TestSkillsNameTools(t *testing.T) {
	g := startGateway(t, map[string]string{"robot": startSim(t, simConfig()).Addrs()[0]})
	g.online("robot")
	session := connectAgent(t, modern, "/mcp", &mcp.StreamableClientTransport{Endpoint: g.url("/mcp")})
	_, manifest, ok := g.Catalog.Lookup(ferrule.GatewayID)
	if !ok {
		t.Fatal("the catalog lacks the gateway")
	}
	read, named := 0, make(map[string]bool)
	for r, err := range session.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(r.URI, "skill://") {
			continue
		}
		for _, file := range []string{r.URI, strings.Replace(r.URI, "SKILL.md", "references/tools.md", 1), strings.Replace(r.URI, "SKILL.md", "references/errors.md", 1)} {
			got, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: file})
			if err != nil {
				continue // not all skills have all files
			}
			read++
			for _, m := range regexp.MustCompile(`gateway__(\w+)`).FindAllStringSubmatch(got.Contents[0].Text, -1) {
				named[m[1]] = true
			}
		}
	}
	for name := range named {
		if tool := manifest.Tool(name); name != "call_tool" && (tool == nil || tool.UserOnly) { // the catalog has call_tool
			t.Errorf("gateway__%s does not exist", name)
		}
	}
	if read != 4 || len(named) < 10 || !named["stop_devices"] || !named["history"] {
		t.Errorf("%d files name %v", read, named)
	}
}

// TestConformanceSkills runs the scenarios of skills, which the suite does not score, at the
// address of all devices and at that of one. The suite skips what a server does not declare,
// so the test counts the checks that passed.
func TestConformanceSkills(t *testing.T) {
	dir := mcpTools(t)
	g := startGateway(t, map[string]string{"robot": startSim(t, simConfig()).Addrs()[0]})
	g.online("robot")
	for _, at := range []string{"/mcp", "/mcp/devices/robot"} {
		for scenario, want := range map[string]int{"sep-2640-skills-enumeration": 32, "sep-2640-skills-manifest": 6, "sep-2640-skills-directory": 7} {
			t.Run(scenario+" "+at, func(t *testing.T) {
				results := t.TempDir()
				out, err := node(dir, suite, "server", "--url", g.url(at), "--scenario", scenario, "--spec-version", modern, "--force", "-o", results).CombinedOutput()
				_, checks := countChecks(t, results)
				if err != nil || checks["SUCCESS"] != want || len(checks) != 1 {
					t.Errorf("%v; checks: %v, want %d that pass and no others\n%s", err, checks, want, out)
				}
			})
		}
	}
}
