package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// rulesRoutes adds the page about the policy.
func (c *Console) rulesRoutes() {
	c.page("GET /rules", c.rules)
	c.page("GET /rules/tools", c.ruleTools)
	c.page("POST /rules/test", c.testRules)
	c.page("POST /rules/reload", c.reloadRules)
}

// presetCard explains a preset.
type presetCard struct {
	Name, Title, Text string
	Chosen            bool
}

// rulesPage is what the page shows.
type rulesPage struct {
	api.RulesOutput
	CSRF    string
	IsOwner bool
	Presets []presetCard
	WhatIf  whatIf
	// File is the file that is shown, and Lines its text; File is nil if there is none.
	File  *api.RuleFile
	Lines []codeLine
	// Tested is the result of a test run, and Reloaded that of a reload; nil if it was not
	// asked for.
	Tested   *api.TestRulesOutput
	Reloaded *builtin.ReloadOutput
	Failed   *ferrule.Error // why a reload did nothing
}

// whatIf is a call that is not made.
type whatIf struct {
	api.WhatIfInput
	IsOwner bool
	// Known are names that can be chosen.
	Agents, Devices, Tools []string
	Verdict                *builtin.ExplainPolicyOutput // nil before it was asked for
	Failed                 *ferrule.Error
	Link                   string // to the rule that decides; empty if it is not in a file
}

func (c *Console) rules(v *visit) error {
	p, err := c.rulesOf(v)
	if err != nil {
		return err
	}
	if v.isHTMX() && v.r.Header.Get("HX-Target") == "what-if-out" {
		return c.fragment(v, http.StatusOK, "what-if-out", p.WhatIf)
	}
	return c.showRules(v, p)
}

func (c *Console) showRules(v *visit, p rulesPage) error {
	return c.render(v, http.StatusOK, page{Title: "Rules", Section: "rules"}, "rules", p)
}

// rulesOf returns the page for the parameters of a request.
func (c *Console) rulesOf(v *visit) (rulesPage, error) {
	out, err := c.api.Rules(v.ctx(), v.who, api.RulesInput{})
	if err != nil {
		return rulesPage{}, err
	}
	p := rulesPage{RulesOutput: out, CSRF: v.csrf, IsOwner: v.who.Scopes.Has(ferrule.ScopeAdmin), Presets: []presetCard{
		{"open", "Open", "Agents may use every tool of an adopted device.", false},
		{"careful", "Careful", "What endangers needs a person. The rest is allowed. This is the default.", false},
		{"read-only", "Read-only", "Agents may look at everything and change nothing.", false},
	}}
	for i := range p.Presets {
		p.Presets[i].Chosen = p.Presets[i].Name == out.Preset
	}
	p.WhatIf = c.askWhatIf(v, p.IsOwner)
	name, first, last := v.r.FormValue("file"), 0, 0
	if verdict := p.WhatIf.Verdict; verdict != nil && p.WhatIf.Link != "" {
		file, line, _ := strings.Cut(verdict.Rule, ":")
		first, _ = strconv.Atoi(line) // of a rule in a file
		name = file
	}
	i := slices.IndexFunc(out.Files, func(f api.RuleFile) bool { return f.Name == name })
	if i < 0 && len(out.Files) > 0 {
		i, first = 0, 0
	}
	if i >= 0 {
		p.File = &out.Files[i]
		for _, r := range p.File.Rules {
			if r.Line == first {
				last = r.End
			}
		}
		p.Lines = code(p.File.Text, first, last)
	}
	return p, nil
}

// maxNames limits the names that a form suggests.
const maxNames = 200

// askWhatIf asks the policy about the call in the URL, if there is one.
func (c *Console) askWhatIf(v *visit, isOwner bool) whatIf {
	w := whatIf{IsOwner: isOwner, WhatIfInput: api.WhatIfInput{Who: v.r.FormValue("who"), Device: v.r.FormValue("device"), Tool: v.r.FormValue("tool"), Arguments: v.r.FormValue("args")}}
	if !isOwner {
		return w
	}
	w.Agents, w.Devices = c.api.WhatIfNames(v.who, maxNames)
	if w.Device != "" {
		w.Tools = c.api.WhatIfTools(v.who, w.Device, maxNames)
	}
	if w.Who == "" && w.Device == "" && w.Tool == "" {
		return w
	}
	out, err := c.api.WhatIf(v.ctx(), v.who, w.WhatIfInput)
	if err != nil {
		w.Failed = ferrule.AsError(err)
		return w
	}
	w.Verdict = &out
	if file, _, ok := strings.Cut(out.Rule, ":"); ok {
		w.Link = "/rules?" + url.Values{"file": {file}, "who": {w.Who}, "device": {w.Device}, "tool": {w.Tool}, "args": {w.Arguments}}.Encode() + "#file"
	}
	return w
}

// ruleTools returns the names of a device's tools, for the form.
func (c *Console) ruleTools(v *visit) error {
	if err := api.Allowed(v.who, ferrule.ScopeAdmin); err != nil {
		return err
	}
	return c.fragment(v, http.StatusOK, "what-if-tools", c.api.WhatIfTools(v.who, v.r.FormValue("device"), maxNames))
}

func (c *Console) testRules(v *visit) error {
	out, err := c.api.TestRules(v.ctx(), v.who, api.RulesInput{})
	if err != nil {
		return err
	}
	p, err := c.rulesOf(v)
	if err != nil {
		return err
	}
	p.Tested = &out
	return c.showRules(v, p)
}

func (c *Console) reloadRules(v *visit) error {
	out, err := c.api.Reload(v.ctx(), v.who, builtin.ReloadInput{})
	if err != nil && ferrule.AsError(err).Code != ferrule.Invalid {
		return err
	}
	p, pageErr := c.rulesOf(v)
	if pageErr != nil {
		return pageErr
	}
	if p.Reloaded = &out; err != nil {
		p.Reloaded, p.Failed = nil, ferrule.AsError(err)
	}
	return c.showRules(v, p)
}
