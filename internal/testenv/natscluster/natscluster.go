// Package natscluster is real NATS servers for tests: the nats-server of go.mod, one
// process each, with the configuration that operators get.
//
//	test ── nats.Connect(c.Servers[i].URL()) ── n1 ─┐
//	                                            n2 ─┤ routes
//	test ── c.Servers[i].Kill() ─────────────── n3 ─┘
//
// It knows nothing of NATS but how a server is started and asked whether it is
// well, so what speaks to the servers is the test's own.
package natscluster

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Password is that of every user.
const Password = "tests"

// operator is who connects unless somebody else is named.
const operator = "acme-operator"

// patience bounds the wait for servers. Electing a leader takes up to nine seconds
// by itself.
const patience = time.Minute

// often is how often a server is asked while it is waited for. It writes a line to
// its log each time that it is not well.
const often = 50 * time.Millisecond

// Options are what a cluster is to be like. The zero value is three servers on
// loopback.
type Options struct {
	Size   int    // 3 if zero
	Domain string // of JetStream; "hub" if empty
	Config string // folder of cluster.conf; packaging/nats if empty

	// Env is put into the environment of the servers, for a configuration with
	// variables of its own.
	Env []string

	// Place is where server i runs. If nil, all are on 127.0.0.1.
	Place func(i int) Place
}

// Place is where a server runs.
type Place struct {
	Host   string   // address to listen at; 127.0.0.1 if empty
	Prefix []string // of the command, such as ip netns exec NAME
}

// Cluster is servers that know each other.
type Cluster struct {
	Servers []*Server
}

// Start starts a cluster, which ends with the test or with this process, and waits
// until it is healthy and has a leader.
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
	c := &Cluster{}
	for i := range cmp.Or(o.Size, 3) {
		s, err := newServer(t, dir, fmt.Sprintf("n%d", i+1), o.place(i))
		if err != nil {
			t.Fatal(err)
		}
		s.command = append(s.place.Prefix[:len(s.place.Prefix):len(s.place.Prefix)], program, "--config", filepath.Join(dir, "cluster.conf"))
		c.Servers = append(c.Servers, s)
	}
	env := append(os.Environ(), "FERRULE_NATS_ROUTES="+c.routes())
	for _, s := range c.Servers {
		s.env = append(env[:len(env):len(env)], append(s.variables(), o.Env...)...)
		s.Start()
	}
	c.WaitHealthy()
	return c
}

func (o Options) place(i int) Place {
	var p Place
	if o.Place != nil {
		p = o.Place(i)
	}
	p.Host = cmp.Or(p.Host, "127.0.0.1")
	return p
}

// routes is the list of where the servers find each other, as the file wants it.
func (c *Cluster) routes() string {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, "nats://"+s.address(s.ports.cluster))
	}
	return "[" + strings.Join(urls, ", ") + "]"
}

// URLs is where clients connect as the operator of acme, one of the two tenants that
// there are: one server, and the others if it dies.
func (c *Cluster) URLs() string { return c.URLsAs(operator) }

// URLsAs is URLs of another user: acme, or globex, or globex-operator.
func (c *Cluster) URLsAs(user string) string {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, s.URLAs(user))
	}
	return strings.Join(urls, ",")
}

// WaitHealthy waits until every server that runs is healthy and connected with all
// others, and all agree who leads JetStream.
func (c *Cluster) WaitHealthy() {
	t := c.Servers[0].t
	t.Helper()
	var why error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(often) {
		if why = c.healthy(); why == nil {
			return
		}
	}
	t.Fatalf("the cluster does not become healthy: %v", why)
}

// perPeer is how many connections a server has to each other: three for all that is
// said, by account, and one for the servers themselves. They elect a leader by the
// latter, and a request is lost for good while the one that it needs is not there.
const perPeer = 4

// healthy tells what is wrong. That the others still name a leader that is dead is
// wrong too.
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
			return fmt.Errorf("%s says that %q leads, and another that %q does", s.Name, its, leader)
		}
	}
	return nil
}

// Leader is the server that leads JetStream, or nil if there is none now.
func (c *Cluster) Leader() *Server {
	for _, s := range c.running() {
		name, _ := s.Leader()
		if l := c.named(name); l != nil {
			return l
		}
	}
	return nil
}

// named is the server with a name, if it runs.
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
