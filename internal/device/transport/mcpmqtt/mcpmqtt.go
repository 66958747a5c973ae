// Package mcpmqtt connects to MCP servers on an MQTT broker (MCP over MQTT).
//
//	presence topics --Connector--> Sighting --Open--> connection of its own --> Link
//
// A server announces itself by a retained message, which is found with the shared
// connection of the broker. A session has an MQTT connection of its own: its client ID
// must be new for each initialize, and the will for it tells the server that we are gone.
//
// An announcement is only a claim. A server that crashed may still be announced; it does
// not answer, and is offline. Servers with one name may be interchangeable or not: each
// is a device of its own.
package mcpmqtt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mqttclient"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Config is one broker.
type Config struct {
	// Broker is its name, which is part of the addresses of the servers.
	Broker string
	// Local reports that the broker is on this machine.
	Local bool
	// Adopt reports that the owner trusts every server on the broker.
	Adopt bool
	// Own is the ID of the server that this gateway is on the broker, which is not a
	// device; empty if it is none.
	Own string
	// Protocols are the protocols of the servers.
	Protocols []string
	// Client is how to connect to the broker, for sessions.
	Client mqttclient.Config
}

const (
	// maxServers limits the servers of a broker.
	maxServers = 1000
	// maxNames limits the names under which one server is announced at the same time.
	maxNames = 4
	// settleTime is how long the retained messages may take after a reconnect. A server
	// that was not announced again is gone then.
	settleTime = 2 * time.Second
	// reportPause is the shortest time between two reports.
	reportPause = 100 * time.Millisecond
)

// Connector finds the MCP servers on a broker.
type Connector struct {
	cfg    Config
	client *mqttclient.Client
	log    *slog.Logger
	// changed has an element if servers changed.
	changed chan struct{}

	mu       sync.Mutex
	servers  map[string]*server
	instance uint64 // the last one that was given to a server
	problem  string
	lost     string // why nothing is heard; empty if the subscription is there
}

// server is an announced server.
type server struct {
	// names are those under which it is announced, the newest first. There is more than
	// one if an old announcement was left behind.
	names    []string
	gateway  bool // it says that it is a gateway
	instance uint64
	// confirmed reports that it was announced on this connection to the broker.
	confirmed bool
	sessions  int
}

// New returns a Connector that uses the shared connection of client to find servers.
func New(cfg Config, client *mqttclient.Client, log *slog.Logger) *Connector {
	return &Connector{
		cfg: cfg, client: client, log: log, changed: make(chan struct{}, 1), servers: make(map[string]*server),
		lost: "the broker is not connected",
	}
}

// Problem says what is wrong with the announcements on the broker; "" if nothing is. A
// broker that cannot have any is none: most have no MCP servers.
func (c *Connector) Problem() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem
}

// Watch implements transport.Connector.
func (c *Connector) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	report := func() { update("mcp-over-mqtt:"+c.cfg.Broker, c.sightings()) }
	for {
		conn, err := c.client.Connect(ctx)
		if err != nil {
			return nil // ctx has ended
		}
		if err := c.follow(ctx, conn, report); err != nil {
			c.log.Info("MCP servers on the broker cannot be found", "err", err)
			c.set("", err.Error())
			report()
		}
		select {
		case <-conn.Done():
			c.set(c.Problem(), "the broker is not connected")
			report()
		case <-ctx.Done():
			return nil
		}
	}
}

// set sets the problem of the broker, and why nothing is heard.
func (c *Connector) set(problem, lost string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problem, c.lost = problem, lost
	if lost != "" {
		for _, s := range c.servers {
			s.confirmed = false
		}
	}
}

