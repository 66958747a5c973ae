package gateway

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/ferrulehq/ferrule/internal/guard/hook"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// buildHooks builds the hooks that see calls.
func (g *Gateway) buildHooks() error {
	all, err := g.parts.Config.HookConfigs()
	if err != nil {
		return err
	}
	g.Hooks = hook.New(all, g.parts.Log)
	return nil
}

// replaceHooks applies other hooks.
func (g *Gateway) replaceHooks(hooks []hook.Config, done *control.Reloaded) {
	if g.Hooks.Replace(hooks) {
		done.Applied = append(done.Applied, fmt.Sprintf("hooks: now %d", len(hooks)))
	}
}

// comparePlugins reports what is different about plugins.
func comparePlugins(from, to []config.Plugin, done *control.Reloaded) {
	find := func(all []config.Plugin, name string) *config.Plugin {
		i := slices.IndexFunc(all, func(p config.Plugin) bool { return p.Name == name })
		if i < 0 {
			return nil
		}
		return &all[i]
	}
	for i := range to {
		switch was := find(from, to[i].Name); {
		case was == nil:
			done.Applied = append(done.Applied, fmt.Sprintf("plugins: %s was added", to[i].Name))
		case !reflect.DeepEqual(*was, to[i]):
			done.Applied = append(done.Applied, fmt.Sprintf("plugins: %s changed, and is started again", to[i].Name))
		}
	}
	for _, p := range from {
		if find(to, p.Name) == nil {
			done.Applied = append(done.Applied, fmt.Sprintf("plugins: %s was removed, and is listed as offline until you forget it", p.Name))
		}
	}
}
