package homeassistant

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/describe"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxListed is how many names an error lists.
const maxListed = 20

// target returns the entity that a call is for. It is called with mu held.
func (s *Session) target(tool describe.Tool, args map[string]any) (entity, error) {
	said, _ := args[describe.EntityArg].(string)
	var all []entity
	for _, e := range s.device {
		if s.fits(tool, e) {
			all = append(all, e)
		}
	}
	if said == "" && len(all) == 1 && !s.group {
		return all[0], nil
	}
	if said == "" {
		return entity{}, ferrule.Errorf(ferrule.Invalid, "the argument %s is missing: it says which one is meant", describe.EntityArg).WithHint("%s", s.listed(all))
	}
	if i := slices.IndexFunc(all, func(e entity) bool { return s.name(e) == said }); i >= 0 {
		return all[i], nil
	}
	// Another spelling is only a hint: rules were asked about the argument as it is.
	if near := s.near(all, said); len(near) > 0 {
		all = near
	}
	return entity{}, ferrule.Errorf(ferrule.Invalid, "no entity is called %q", ferrule.Clean(said, ferrule.MaxWord)).WithHint("%s", s.listed(all))
}

// near returns the entities that a caller may have meant.
func (s *Session) near(all []entity, said string) (near []entity) {
	said = strings.ToLower(said)
	for _, e := range all {
		if strings.Contains(strings.ToLower(e.name), said) || strings.Contains(e.id, said) || strings.EqualFold(e.key, said) {
			near = append(near, e)
		}
	}
	return near
}

// fits reports whether a tool acts on an entity.
func (s *Session) fits(tool describe.Tool, e entity) bool { return tool.Entities[s.name(e)] == e.id }

// listed lists entities for a hint.
func (s *Session) listed(all []entity) string {
	var names []string
	for _, e := range all {
		names = append(names, s.name(e))
	}
	return "use one of: " + list(names)
}

// list returns the first of some texts.
func list(names []string) string {
	slices.Sort(names)
	if more := len(names) - maxListed; more > 0 {
		return strings.Join(names[:maxListed], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// choose checks arguments against the lists of an entity. It corrects nothing: rules were
// asked about the arguments as they are.
func choose(choices map[string]string, data map[string]any, now home.State) error {
	for argument, attribute := range choices {
		said, ok := data[argument].(string)
		var options []string
		if !ok || json.Unmarshal(now.Attributes[attribute], &options) != nil || len(options) == 0 || slices.Contains(options, said) {
			continue
		}
		return ferrule.Errorf(ferrule.Invalid, "%s must be one that the entity offers, got %q%s", argument, ferrule.Clean(said, ferrule.MaxWord), ferrule.DidYouMean(said, options)).
			WithHint("use one of: %s", ferrule.Clean(list(options), 1024))
	}
	return nil
}

// minSecret is the length of a secret that can be told from other text.
const minSecret = 3

// secretsOf returns the secrets in the arguments of a call.
func secretsOf(tool describe.Tool, args map[string]any) (secrets []string) {
	for _, name := range tool.Secrets {
		if text := fmt.Sprint(args[name]); args[name] != nil && len(text) >= minSecret {
			secrets = append(secrets, text)
		}
	}
	return secrets
}

// hiddenText stands for a secret in a text.
const hiddenText = "…"

// mask removes secrets from a text.
func mask(text string, secrets []string) string {
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, hiddenText)
	}
	return text
}
