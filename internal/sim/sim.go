// Package sim is devices without hardware: boards that behave as real ones do,
// or misbehave as real ones do, on demand.
//
//	Fleet ─▶ Board         what the device is (built on thing)
//	     └─▶ Behaviour     what it does to the wire
//	Toys  ─▶ Toy           a voice toy (built on thing/xiaozhi)
//	Crowd ─▶ Toy           one that calls a gateway, by cables that can be cut
//	     └─▶ ToyBehaviour
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

// Config tells which boards to simulate.
type Config struct {
	// Addr is where the first board listens; further ones take the ports after
	// it, or any if the port is 0.
	Addr string
	// Count is how many boards there are.
	Count int
	// Misbehave names what is wrong with them; empty for nothing.
	Misbehave string
}

// Check tells what is wrong with the configuration.
func (c Config) Check() error {
	if _, err := findBehaviour(c.Misbehave); err != nil {
		return err
	}
	return c.checkPorts()
}

func (c Config) checkPorts() error {
	_, name, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return fmt.Errorf("want an address as HOST:PORT, got %q", c.Addr)
	}
	port, err := net.LookupPort("tcp", name)
	switch {
	case err != nil:
		return fmt.Errorf("want a port from 0 to %d, got %q", maxPort, name)
	case c.Count < 1:
		return fmt.Errorf("want a count of at least 1, got %d", c.Count)
	case port > 0 && c.Count-1 > maxPort-port:
		return fmt.Errorf("there are no %d ports from %d on: the last is %d; port 0 takes any that are free", c.Count, port, maxPort)
	}
	return nil
}

const maxPort = 65535

// Fleet is boards that listen.
type Fleet struct {
	behaviour Behavior
	Boards    []*Board
	ports
}

// Listen opens the ports of the boards. Whoever connects waits until Run.
func Listen(cfg Config) (*Fleet, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	behaviour, _ := findBehaviour(cfg.Misbehave) // it was checked
	all, err := listen(cfg, "board")
	if err != nil {
		return nil, err
	}
	f := &Fleet{behaviour: behaviour, ports: all}
	for range cfg.Count {
		f.Boards = append(f.Boards, newBoard(cmp.Or(behaviour.board, esp32)))
	}
	return f, nil
}

// writeBuffer is about what a board's network stack holds.
const writeBuffer = 8 << 10

// tick is how often samples are looked after, for all boards at once.
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

// serve lets one client in at a time, as firmware does: the next one waits,
// connected and unread.
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
		board.Reset() // begin() drives the outputs low
		(&conversation{Conn: c, board: board, behaviour: f.behaviour, number: n}).run(ctx)
	}
}
