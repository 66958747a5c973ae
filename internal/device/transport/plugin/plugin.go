// Package plugin connects to programs that offer tools over their standard input and
// output, one message a line, as MCP servers do. The owner configures them, and the gateway
// starts them.
//
//	configured program -> Sighting --Open--> process <--stdin, stdout--> Link
//
// A process lives as long as its Link. The dock opens the next one, with back-off, when a
// process ends. What a process writes to its standard error goes to the log, within limits.
package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/program"
)

// Name is the name of the transport.
const Name = "plugin"

// Config lists the plugins.
type Config struct {
	Plugins []Plugin
	// Protocols are tried on each plugin, in order.
	Protocols []string
	// Patience is how long a process may take to end after its input was closed, and again
	// after it was asked to end. Then it is killed.
	Patience time.Duration
	Limits   transport.Limits
}

// Plugin is one program.
type Plugin struct {
	// Name is the device's ID.
	Name    string
	Command program.Command
	// Pending lists the plugin without trusting it.
	Pending bool
}

// maxPlugins is the maximum number of plugins.
const maxPlugins = 64

// DefaultConfig has no plugins.
func DefaultConfig() Config {
	return Config{Patience: 2 * time.Second, Limits: transport.Limits{Line: 4 << 20, Rate: 16 << 20, Burst: 8 << 20}}
}

// Check returns an error if the config is invalid.
func (c Config) Check() error {
	if n := len(c.Plugins); n > maxPlugins {
		return fmt.Errorf("there are %d; limit is %d", n, maxPlugins)
	}
	seen := make(map[string]bool)
	for _, p := range c.Plugins {
		if p.Name == "" {
			return fmt.Errorf("each must have a name")
		}
		if seen[p.Name] {
			return fmt.Errorf("duplicate name %q", p.Name)
		}
		seen[p.Name] = true
		if err := p.Command.Check(); err != nil {
			return fmt.Errorf("exec of %s: %w", p.Name, err)
		}
	}
	return nil
}

// Connector is the transport.Connector for plugins.
type Connector struct {
	transport.FirstLook
	cfg     Config
	log     *slog.Logger
	changed chan struct{} // signals Watch after Set

	mu      sync.Mutex
	plugins []Plugin
}

// New returns a Connector for a config that passed Check.
func New(cfg Config, log *slog.Logger) *Connector {
	return &Connector{FirstLook: transport.NewFirstLook(), cfg: cfg, log: log, changed: make(chan struct{}, 1), plugins: cfg.Plugins}
}

// Set replaces all plugins. They must pass Check. A plugin whose settings are the same
// stays connected.
func (c *Connector) Set(plugins []Plugin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plugins = plugins
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Watch reports each plugin when it is configured, as a group of its own.
func (c *Connector) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	reported := make(map[string]Plugin)
	instances := make(map[string]uint64)
	for {
		c.mu.Lock()
		plugins := c.plugins
		c.mu.Unlock()
		for _, name := range slices.Sorted(maps.Keys(reported)) {
			if !slices.ContainsFunc(plugins, func(p Plugin) bool { return p.Name == name }) {
				delete(reported, name)
				update(address(name), nil)
			}
		}
		for _, p := range plugins {
			if was, ok := reported[p.Name]; ok && reflect.DeepEqual(was, p) {
				continue
			}
			reported[p.Name] = p
			instances[p.Name]++
			update(address(p.Name), []transport.Sighting{c.sighting(p, instances[p.Name])})
		}
		c.EndLook()
		select {
		case <-c.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// address returns the address of a plugin, which is also its group.
func address(name string) string { return Name + ":" + name }

// sighting returns the sighting of a plugin. It is not Attached: if an update of the program
// changes its tools, they wait until the owner accepts them.
func (c *Connector) sighting(p Plugin, instance uint64) transport.Sighting {
	return transport.Sighting{
		Address:   address(p.Name),
		Local:     true,
		Instance:  instance,
		Transport: Name,
		Name:      p.Name,
		Adopted:   !p.Pending,
		Protocols: c.cfg.Protocols,
		Open:      func(ctx context.Context) (transport.Link, error) { return c.open(ctx, p) },
	}
}
