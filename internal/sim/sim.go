// Package sim simulates devices without hardware, well-behaved or with the faults of real
// ones.
//
//	Fleet      ─▶ Board        an MCP/U board (built on thing)
//	           └─▶ Behavior    what it does wrong
//	Toys       ─▶ Toy          a voice toy (built on thing/xiaozhi) that listens on TCP
//	ToyClients ─▶ Toy          voice toys that connect to a gateway
//	           └─▶ ToyBehavior
//	Web        ─▶ Board        a board that serves MCP over HTTP, as mcpd does
//	Home       ─▶ homeDevice   devices that describe themselves on an MQTT broker
package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Config configures the boards of a Fleet, or Toys.
type Config struct {
	// Addr is where the first board listens. Further boards use the following ports, or
	// any free ones if the port is 0.
	Addr string
	// Count is the number of boards.
	Count int
	// Misbehave is the name of a Behavior, or "".
	Misbehave string
}

// Check returns an error if the configuration is invalid.
func (c Config) Check() error {
	if _, err := findBehavior(c.Misbehave); err != nil {
		return err
	}
	return c.checkPorts()
}

func (c Config) checkPorts() error {
	_, name, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return fmt.Errorf("address must be HOST:PORT, got %q", c.Addr)
	}
	port, err := net.LookupPort("tcp", name)
	switch {
	case err != nil:
		return fmt.Errorf("port must be between 0 and %d, got %q", maxPort, name)
	case c.Count < 1:
		return fmt.Errorf("count must be at least 1, got %d", c.Count)
	case port > 0 && c.Count-1 > maxPort-port:
		return fmt.Errorf("not enough ports for %d devices from %d on, the last port is %d: use port 0 for any free ports", c.Count, port, maxPort)
	}
	return nil
}

const maxPort = 65535

// Fleet is a number of boards that listen on TCP.
type Fleet struct {
	behavior Behavior
	Boards   []*Board
	ports
}

// Listen opens the ports of the boards. Clients wait until Run.
func Listen(cfg Config) (*Fleet, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	behavior, _ := findBehavior(cfg.Misbehave) // cannot fail after Check
	all, err := listen(cfg, "board")
	if err != nil {
		return nil, err
	}
	f := &Fleet{behavior: behavior, ports: all}
	for range cfg.Count {
		f.Boards = append(f.Boards, newBoard(cmp.Or(behavior.board, esp32)))
	}
	return f, nil
}

// writeBuffer is about the size of a board's network buffer.
const writeBuffer = 8 << 10

// tick is how often all boards take samples.
const tick = 100 * time.Millisecond

// Run serves the boards until ctx ends; it then returns nil.
func (f *Fleet) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, f.close)
	defer stop()
	var wg sync.WaitGroup
	errs := make(chan error, len(f.Boards))
	for i, board := range f.Boards {
		wg.Go(func() {
			if err := f.serve(ctx, board, f.ports[i]); err != nil {
				errs <- err
				cancel()
			}
		})
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case now := <-ticker.C:
			for _, board := range f.Boards {
				board.Tick(now)
			}
		case <-ctx.Done():
		}
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// serve serves one client at a time, as firmware does. The next client is connected, but
// nothing is read from it.
func (f *Fleet) serve(ctx context.Context, board *Board, ln net.Listener) error {
	for n := 1; ; n++ {
		c, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("accepting: %w", err)
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetWriteBuffer(writeBuffer)
		}
		board.Reset() // begin() of the firmware drives the outputs low
		(&boardSession{Conn: c, board: board, behavior: f.behavior, number: n}).run(ctx)
	}
}
