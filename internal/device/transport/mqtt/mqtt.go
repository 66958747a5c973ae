// Package mqtt is the medium of devices that dial in with MQTT, such as voice toys
// with stock xiaozhi firmware, which never subscribe: a broker is inside, and what
// is sent to a device is pushed to it unasked.
//
//	socket ─▶ limits ─▶ CONNECT ─▶ credential ─▶ broker ─▶ waits for Open
//	          (lobby)   (who?)     (Credentials) (mochi)   (lobby)
//
// It is no broker for anybody else. A device publishes to whatever topic it likes,
// and that goes to its link and nowhere else; it may subscribe, and gets what is
// sent to it and nothing else. Nothing is retained or stored.
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

// Medium is the name of the medium.
const Name = "mqtt"

// Config is what can be set about the medium.
type Config struct {
	// Lobby says which dialects to try, and bounds how many devices there are
	// and how often they come.
	Inbound inbound.Config
	// Packet is the length of the longest packet that is taken. A longer message
	// is dropped.
	MaxPacket int
	// Connect is how long a device has to say who it is.
	Connect time.Duration
	// Send bounds one message to a device.
	Send time.Duration
	// Topic is before the address in the topic of what is sent to a device, with
	// its colons as underscores. Stock firmware ignores it.
	Topic string
}

// DefaultConfig suits stock firmware.
func DefaultConfig() Config {
	return Config{
		Inbound: inbound.DefaultConfig(), MaxPacket: 64 << 10,
		Connect: 10 * time.Second, Send: 5 * time.Second, Topic: "devices/p2p/",
	}
}

// Check tells what is wrong with the config.
func (c Config) Check() error {
	if err := c.Inbound.Check(); err != nil {
		return err
	}
	if c.MaxPacket < maxConnect {
		return fmt.Errorf("packet: want at least %d bytes, got %d", maxConnect, c.MaxPacket)
	}
	for name, d := range map[string]time.Duration{"connect": c.Connect, "send": c.Send} {
		if d <= 0 {
			return fmt.Errorf("%s: want more than nothing, got %v", name, d)
		}
	}
	return checkTopic(c.Topic)
}

// Credentials tells devices of the owner from others.
type Credentials interface {
	// Check is asked before a device is answered. Address is the MAC that the
	// client id tells, or empty if it tells none: then the answer decides which
	// address it is. An error refuses the device: the credential is wrong, was
	// revoked or is another device's, or it is missing and strangers are not
	// welcome. Without one, a device that is not adopted comes in as a stranger.
	// Check may be called by many goroutines at once, and ends with ctx.
	Check(ctx context.Context, host netip.Addr, address, clientID, username, password string) (at, name string, adopted bool, err error)
}

// Connector is the wire.Connector of the medium.
type Connector struct {
	cfg      Config
	creds    Credentials
	ln       net.Listener
	log      *slog.Logger
	registry *inbound.Registry
	broker   *broker
}

// New makes a Connector of a config that was checked. Watch takes devices from
// ln, and closes it.
func New(cfg Config, ln net.Listener, creds Credentials, log *slog.Logger) *Connector {
	return &Connector{cfg: cfg, creds: creds, ln: ln, log: log, registry: inbound.New(Name, cfg.Inbound, log), broker: newBroker(cfg)}
}

// Drop ends the connection of an address, if there is one: its credential was
// revoked.
func (c *Connector) Drop(address string, why error) { c.registry.Drop(address, why) }

// Watch takes devices, and reports each as a group of its own, from when it waits
// until its link has ended.
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

// acceptPause is how long is waited after a connection could not be taken: there
// may be too many open files for a while.
const acceptPause = 100 * time.Millisecond

// accept takes connections until ctx ends, or nobody listens any more.
func (c *Connector) accept(ctx context.Context, wg *sync.WaitGroup) error {
	for trouble := false; ; {
		conn, err := c.ln.Accept()
		switch {
		case err == nil:
			trouble = false
			c.handle(ctx, wg, conn)
			continue
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("taking devices on %s: %w", c.ln.Addr(), err)
		}
		if !trouble {
			c.log.Error("devices cannot connect", "err", err)
		}
		trouble = true
		time.Sleep(acceptPause)
	}
}

// enter lets a connection in, if it may.
func (c *Connector) handle(ctx context.Context, wg *sync.WaitGroup, conn net.Conn) {
	host := inbound.HostOf(conn.RemoteAddr().String())
	place, err := c.registry.Accept(host)
	if err != nil {
		c.registry.LogRefusal(host, "", err)
		conn.Close()
		return
	}
	wg.Go(func() {
		if address, err := c.serve(ctx, conn, host, place); err != nil {
			c.registry.LogRefusal(host, address, err)
		}
	})
}
