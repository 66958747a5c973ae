package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport/plugin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/hook"
	"github.com/ferrulehq/ferrule/internal/program"
)

// Plugin is a program that offers tools as an MCP server on its standard input and output.
type Plugin struct {
	// Name is the ID of its device.
	Name string `yaml:"name"`
	// Exec is the path of the program, and its arguments.
	Exec []string `yaml:"exec"`
	// Env are variables of the program. They may be secrets.
	Env     map[string]ferrule.Secret `yaml:"env"`
	Dir     string                    `yaml:"dir"`
	Pending bool                      `yaml:"pending"`
}

// Hook is a program or a web service that sees calls.
type Hook struct {
	Name string `yaml:"name"`
	URL  string `yaml:"url"`
	// Token is sent to URL; File names a file with it.
	Token ferrule.Secret            `yaml:"token"`
	File  string                    `yaml:"file"`
	Exec  []string                  `yaml:"exec"`
	Env   map[string]ferrule.Secret `yaml:"env"`
	// When has before, after or both. The default is before.
	When []string `yaml:"when"`
	// OnError is refuse or allow. The default is refuse.
	OnError  string   `yaml:"on_error"`
	Timeout  Interval `yaml:"timeout"`
	Parallel int      `yaml:"parallel"`
	Devices  []string `yaml:"devices"`
	Effects  []string `yaml:"effects"`
}

// The values of Hook.When and Hook.OnError.
const (
	whenBefore, whenAfter       = "before", "after"
	onErrorRefuse, onErrorAllow = "refuse", "allow"
)

// PluginConfig returns the config of the plugins, with the protocols to try.
func (c Config) PluginConfig(protocols []string) plugin.Config {
	out := plugin.DefaultConfig()
	out.Protocols = protocols
	for _, p := range c.Plugins {
		out.Plugins = append(out.Plugins, plugin.Plugin{Name: p.Name, Command: command(p.Exec, p.Env, p.Dir), Pending: p.Pending})
	}
	return out
}

// command returns a program of the file.
func command(exec []string, env map[string]ferrule.Secret, dir string) program.Command {
	c := program.Command{Args: exec, Dir: dir}
	for name, value := range env {
		c.Env = append(c.Env, name+"="+value.Reveal())
	}
	slices.Sort(c.Env)
	return c
}

// HookConfigs returns the configs of the hooks, with tokens read from files.
func (c Config) HookConfigs() ([]hook.Config, error) {
	var all []hook.Config
	for i, h := range c.Hooks {
		token, err := readSecret(h.Token, h.File)
		if err != nil {
			return nil, fmt.Errorf("hooks[%d].file: %w", i, err)
		}
		out := h.config()
		out.Token = token
		all = append(all, out)
	}
	if err := hook.Check(all); err != nil {
		return nil, fmt.Errorf("hooks: %w", err)
	}
	return all, nil
}

func (h Hook) config() hook.Config {
	out := hook.Config{
		Name: h.Name, URL: h.URL, Token: h.Token, Command: command(h.Exec, h.Env, ""),
		Before: len(h.When) == 0 || slices.Contains(h.When, whenBefore), After: slices.Contains(h.When, whenAfter), AllowOnError: h.OnError == onErrorAllow,
		Timeout: cmp.Or(time.Duration(h.Timeout), hook.DefaultTimeout), Parallel: cmp.Or(h.Parallel, hook.DefaultParallel), Devices: h.Devices,
	}
	for _, effect := range h.Effects {
		out.Effects = append(out.Effects, ferrule.Effect(effect))
	}
	return out
}

// checkHooks checks the hooks, except for tokens in files.
func (c Config) checkHooks() error {
	var all []hook.Config
	for i, h := range c.Hooks {
		for _, when := range h.When {
			if when != whenBefore && when != whenAfter {
				return fmt.Errorf("hooks[%d].when: must be before, after or both", i)
			}
		}
		switch {
		case h.OnError != "" && h.OnError != onErrorRefuse && h.OnError != onErrorAllow:
			return fmt.Errorf("hooks[%d].on_error: must be refuse or allow", i)
		case h.Token != "" && h.File != "":
			return fmt.Errorf("hooks[%d]: must have either token or file", i)
		case h.File != "" && h.URL == "":
			return fmt.Errorf("hooks[%d].file: needs url", i)
		}
		h.Exec = fromFile(h.Exec)
		all = append(all, h.config())
	}
	if err := hook.Check(all); err != nil {
		return fmt.Errorf("hooks: %w", err)
	}
	return nil
}

// checkPlugins checks the plugins.
func (c Config) checkPlugins() error {
	c.Plugins = slices.Clone(c.Plugins)
	for i := range c.Plugins {
		c.Plugins[i].Exec = fromFile(c.Plugins[i].Exec)
	}
	if err := c.PluginConfig(nil).Check(); err != nil {
		return fmt.Errorf("plugins: %w", err)
	}
	return nil
}

// fromFile returns a command as if its file was at the root: a path may be relative to the
// file. The name of a program without a path stays, and is refused.
func fromFile(exec []string) []string {
	if len(exec) == 0 || !isRelative(exec[0]) {
		return exec
	}
	root, err := filepath.Abs(string(filepath.Separator))
	if err != nil {
		return exec
	}
	return append([]string{filepath.Join(root, exec[0])}, exec[1:]...)
}

// isRelative reports whether a path is relative to the file, and not only a name.
func isRelative(path string) bool {
	return !filepath.IsAbs(path) && strings.ContainsAny(path, `/\`)
}

// programFiles returns the paths of programs, and their directories, that are relative to
// the file.
func (c Config) programFiles() (files []*string) {
	for i := range c.Plugins {
		p := &c.Plugins[i]
		if len(p.Exec) > 0 && isRelative(p.Exec[0]) {
			files = append(files, &p.Exec[0])
		}
		files = append(files, &p.Dir)
	}
	for i := range c.Hooks {
		h := &c.Hooks[i]
		if len(h.Exec) > 0 && isRelative(h.Exec[0]) {
			files = append(files, &h.Exec[0])
		}
		files = append(files, &h.File)
	}
	return files
}

// checkWritable returns an error if the file names programs and everybody can change it.
func (c Config) checkWritable(path string) error {
	programs := len(c.Plugins) > 0 || slices.ContainsFunc(c.Hooks, func(h Hook) bool { return len(h.Exec) > 0 })
	if !programs || runtime.GOOS == "windows" { // where the mode does not say it
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o002 != 0 {
		return errors.New("it names programs to run, and everybody can change it; correct that with `chmod o-w`")
	}
	return nil
}
