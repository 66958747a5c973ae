package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ferrulehq/ferrule/internal/guard/policy"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// configFile returns the file to check, and whether it was named: the one that the running
// gateway has read, else the one that the next gateway of this data directory would read.
func (d *Doctor) configFile() (path string, named bool) {
	var running, last string
	switch {
	case d.gateway.service:
		running = control.ServiceConfig
	case d.data != "":
		last = datadir.Config(d.data)
	}
	if d.gateway.err == nil {
		running = cmp.Or(running, last)
	}
	path = cmp.Or(d.file, running, os.Getenv("FERRULE_CONFIG"), last)
	return cmp.Or(path, config.DefaultPath()), path != ""
}

// namedFile returns the file to check, or "" for the default one, which may be missing.
func (d *Doctor) namedFile() string {
	if path, named := d.configFile(); named {
		return path
	}
	return ""
}

// settings returns the configuration of a gateway that is started without flags, or the
// defaults if the configuration is wrong.
func (d *Doctor) settings() config.Config {
	cfg, err := config.Resolve(config.Overrides{File: d.namedFile()})
	if err != nil {
		cfg = config.Default()
		cfg.Listen = cmp.Or(os.Getenv("FERRULE_LISTEN"), cfg.Listen)
	}
	return cfg
}

// config checks the configuration file and the files that it names.
func (d *Doctor) config(context.Context) []Finding {
	path, named := d.configFile()
	f := Finding{Check: "file", About: path, State: Fine}
	cfg, err := config.LoadDefault(d.namedFile())
	_, statErr := os.Stat(path)
	switch {
	case path == "":
		f.Found = "there is no configuration directory; the defaults are used"
		return []Finding{f}
	case err != nil:
		f.State, f.Found, f.Next = Wrong, err.Error(), "correct it; docs/reference/commands.md lists every key"
		if errors.Is(err, os.ErrNotExist) && named {
			f.Next = "correct --config or FERRULE_CONFIG, or create the file"
		} else if errors.Is(err, os.ErrPermission) {
			f.Next = "check who owns the file, or name another with --config or FERRULE_CONFIG"
		}
		return []Finding{f}
	case errors.Is(statErr, os.ErrNotExist):
		f.Found = path + " does not exist; the defaults are used"
	default:
		f.Found = path + " is valid"
	}
	all := []Finding{f, d.overlays(cfg), d.policy(cfg)}
	if len(cfg.Auth.Tokens) > 0 {
		all = append(all, d.tokens(cfg))
	}
	if cfg.Agents.OpenLoopback {
		all = append(all, Finding{
			Check: "tokens", State: Note, Found: "every user of this machine can call tools over HTTP: agents.open_loopback is true",
			Next: "to require tokens, set it to false, then run `ferrule reload`; see docs/how-to/let-agents-in.md",
		})
	}
	if _, err := cfg.EndpointConfigs(); err != nil {
		all = append(all, Finding{Check: "endpoints", State: Wrong, Found: err.Error(), Next: "correct it; a gateway does not start without it"})
	}
	return append(append(all, d.certificates(cfg)...), d.exposedSecrets(cfg)...)
}

func (d *Doctor) overlays(cfg config.Config) Finding {
	f := Finding{Check: "overlays", About: cfg.Overlays, State: Fine}
	files, err := config.ReadOverlays(cfg.Overlays)
	switch {
	case err != nil:
		f.State, f.Found, f.Next = Wrong, err.Error(), "correct it, see docs/reference/overlays.md; a gateway does not start with it"
	case len(files) == 0:
		f.Found = "there are no overlays in " + cfg.Overlays
	default:
		f.Found = fmt.Sprintf("overlays in %s: %d", cfg.Overlays, len(files))
	}
	return f
}

func (d *Doctor) policy(cfg config.Config) Finding {
	f := Finding{Check: "policy", About: cfg.Policy.Dir, State: Fine}
	c := cfg.PolicyConfig()
	c.Required = d.data != "" && datadir.Policies(d.data) != ""
	p, err := policy.Load(c)
	if err != nil {
		f.State, f.Found, f.Next = Wrong, err.Error(), "correct it, see docs/reference/policy.md; a gateway does not start with it"
		return f
	}
	f.Found = "policy: " + p.String()
	return f
}

func (d *Doctor) tokens(cfg config.Config) Finding {
	if _, err := cfg.Tokens(); err != nil {
		return Finding{Check: "tokens", State: Wrong, Found: err.Error(), Next: "correct it; a gateway does not start without it"}
	}
	return Finding{Check: "tokens", State: Fine, Found: fmt.Sprintf("tokens of agents: %d", len(cfg.Auth.Tokens))}
}
