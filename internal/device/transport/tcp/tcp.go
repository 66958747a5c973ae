// Package tcp is the medium of boards that listen on a TCP port, such as MCP/U
// firmware on Wi-Fi. Their addresses are known beforehand: they are always
// sighted, and dialled when opened.
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

// Medium is the name of the medium.
const Name = "tcp"

// readBuffer is what the kernel holds of what a board sends. A small one keeps an
// answer from waiting behind megabytes of noise.
const readBuffer = 64 << 10

// Config tells which boards there are.
type Config struct {
	Boards []Board
	// Dialects names the grammars to try on each.
	Protocols []string
	// DialTimeout bounds one attempt to connect.
	DialTimeout time.Duration
	Limits      transport.Limits
}

// Board is one board.
type Board struct {
	// Address is host:port.
	Address string
	// Name is the device's ID; empty to let it follow what the board says.
	Name string
	// Held lists the board without trusting it.
	Pending bool
}

// DefaultConfig has no boards.
func DefaultConfig() Config {
	return Config{DialTimeout: 5 * time.Second, Limits: transport.DefaultLimits()}
}

// Check tells what is wrong with the config.
func (c Config) Check() error {
	seen := make(map[string]bool)
	for _, b := range c.Boards {
		host, port, err := net.SplitHostPort(b.Address)
		if err != nil || host == "" {
			return fmt.Errorf("address %q: want HOST:PORT, such as 192.168.1.20:4242", b.Address)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("address %q: the port must be a number from 1 to 65535", b.Address)
		}
		if seen[b.Address] {
			return fmt.Errorf("address %q is given twice", b.Address)
		}
		seen[b.Address] = true
	}
	return nil
}

// Connector is the wire.Connector of the medium.
type Connector struct {
	cfg  Config
	added chan struct{} // holds something if there are boards that Watch has not reported

	mu     sync.Mutex
	boards []Board
}

// New makes a Connector of a config that was checked.
func New(cfg Config) *Connector {
	return &Connector{cfg: cfg, added: make(chan struct{}, 1), boards: cfg.Boards}
}

// Add asks for one more board. Its address is not asked for yet.
func (c *Connector) Add(b Board) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boards = append(slices.Clip(c.boards), b)
	select {
	case c.added <- struct{}{}:
	default:
	}
}

// Watch reports each board once, as a group of its own: a listening board
// announces neither that it comes nor that it goes.
func (c *Connector) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	for reported := 0; ; {
		c.mu.Lock()
		boards := c.boards[reported:]
		c.mu.Unlock()
		for _, b := range boards {
			update(Name+" "+b.Address, []transport.Sighting{c.sighting(b)})
		}
		reported += len(boards)
		select {
		case <-c.added:
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

// loopback tells whether an address is on this machine, where on another machine
// there is another board, or none.
func loopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// open dials a board. Keep-alive is on, and answered by the kernels alone: it
// finds a board that lost power without anything being sent to its firmware.
func (c *Connector) open(ctx context.Context, address string) (transport.Link, error) {
	dialer := net.Dialer{
		Timeout:         c.cfg.DialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err // the address is known
		}
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetReadBuffer(readBuffer) // it works without, only less well
	}
	return transport.NewStream(conn, transport.Info{Transport: Name, Address: address}, c.cfg.Limits), nil
}
