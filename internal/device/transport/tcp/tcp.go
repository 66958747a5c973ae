// Package tcp connects to boards that listen on a TCP port, such as MCP/U firmware on
// Wi-Fi. Their addresses are configured: a board is always sighted, and dialed when it
// is opened.
//
//	configured address -> Sighting -> Link
package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// Name is the name of the transport.
const Name = "tcp"

// readBuffer is the size of the kernel's receive buffer. A small one keeps an answer
// from waiting behind megabytes of noise.
const readBuffer = 64 << 10

// Config lists the boards.
type Config struct {
	Boards []Board
	// Protocols are tried on each board, in order.
	Protocols []string
	// DialTimeout bounds one attempt to connect.
	DialTimeout time.Duration
	Limits      transport.Limits
}

// Board is one board.
type Board struct {
	// Address is host:port.
	Address string
	// Name is the device's ID; empty to derive it from what the board reports.
	Name string
	// Pending lists the board without trusting it.
	Pending bool
}

// DefaultConfig has no boards.
func DefaultConfig() Config {
	return Config{DialTimeout: 5 * time.Second, Limits: transport.DefaultLimits()}
}

// Check returns an error if the config is invalid.
func (c Config) Check() error {
	seen := make(map[string]bool)
	for _, b := range c.Boards {
		host, port, err := net.SplitHostPort(b.Address)
		if err != nil || host == "" {
			return fmt.Errorf("address %q: must be HOST:PORT, such as 192.168.1.20:4242", b.Address)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("address %q: port must be a number from 1 to 65535", b.Address)
		}
		if seen[b.Address] {
			return fmt.Errorf("address %q is configured twice", b.Address)
		}
		seen[b.Address] = true
	}
	return nil
}

// Connector is the transport.Connector for TCP.
type Connector struct {
	transport.FirstLook
	cfg     Config
	changed chan struct{} // signals Watch after Add or Set

	mu     sync.Mutex
	boards []Board
}

// New returns a Connector for a config that passed Check.
func New(cfg Config) *Connector {
	return &Connector{FirstLook: transport.NewFirstLook(), cfg: cfg, changed: make(chan struct{}, 1), boards: cfg.Boards}
}

// Add adds a board. Its address must be new.
func (c *Connector) Add(b Board) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boards = append(slices.Clip(c.boards), b)
	c.wake()
}

// Set replaces all boards. They must pass Check.
func (c *Connector) Set(boards []Board) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boards = boards
	c.wake()
}

// wake makes Watch look at the boards. Called with mu held.
func (c *Connector) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Watch reports each board when it is configured, as a group of its own: a listening
// board does not announce when it appears or disappears.
func (c *Connector) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	reported := make(map[string]Board) // by address
	for {
		c.mu.Lock()
		boards := c.boards
		c.mu.Unlock()
		now := make(map[string]Board)
		for _, b := range boards {
			now[b.Address] = b
		}
		for address := range reported { // first: a name may move to another board
			if _, ok := now[address]; !ok {
				update(Name+" "+address, nil)
			}
		}
		for _, b := range boards {
			if was, ok := reported[b.Address]; !ok || was != b {
				update(Name+" "+b.Address, []transport.Sighting{c.sighting(b)})
			}
		}
		reported = now
		c.EndLook()
		select {
		case <-c.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *Connector) sighting(b Board) transport.Sighting {
	return transport.Sighting{
		Address:   b.Address,
		Local:     loopback(b.Address),
		Instance:  1,
		Transport: Name,
		Name:      b.Name,
		Adopted:   !b.Pending,
		Protocols: c.cfg.Protocols,
		Open:      func(ctx context.Context) (transport.Link, error) { return c.open(ctx, b.Address) },
	}
}

// loopback reports whether an address is on this machine. On another machine, the same
// address belongs to another board.
func loopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// open dials a board. TCP keep-alive detects a board that lost power; its firmware is
// not involved.
func (c *Connector) open(ctx context.Context, address string) (transport.Link, error) {
	dialer := net.Dialer{
		Timeout:         c.cfg.DialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err // the message names the address already
		}
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetReadBuffer(readBuffer) // an error only costs latency
	}
	return transport.NewStream(conn, transport.Info{Transport: Name, Address: address}, c.cfg.Limits), nil
}