// follow reports servers until the connection is lost or ctx ends.
func (c *Connector) follow(ctx context.Context, conn *mqttclient.Conn, report func()) error {
	if conn.Version() < 5 {
		return ErrVersion
	}
	end, err := conn.Subscribe(ctx, c.hear, mqttclient.Filter{Topic: presenceFilter, QoS: 1})
	if err != nil {
		if ctx.Err() != nil || conn.Err() != nil {
			return nil
		}
		return err
	}
	defer end()
	c.set("", "")
	settled := time.After(settleTime)
	var pause <-chan time.Time // nil if a report may follow at once
	for changed := c.changed; ; {
		select {
		case <-changed:
			report()
			pause, changed = time.After(reportPause), nil
		case <-pause:
			pause, changed = nil, c.changed
		case <-settled:
			c.dropUnconfirmed()
		case <-conn.Done():
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// ErrVersion is the error for a broker with MQTT 3.1.1.
var ErrVersion = errors.New("MCP over MQTT needs MQTT 5, and the broker has only 3.1.1")

// notify asks for a report. It is called with mu held.
func (c *Connector) notify() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// hear handles a message on a presence topic.
func (c *Connector) hear(m mqttclient.Message) {
	s, err := parsePresence(m.Topic)
	var n notice
	if err == nil && len(m.Payload) > 0 {
		n, err = parseNotice(m.Payload)
	}
	if err != nil {
		c.log.Debug("ignored a presence message", "topic", ferrule.Clean(m.Topic, 200), "err", err)
		return
	}
	if s.ID == c.cfg.Own {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(m.Payload) == 0 {
		c.leave(s)
	} else {
		c.arrive(s, n, m.Retained)
	}
}

// leave removes a server that is no longer announced. It is called with mu held.
func (c *Connector) leave(s Server) {
	known := c.servers[s.ID]
	if known == nil {
		return
	}
	first := known.names[0]
	known.names = slices.DeleteFunc(known.names, func(name string) bool { return name == s.Name })
	switch {
	case len(known.names) == 0:
		delete(c.servers, s.ID)
	case known.names[0] != first:
		c.renew(known)
	default:
		return
	}
	c.notify()
}

// arrive notes an announcement. One that was not retained comes from a server that just
// connected: it has forgotten its sessions. It is called with mu held.
func (c *Connector) arrive(s Server, n notice, retained bool) {
	known := c.servers[s.ID]
	if known == nil {
		if len(c.servers) >= maxServers {
			c.problem = fmt.Sprintf("announces more than %d MCP servers; the others are ignored", maxServers)
			return
		}
		known = &server{names: []string{s.Name}}
		c.servers[s.ID] = known
		c.renew(known)
	} else {
		i := slices.Index(known.names, s.Name)
		switch {
		case !retained:
			known.names = slices.Insert(slices.DeleteFunc(known.names, func(name string) bool { return name == s.Name }), 0, s.Name)
			known.names = known.names[:min(len(known.names), maxNames)]
			c.renew(known)
		case i < 0 && len(known.names) < maxNames:
			known.names = append(known.names, s.Name)
		}
		if !known.confirmed && known.sessions == 0 {
			c.renew(known)
		}
	}
	known.confirmed, known.gateway = true, n.gateway
	c.notify()
}

// renew gives a server a new instance. It is called with mu held.
func (c *Connector) renew(s *server) {
	c.instance++
	s.instance = c.instance
}

// dropUnconfirmed drops the servers that were not announced again after a reconnect.
func (c *Connector) dropUnconfirmed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.servers {
		if !s.confirmed {
			delete(c.servers, id)
		}
	}
	c.notify()
}

// address returns the address of a server. A device that describes itself on the broker can
// have any identifier, so the address must not begin as those of such devices do.
func (c *Connector) address(id string) string { return "mcp:" + c.cfg.Broker + "/" + id }

// sightings returns all servers.
func (c *Connector) sightings() []transport.Sighting {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]transport.Sighting, 0, len(c.servers))
	for id, s := range c.servers {
		at := Server{ID: id, Name: s.names[0]}
		sighting := transport.Sighting{
			Address: c.address(id), Local: c.cfg.Local, Instance: s.instance, Transport: mqttclient.Name, Title: at.Name,
			Adopted: c.cfg.Adopt, Protocols: c.cfg.Protocols,
			Open: func(ctx context.Context) (transport.Link, error) { return c.open(ctx, at) },
		}
		switch {
		case c.lost != "":
			sighting.Absent = c.lost
		case !s.confirmed:
			sighting.Absent = "it was not announced again after the broker came back"
		}
		if s.gateway {
			// Two gateways that use each other would list each other's tools without end.
			sighting.Adopted, sighting.AdoptFirst = false, "it is a gateway itself, and its tools may include those of this one"
		}
		all = append(all, sighting)
	}
	slices.SortFunc(all, func(a, b transport.Sighting) int { return strings.Compare(a.Address, b.Address) })
	return all
}

// session counts the open sessions of a server.
func (c *Connector) session(id string, change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.servers[id]; s != nil {
		s.sessions += change
	}
}
