// Package natscluster runs real NATS servers for tests: the nats-server of go.mod, one
// process each, with the configuration that we ship for operators.
//
//	test ── nats.Connect(c.Servers[i].URL()) ── n1 ─┐
//	                                            n2 ─┤ routes
//	test ── c.Servers[i].Kill() ─────────────── n3 ─┘
//
// Servers at other addresses than loopback use TLS. The package starts servers and checks
// their health over HTTP. It does not use a NATS client: tests bring their own.
package natscluster

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ops/localca"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// Password is the password of every user.
const Password = "tests"

// operator is the default user.
const operator = "acme-operator"

// timeout limits the wait for servers. Electing a leader alone takes up to nine seconds.
const timeout = wait.Ample

// pollInterval is the pause between two health checks. A server logs each failed one.
const pollInterval = 50 * time.Millisecond

// Options configure a cluster. The zero value is three servers on loopback.
type Options struct {
	Size   int    // 3 if zero
	Domain string // of JetStream; "hub" if empty
	Config string // folder of cluster.conf; packaging/nats if empty

	// TLS makes servers on loopback use TLS. Others always do, because Ferrule requires it.
	TLS bool

	// Env is added to the environment of the servers, for a configuration with its own
	// variables.
	Env []string

	// Place returns where server i runs. If nil, all run on 127.0.0.1.
	Place func(i int) Place
}

// Place is where a server runs.
type Place struct {
	Host   string   // address to listen at; 127.0.0.1 if empty
	Prefix []string // of the command, such as ip netns exec NAME
}

// Cluster is a set of connected servers.
type Cluster struct {
	Servers []*Server
	// Secret is a file with a secret for the nodes that join, and CA one with the root
	// certificate of the servers; empty without TLS.
	Secret, CA string
}

// Start starts a cluster, and waits until it is healthy and has a leader. It stops with
// the test or with this process.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	module, err := moduleDir()
	if err != nil {
		t.Fatal(err)
	}
	program, err := build(module)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := o.copyConfig(dir, cmp.Or(o.Config, filepath.Join(module, "packaging/nats"))); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Secret: filepath.Join(dir, "cluster.secret")}
	if err := os.WriteFile(c.Secret, []byte(rand.Text()+rand.Text()), 0o600); err != nil {
		t.Fatal(err)
	}
	env := os.Environ()
	if o.encrypted() {
		made, err := localca.Init(filepath.Join(dir, "tls"), o.hosts())
		if err != nil {
			t.Fatal(err)
		}
		c.CA = made.CA
		env = append(env, "FERRULE_NATS_CERT="+made.Cert, "FERRULE_NATS_KEY="+made.Key, "FERRULE_NATS_CA="+made.CA)
	}
	for i := range o.size() {
		s, err := newServer(t, dir, fmt.Sprintf("n%d", i+1), o.place(i))
		if err != nil {
			t.Fatal(err)
		}
		s.command = append(s.place.Prefix[:len(s.place.Prefix):len(s.place.Prefix)], program, "--config", filepath.Join(dir, "cluster.conf"))
		s.encrypted = o.encrypted()
		c.Servers = append(c.Servers, s)
	}
	env = append(env, "FERRULE_NATS_ROUTES="+c.routes())
	for _, s := range c.Servers {
		s.env = append(env[:len(env):len(env)], append(s.variables(), o.Env...)...)
		s.Start()
	}
	c.WaitHealthy()
	return c
}

func (o Options) size() int { return cmp.Or(o.Size, 3) }

// hosts returns the addresses of the servers.
func (o Options) hosts() (all []string) {
	for i := range o.size() {
		all = append(all, o.place(i).Host)
	}
	return all
}

// encrypted reports whether the servers use TLS.
func (o Options) encrypted() bool {
	return o.TLS || slices.ContainsFunc(o.hosts(), func(host string) bool { return !net.ParseIP(host).IsLoopback() })
}

func (o Options) place(i int) Place {
	var p Place
	if o.Place != nil {
		p = o.Place(i)
	}
	p.Host = cmp.Or(p.Host, "127.0.0.1")
	return p
}

// routes returns the list of cluster addresses for the configuration.
func (c *Cluster) routes() string {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, s.scheme()+s.address(s.ports.cluster))
	}
	return "[" + strings.Join(urls, ", ") + "]"
}

// URLs returns the addresses of all servers, with the operator of acme as the user. Acme
// is one of two tenants.
func (c *Cluster) URLs() string { return c.URLsAs(operator) }

// URLsAs is URLs for another user: acme, globex or globex-operator.
func (c *Cluster) URLsAs(user string) string {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, s.URLAs(user))
	}
	return strings.Join(urls, ",")
}

// WaitHealthy waits until every running server is healthy and connected with all others,
// and all agree on the leader of JetStream.
func (c *Cluster) WaitHealthy() {
	t := c.Servers[0].t
	t.Helper()
	var why error
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(pollInterval) {
		if why = c.healthy(); why == nil {
			return
		}
	}
	t.Fatalf("the cluster does not become healthy: %v", why)
}

// perPeer is how many connections a server has to each other server: three for messages,
// by account, and one for the system account, by which they elect a leader. A request is
// lost while its connection is missing.
const perPeer = 4

// healthy returns why the cluster is not healthy. A leader that is not running counts as
// unhealthy too.
func (c *Cluster) healthy() error {
	leader, running := "", c.running()
	for _, s := range running {
		if err := s.Healthy(); err != nil {
			return err
		}
		if n, err := s.routes(); err != nil || n != perPeer*(len(running)-1) {
			return fmt.Errorf("%s has %d routes: %w", s.Name, n, err)
		}
		its, err := s.Leader()
		if err != nil {
			return err
		}
		if leader = cmp.Or(leader, its); its != leader || c.named(its) == nil {
			return fmt.Errorf("%s has leader %q, another server has %q", s.Name, its, leader)
		}
	}
	return nil
}

// Leader returns the leader of JetStream, or nil if there is none.
func (c *Cluster) Leader() *Server {
	for _, s := range c.running() {
		name, _ := s.Leader()
		if l := c.named(name); l != nil {
			return l
		}
	}
	return nil
}

// named returns the running server with a name, or nil.
func (c *Cluster) named(name string) *Server {
	for _, s := range c.running() {
		if s.Name == name {
			return s
		}
	}
	return nil
}

func (c *Cluster) running() []*Server {
	var all []*Server
	for _, s := range c.Servers {
		if s.Running() {
			all = append(all, s)
		}
	}
	return all
}
