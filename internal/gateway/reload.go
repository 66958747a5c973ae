package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/endpoint"
	"github.com/ferrulehq/ferrule/internal/cluster"
	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/hook"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/guard/policy"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// Reload reads the configuration, overlays, rules and tokens again. It applies what can change
// while devices stay connected, and returns the rest as needing a restart. If anything
// is wrong, nothing changes.
func (g *Gateway) Reload() (control.Reloaded, error) {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	done, err := g.reload()
	if err != nil {
		g.parts.Log.Error("the configuration was not reloaded; the gateway keeps running with the previous one", "err", err)
		return control.Reloaded{}, ferrule.Errorf(ferrule.Invalid, "nothing was reloaded, and the gateway keeps running as before: %w", err).
			WithHint("Correct it, then run `ferrule reload` again.")
	}
	text := "the configuration was reloaded"
	if len(done.Applied) > 0 {
		text += ": " + strings.Join(done.Applied, "; ")
	}
	if len(done.Problems) > 0 {
		text += "; problems: " + strings.Join(done.Problems, "; ")
	}
	if len(done.Restart) > 0 {
		text += "; needs a restart: " + strings.Join(done.Restart, "; ")
	}
	g.parts.Log.Info(text)
	return done, nil
}

// ReloadOn reloads whenever a signal arrives. It returns when ctx ends, or when a signal
// arrives and gone reports that nobody can use this gateway any longer.
func (g *Gateway) ReloadOn(signals <-chan os.Signal, gone func() bool) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-signals:
			}
			if gone() {
				return nil
			}
			g.Reload() // it logs its error
		}
	}
}

// loaded is everything that a reload reads, before anything changes.
type loaded struct {
	cfg       config.Config
	tokens    *identity.Tokens
	overlays  []*overlay.File
	listen    *pair // certificate of the HTTP server; nil without TLS
	dialIn    *pair // certificate for devices that dial in; nil without TLS
	endpoints []endpoint.Config
	hooks     []hook.Config
	policy    *policy.Policy
	notices   config.Watches
}

func (g *Gateway) load() (l loaded, err error) {
	if g.parts.Load == nil {
		return l, errors.New("this gateway has no configuration file")
	}
	if l.cfg, err = g.parts.Load(); err != nil {
		return l, err
	}
	if l.tokens, err = l.cfg.Tokens(); err != nil {
		return l, err
	}
	g.setTokenIDs(l.tokens)
	if l.overlays, err = readOverlays(l.cfg.Overlays); err != nil {
		return l, err
	}
	if l.listen, err = readPair(l.cfg.TLS); err != nil {
		return l, err
	}
	if l.dialIn, err = readPair(l.cfg.DialIn.TLS); err != nil {
		return l, fmt.Errorf("dial_in.%w", err)
	}
	if l.endpoints, err = l.cfg.EndpointConfigs(); err != nil {
		return l, err
	}
	if l.hooks, err = l.cfg.HookConfigs(); err != nil {
		return l, err
	}
	if l.notices, err = l.cfg.WatchesConfig(); err != nil {
		return l, err
	}
	l.policy, err = g.readPolicy(l.cfg)
	return l, err
}

