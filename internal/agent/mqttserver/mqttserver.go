// Package mqttserver offers the gateway to agents on an MQTT broker (MCP over MQTT).
//
//	agent --initialize--> control topic --> session --> Server --> pipeline
//	agent <-------------- rpc topic ------> session
//
// The gateway announces itself with a retained message, which the broker removes when the
// connection ends. Each client has one session of the Server. When the client or the
// connection to the broker is gone, its session ends and its calls are cancelled; they may
// have run. A request with an ID that was used before in its session is dropped: it may
// be delivered twice, and must not run twice.
//
// The broker decides who may talk to the gateway. All agents of a broker are one
// principal, since a client can claim any ID.
package mqttserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mcpmqtt"
	"github.com/ferrulehq/ferrule/internal/device/transport/mqttclient"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Config is one offer at one broker.
type Config struct {
	// Broker is the name of the broker. The journal shows its agents as mqtt:BROKER.
	Broker string
	// Server is the identity of the gateway on the broker.
	Server mcpmqtt.Server
	// Description is what agents read about the gateway before they connect.
	Description string
	// Client is how to connect to the broker.
	Client mqttclient.Config
}

// Server serves MCP to one principal on a pair of streams, one message per line, until in
// ends; then calls in progress are cancelled.
type Server interface {
	Serve(ctx context.Context, caller ferrule.Principal, page int, in io.ReadCloser, out io.WriteCloser) error
}

// Parts are what New needs.
type Parts struct {
	Config Config
	Server Server
	// Check returns an error for a message that would end its session in the Server.
	Check func(line []byte) error
	Log   *slog.Logger
}

// Limits of what clients can use.
const (
	maxSessions   = 64
	maxMessage    = 256 << 10
	maxQueue      = 64
	maxQueueBytes = 1 << 20
	// maxIDs is how many request IDs of a session are remembered.
	maxIDs = 4096
)

// Timeouts.
const (
	brokerTimeout = 5 * time.Second // for an answer of the broker
	// pingAfter is the silence after which a client gets a ping. The broker says if the
	// client is gone; an answer is not needed.
	pingAfter = 5 * time.Minute
	// maxSilence ends a session at a broker that does not say it.
	maxSilence = 24 * time.Hour
)

// Offer is the gateway as a server on one broker.
type Offer struct {
	parts Parts

	mu      sync.Mutex
	problem string
}

// New returns an Offer. Run connects it.
func New(p Parts) (*Offer, error) {
	return &Offer{parts: p}, p.Config.Server.Check()
}

// Problem says why the gateway is not offered; "" if it is.
func (o *Offer) Problem() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.problem
}

// set sets the problem and logs a new one.
func (o *Offer) set(err error) {
	problem := ""
	if err != nil {
		problem = "does not offer this gateway to agents: " + err.Error()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if problem != "" && problem != o.problem {
		o.parts.Log.Warn("the gateway is not offered on the broker", "err", err)
	}
	o.problem = problem
}

// Run serves agents until ctx ends.
func (o *Offer) Run(ctx context.Context) error {
	cfg, s := o.parts.Config.Client, o.parts.Config.Server
	cfg.ClientID, cfg.Properties = s.ID, mcpmqtt.ConnectProperties(mcpmqtt.TypeServer)
	cfg.Will = &mqttclient.Publication{Topic: s.Presence(), Retain: true, QoS: 1, Properties: mcpmqtt.PublishProperties(mcpmqtt.TypeServer, s.ID)}
	client := mqttclient.New(cfg, o.parts.Log)
	// The connection must outlive the sessions, which say goodbye.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- client.Run(running) }()
	defer stop()
	for {
		conn, err := client.Connect(ctx)
		if err == nil {
			err = o.serve(ctx, conn)
		}
		if ctx.Err() != nil {
			stop()
			return <-ended
		}
		if conn.Err() == nil {
			o.set(err)
		}
		select {
		case <-conn.Done(): // all sessions are forgotten
		case <-ctx.Done():
		case err := <-ended:
			return err
		}
	}
}

// serve serves agents until the connection or ctx ends.
func (o *Offer) serve(ctx context.Context, conn *mqttclient.Conn) error {
	if conn.Version() < 5 {
		return mcpmqtt.ErrVersion
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &host{parts: o.parts, server: o.parts.Config.Server, conn: conn, starts: make(chan mqttclient.Message, maxSessions), sessions: make(map[string]*session)}
	if name := mcpmqtt.GivenName(conn); name != "" {
		h.server.Name = name // the broker has changed the topic of the will as well
		if err := h.server.Check(); err != nil {
			return fmt.Errorf("the broker gave it an unusable name: %w", err)
		}
	}
	if err := h.begin(ctx); err != nil {
		return err
	}
	o.set(nil)
	o.parts.Log.Info("the gateway is offered to agents on the broker", "name", h.server.Name, "id", h.server.ID)
	h.run(ctx)
	return nil
}

// begin subscribes and announces the gateway.
func (h *host) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	_, err := h.conn.Subscribe(ctx, h.hear, mqttclient.Filter{Topic: h.server.Control(), QoS: 1})
	if err != nil {
		return err
	}
	err = h.conn.Publish(ctx, mqttclient.Publication{
		Topic: h.server.Presence(), Payload: mcpmqtt.Online(h.server.Name, h.parts.Config.Description), QoS: 1, Retain: true,
		Properties: mcpmqtt.PublishProperties(mcpmqtt.TypeServer, h.server.ID),
	})
	var nobody *transport.Undelivered
	if errors.As(err, &nobody) && !nobody.Denied {
		return nil // it is kept for later
	}
	return err
}
