package cluster

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Mode is where the engine runs.
type Mode string

// The modes.
const (
	Embedded Mode = "embedded" // in this process, for this node alone
	Leaf     Mode = "leaf"     // in this process, and it dials a hub
	Join     Mode = "join"     // in a cluster that somebody runs
)

// Config is what can be set about the engine.
type Config struct {
	Mode Mode
	// Node is what other nodes call this one, and Tenant whose devices it serves.
	Node, Tenant string
	// Servers are the hub's addresses for leaves, or the cluster's.
	Servers []string
	// Credentials and CA are files: who this node is to the servers, and who
	// signs their certificates.
	Credentials, CA string
	// Domain is the hub's JetStream domain.
	Domain string
	// Shards is how many parts the registry has, if this node is the first to make
	// it, and Replicas how many servers keep each.
	Shards, Replicas int
	// Store bounds the engine's files in the data directory, in bytes.
	Store int64
	// View is how many devices of other nodes are kept in memory. What is beyond
	// is looked up when it is called.
	View int
}

// The bounds of a config.
const (
	maxShards = 64
	minStore  = 16 << 20
	maxView   = 2_000_000
)

// DefaultConfig is one node by itself, called after its machine.
func DefaultConfig() Config {
	host, _ := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	node := ferrule.Slug(host)
	if node == "" {
		node = "node"
	}
	return Config{Mode: Embedded, Node: node, Tenant: "home", Domain: "hub", Shards: 16, Replicas: 3, Store: 1 << 30, View: 200_000}
}

// Check tells what is wrong with the config.
func (c Config) Check() error {
	switch c.Mode {
	case Embedded:
		if len(c.Servers) > 0 {
			return fmt.Errorf("servers: with mode embedded there are none; did you mean mode join, or leaf?")
		}
	case Leaf, Join:
		if len(c.Servers) == 0 {
			return fmt.Errorf("servers: mode %s wants at least one, such as nats://nats-1.example.com:4222", c.Mode)
		}
	default:
		return fmt.Errorf("mode: want embedded, leaf or join, got %q", c.Mode)
	}
	for _, s := range c.Servers {
		if u, err := url.Parse(s); err != nil || u.Host == "" {
			return fmt.Errorf("servers: want addresses such as nats://nats-1.example.com:4222, got %q", s)
		}
	}
	for key, name := range map[string]string{"node": c.Node, "tenant": c.Tenant, "domain": c.Domain} {
		if err := ferrule.CheckID(name); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	switch {
	case c.Shards < 1 || c.Shards > maxShards:
		return fmt.Errorf("shards: want from 1 to %d, got %d", maxShards, c.Shards)
	case c.Replicas < 1 || c.Replicas > 5:
		return fmt.Errorf("replicas: want from 1 to 5, got %d", c.Replicas)
	case c.Store < minStore:
		return fmt.Errorf("store: want at least %d bytes, got %d", minStore, c.Store)
	case c.View < 0 || c.View > maxView:
		return fmt.Errorf("view: want from 0 to %d, got %d", maxView, c.View)
	}
	return nil
}

// alone tells whether there are no other nodes.
func (c Config) alone() bool { return c.Mode == Embedded }

// The engine's times. A lease outlives an election of its bucket's leader, which
// takes up to nine seconds and cannot be hastened: a shorter one would end for
// healthy nodes too.
const (
	leaseTTL   = 25 * time.Second
	leaseRenew = 5 * time.Second
)
