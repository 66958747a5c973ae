// Package mqtt accepts devices that connect with MQTT, such as voice toys with stock
// xiaozhi firmware. It contains a broker. Stock firmware never subscribes, so messages
// are pushed to a device without a subscription.
//
//	socket -> Accept  -> CONNECT -> Credentials -> broker  -> Register -> Link
//	          (limits)                             (mochi)    (waits for Open)
//
// The broker serves these devices only. A device may publish to any topic; its messages
// go to its link and nowhere else. It may subscribe, and gets only what is sent to it.
// Nothing is retained or stored.
package mqtt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
)

// Name is the name of the transport.
const Name = "mqtt"

// Config configures a Connector.
type Config struct {
	// Inbound lists the protocols to try, and limits the connections.
	Inbound inbound.Config
	// MaxPacket is the length of the longest packet in bytes. A longer message is
	// dropped.
	MaxPacket int
	// Connect bounds the time until a device has sent its CONNECT.
	Connect time.Duration
	// Send bounds the time to send one message.
	Send time.Duration
	// Topic is the prefix of the topic of messages to a device. The address follows,
	// with underscores for colons. Stock firmware ignores the topic.
	Topic string
}

// DefaultConfig suits stock firmware.
func DefaultConfig() Config {
	return Config{
		Inbound: inbound.DefaultConfig(), MaxPacket: 64 << 10,
		Connect: 10 * time.Second, Send: 5 * time.Second, Topic: "devices/p2p/",
	}
}

// Check returns an error if the config is invalid.
func (c Config) Check() error {
	if err := c.Inbound.Check(); err != nil {
		return err
	}
	if c.MaxPacket < maxConnect {
		return fmt.Errorf("packet: must be at least %d bytes, got %d", maxConnect, c.MaxPacket)
	}
	for name, d := range map[string]time.Duration{"connect": c.Connect, "send": c.Send} {
		if d <= 0 {
			return fmt.Errorf("%s: must be greater than 0, got %v", name, d)
		}
	}
	return checkTopic(c.Topic)
}

// Credentials checks the credentials of devices.
type Credentials interface {
	// Check is called before a device is answered. Address is the MAC in the client
	// ID; if that has none, it is empty and Check returns the address. Check returns
	// an error to refuse the device: its credential is wrong, revoked or another
	// device's, or missing where one is required. Without an error, a device that is
	// not adopted connects as a stranger. Check may be called concurrently and
	// returns when ctx ends.
	Check(ctx context.Context, host netip.Addr, address, clientID, username, password string) (at, name string, adopted bool, err error)
}

// Connector is the transport.Connector for inbound MQTT.
type Connector struct {
	cfg      Config
	creds    Credentials
	ln       net.Listener
	log      *slog.Logger
	registry *inbound.Registry
	broker   *broker
}

// New returns a Connector for a config that passed Check. Watch accepts devices on ln
// and closes it.
func New(cfg Config, ln net.Listener, creds Credentials, log *slog.Logger) *Connector {
	return &Connector{cfg: cfg, creds: creds, ln: ln, log: log, registry: inbound.New(Name, cfg.Inbound, log), broker: newBroker(cfg)}
}

// Drop ends the connection of an address, because its credential was revoked.
func (c *Connector) Drop(address string, reason error) { c.registry.Drop(address, reason) }

// Watch accepts devices and reports each as a group of its own, until its link has
// ended.
func (c *Connector) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.ln.Close() })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	var failed error
	wg.Go(func() {
		defer cancel()
		failed = c.accept(ctx, &wg)
	})
	if err := c.registry.Watch(ctx, update); err != nil {
		return err
	}
	wg.Wait()
	return failed
}

// acceptPause is the wait after a failed accept: there may be too many open files for a
// while.
const acceptPause = 100 * time.Millisecond

// accept accepts connections until ctx ends or the listener is closed.
func (c *Connector) accept(ctx context.Context, wg *sync.WaitGroup) error {
	for failing := false; ; {
		conn, err := c.ln.Accept()
		switch {
		case err == nil:
			failing = false
			c.handle(ctx, wg, conn)
			continue
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accepting devices on %s: %w", c.ln.Addr(), err)
		}
		if !failing {
			c.log.Error("accepting a connection failed", "err", err)
		}
		failing = true
		time.Sleep(acceptPause)
	}
}

// handle serves a connection if the limits allow it.
func (c *Connector) handle(ctx context.Context, wg *sync.WaitGroup, conn net.Conn) {
	host := inbound.HostOf(conn.RemoteAddr().String())
	entry, err := c.registry.Accept(host)
	if err != nil {
		c.registry.LogRefusal(host, "", err)
		conn.Close()
		return
	}
	wg.Go(func() {
		if address, err := c.serve(ctx, conn, host, entry); err != nil {
			c.registry.LogRefusal(host, address, err)
		}
	})
}