func (g *Gateway) reload() (done control.Reloaded, err error) {
	done.Applied, done.Restart = []string{}, []string{}
	next, err := g.load()
	if err != nil {
		return done, err
	}
	running, tls := g.running, g.certificate != nil && next.listen != nil
	dialInTLS := g.DialIn != nil && g.DialIn.certificate != nil && next.dialIn != nil
	running.Devices, running.Overlays, running.Auth, running.Agents.Hosts = next.cfg.Devices, next.cfg.Overlays, next.cfg.Auth, next.cfg.Agents.Hosts
	running.Policy, running.Plugins, running.Hooks, running.Watches = next.cfg.Policy, next.cfg.Plugins, next.cfg.Hooks, next.cfg.Watches
	running.Agents.OpenLoopback = running.Agents.OpenLoopback && next.cfg.Agents.OpenLoopback // a file that was cut short must not open it
	running.Auth.Issuers = g.running.Auth.Issuers
	running.Auth.Server, running.Auth.URL = g.running.Auth.Server, g.running.Auth.URL
	if tls {
		running.TLS = next.cfg.TLS
	}
	if dialInTLS {
		running.DialIn.TLS = next.cfg.DialIn.TLS
	}
	if err := running.Check(); err != nil { // for example names of a proxy while loopback is open
		return done, fmt.Errorf("together with what changes only at a restart: %w", err)
	}
	if err := g.rememberRules(next.policy); err != nil {
		return done, err
	}
	if err := g.Requests.replace(next.cfg, &done); err != nil {
		return done, err
	}
	// What follows cannot fail.
	g.replacePolicy(next.policy, &done)
	g.replaceOverlays(next.overlays, &done)
	done.Read = readFrom(g.parts.ConfigFile, next.cfg.Overlays)
	g.replaceHooks(next.hooks, &done)
	g.replaceNotices(next.notices, &done)
	if pin := next.cfg.Devices.PinUSB; pin != g.running.Devices.PinUSB {
		g.Dock.SetPinUSB(pin)
		done.Applied = append(done.Applied, fmt.Sprintf("devices.pin_usb: %t", pin))
	}
	if tls && g.certificate.replace(next.listen) {
		done.Applied = append(done.Applied, "tls: another certificate")
	}
	if dialInTLS && g.DialIn.certificate.replace(next.dialIn) {
		done.Applied = append(done.Applied, "dial_in.tls: another certificate")
	}
	if g.running.Agents.OpenLoopback && !running.Agents.OpenLoopback {
		g.loopback.close()
		done.Applied = append(done.Applied, "agents.open_loopback: false")
	}
	g.replaceCallers(running.Agents.Hosts, next.tokens, &done)
	for _, c := range config.Changes(running, next.cfg) {
		done.Restart = append(done.Restart, c.String())
	}
	if !slices.Equal(g.endpoints, next.endpoints) && !slices.Contains(done.Restart, "endpoints") {
		done.Restart = append(done.Restart, "endpoints") // the URL in a file
	}
	g.running = running
	return done, nil
}

// replaceCallers changes who is accepted. Names that are new or gone are not accepted
// while tokens change: they never come without the tokens that belong to them.
func (g *Gateway) replaceCallers(hosts []string, tokens *identity.Tokens, done *control.Reloaded) {
	before := g.running.Agents.Hosts
	if !slices.Equal(before, hosts) {
		g.Agents.SetHosts(slices.DeleteFunc(slices.Clone(before), func(host string) bool { return !slices.Contains(hosts, host) }))
		done.Applied = append(done.Applied, "agents.hosts: "+strings.Join(hosts, ", "))
	}
	added, replaced, removed := g.tokens.Replace(tokens)
	g.Approvals.Recheck()
	g.Agents.SetHosts(hosts)
	for _, change := range []struct {
		text  string
		names []string
	}{{"added", added}, {"replaced", replaced}, {"removed", removed}} {
		for _, name := range change.names {
			done.Applied = append(done.Applied, fmt.Sprintf("auth.tokens: the token of %s was %s", name, change.text))
		}
	}
}

// replaceOverlays applies other overlays to all devices of this node.
func (g *Gateway) replaceOverlays(files []*overlay.File, done *control.Reloaded) {
	changed := g.Dock.ReplaceOverlays(func() { g.overlays.Replace(overlay.NewSet(files...)) })
	done.Problems = append(g.unmatchedOverlays(files), g.unusable(changed)...)
	if len(changed) == 0 {
		return
	}
	devices := strings.Join(changed, ", ")
	if n := len(changed); n > maxNamed {
		devices = fmt.Sprintf("%s and %d more", strings.Join(changed[:maxNamed], ", "), n-maxNamed)
	}
	done.Applied = append(done.Applied, "overlays: they changed for "+devices)
	if g.Cluster.State().Mode != cluster.Embedded {
		done.Restart = append(done.Restart, "overlays for devices of other nodes")
	}
}

// maxNamed is how many devices a message names.
const maxNamed = 10
