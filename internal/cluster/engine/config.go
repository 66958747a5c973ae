package engine

import (
	"fmt"
	"os"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Mode is where NATS runs.
type Mode string

// The modes.
const (
	Embedded Mode = "embedded" // in this process, for this node alone
	Leaf     Mode = "leaf"     // in this process, connected to a hub
	Join     Mode = "join"     // in an existing cluster
)

// Config configures a node's part in the cluster.
type Config struct {
	Mode Mode
	// Node is the name of this node, and Tenant the owner of the devices it serves.
	Node, Tenant string
	// Servers are the addresses of the cluster, or of the hub's leaf listener.
	Servers []string
	// Credentials and CA are files: this node's user credentials, and the
	// certificate authority of the servers.
	Credentials, CA string
	// Secret is the file of the secret that all nodes of the tenant share. By it they
	// vouch for their callers; other clients of NATS cannot call a device.
	Secret string
	// Domain is the hub's JetStream domain.
	Domain string
	// Shards is the number of buckets that the first node creates for the registry,
	// and Replicas how many servers store each.
	Shards, Replicas int
	// Store limits the size of NATS' files in the data directory, in bytes.
	Store int64
	// View is how many devices of other nodes are kept in memory. The others are
	// looked up when they are called.
	View int
}

// The limits of a config.
const (
	MaxShards = 64
	MinStore  = 16 << 20
	maxView   = 2_000_000
)

// DefaultConfig returns the config of a single node that is named after its host.
func DefaultConfig() Config {
	host, _ := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	node := ferrule.Slug(host)
	if node == "" {
		node = "node"
	}
	return Config{Mode: Embedded, Node: node, Tenant: "home", Domain: "hub", Shards: 16, Replicas: 3, Store: 1 << 30, View: 200_000}
}

// Check returns an error if the config is invalid.
func (c Config) Check() error {
	switch c.Mode {
	case Embedded:
		if len(c.Servers) > 0 {
			return fmt.Errorf("servers: must be empty in mode embedded; set mode to join or leaf to use them")
		}
	case Leaf, Join:
		if c.Secret == "" {
			return fmt.Errorf("secret: mode %s needs a file that all nodes of the tenant share; create it with `openssl rand -hex 32 > cluster.secret` and copy it to each node", c.Mode)
		}
		if len(c.Servers) == 0 {
			return fmt.Errorf("servers: mode %s needs at least one, such as tls://nats-1.example.com:4222", c.Mode)
		}
	default:
		return fmt.Errorf("mode: must be embedded, leaf or join, got %q", c.Mode)
	}
	if _, err := secure(c.Servers); err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	for key, name := range map[string]string{"node": c.Node, "tenant": c.Tenant, "domain": c.Domain} {
		if err := ferrule.CheckID(name); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	switch {
	case c.Shards < 1 || c.Shards > MaxShards:
		return fmt.Errorf("shards: must be from 1 to %d, got %d", MaxShards, c.Shards)
	case c.Replicas < 1 || c.Replicas > 5:
		return fmt.Errorf("replicas: must be from 1 to 5, got %d", c.Replicas)
	case c.Store < MinStore:
		return fmt.Errorf("store: must be at least %d bytes, got %d", MinStore, c.Store)
	case c.View < 0 || c.View > maxView:
		return fmt.Errorf("view: must be from 0 to %d, got %d", maxView, c.View)
	}
	return nil
}

// Alone reports whether there are no other nodes.
func (c Config) Alone() bool { return c.Mode == Embedded }
