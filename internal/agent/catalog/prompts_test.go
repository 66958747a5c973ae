package catalog_test

import (
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestPrompts checks names of prompts, and that those of offline devices are not listed.
func TestPrompts(t *testing.T) {
	m := &ferrule.Manifest{Operations: []ferrule.Operation{ferrule.GetPrompt}}
	for _, name := range []string{"greet", "say hello", "say_hello", "é", strings.Repeat("long ", 20), strings.Repeat("long ", 19)} {
		m.Prompts = append(m.Prompts, ferrule.Prompt{Name: name})
	}
	c := some(40)
	c.Put(online("robot", m), m)
	seen := make(map[string]bool)
	for _, p := range c.All().Prompts("robot") {
		device, prompt, err := c.ResolvePrompt(p.Name)
		if !validName.MatchString(p.Name) || seen[p.Name] || device != "robot" || prompt != p.Prompt.Name || err != nil {
			t.Errorf("%q of %q is %q of %q: %v", p.Name, p.Prompt.Name, prompt, device, err)
		}
		seen[p.Name] = true
	}
	for _, p := range c.All().PromptsOf("robot") {
		if prompt := c.ResolvePromptOn("robot", p.Name); !validName.MatchString(p.Name) || seen[p.Name] || prompt != p.Prompt.Name {
			t.Errorf("%q of %q is %q", p.Name, p.Prompt.Name, prompt)
		}
		seen[p.Name] = true
	}
	if len(seen) != 2*len(m.Prompts) || !seen["robot__greet"] || !seen["greet"] || !seen["say_hello"] {
		t.Errorf("got %v", seen)
	}
	if _, _, err := c.ResolvePrompt("greet"); err == nil {
		t.Error("a name without a device means something")
	}
	offline := *online("robot", m)
	offline.State = ferrule.StateOffline
	c.Put(&offline, m)
	if n := len(c.All().Prompts("robot")); n > 0 {
		t.Errorf("%d are listed", n)
	}
	if device, prompt, err := c.ResolvePrompt("robot__greet"); device != "robot" || prompt != "greet" || err != nil {
		t.Errorf("got %s of %s, %v", prompt, device, err)
	}
}
