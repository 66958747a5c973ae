package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// configFile is the file that is looked for, and whether somebody named it.
func (d *doctor) configFile() (path string, named bool) {
	path = cmp.Or(d.file, os.Getenv("FERRULE_CONFIG"))
	return cmp.Or(path, defaultConfig()), path != ""
}

// settings is what a gateway would be told here without further flags; what can
// be, where something is wrong with it.
func (d *doctor) settings() config.Config {
	s := starting{file: d.file}
	cfg, err := s.config()
	if err != nil {
		cfg = config.Default()
		cfg.Listen = cmp.Or(os.Getenv("FERRULE_LISTEN"), cfg.Listen)
	}
	return cfg
}

// config reads the file and what it names, as a gateway would.
func (d *doctor) config(context.Context) []finding {
	path, named := d.configFile()
	f := finding{Check: "file", About: path, State: fine}
	cfg, err := loadConfig(d.file)
	_, statErr := os.Stat(path)
	switch {
	case path == "":
		f.Found = "there is no directory to look for a config in; the defaults are used"
		return []finding{f}
	case err != nil:
		f.State, f.Found, f.Next = wrong, err.Error(), "correct it; docs/reference/commands.md has a file with every key"
		if errors.Is(err, os.ErrNotExist) && named {
			f.Next = "it is named by --config or FERRULE_CONFIG; correct that, or make the file"
		} else if errors.Is(err, os.ErrPermission) {
			f.Next = "whose is it? --config or FERRULE_CONFIG names another"
		}
		return []finding{f}
	case errors.Is(statErr, os.ErrNotExist):
		f.Found = path + " is not there; the defaults are used"
	default:
		f.Found = path + " is read"
	}
	all := []finding{f, d.overlays(cfg)}
	if len(cfg.Auth.Tokens) > 0 {
		all = append(all, d.tokens(cfg))
	}
	if _, err := cfg.EndpointConfigs(); err != nil {
		all = append(all, finding{Check: "endpoints", State: wrong, Found: err.Error(), Next: "no gateway starts without it"})
	}
	return all
}

// overlays reads the overlays.
func (d *doctor) overlays(cfg config.Config) finding {
	f := finding{Check: "overlays", About: cfg.Overlays, State: fine}
	files, err := config.ReadOverlays(cfg.Overlays)
	switch {
	case err != nil:
		f.State, f.Found, f.Next = wrong, err.Error(), "no gateway starts with it; docs/reference/overlays.md tells what may stand there"
	case len(files) == 0:
		f.Found = "there are no overlays in " + cfg.Overlays
	default:
		f.Found = fmt.Sprintf("overlays in %s: %d", cfg.Overlays, len(files))
	}
	return f
}

// tokens reads the tokens of agents, and tells how many there are.
func (d *doctor) tokens(cfg config.Config) finding {
	if _, err := cfg.Tokens(); err != nil {
		return finding{Check: "tokens", State: wrong, Found: err.Error(), Next: "no gateway starts without it"}
	}
	return finding{Check: "tokens", State: fine, Found: fmt.Sprintf("tokens of agents: %d", len(cfg.Auth.Tokens))}
}
