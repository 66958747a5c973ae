package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// Toys is voice toys that listen: one message a line over TCP, and several clients
// at a time.
type Toys struct {
	Toys []*Toy
	ports
}

// CheckToys tells what is wrong with a configuration of toys.
func CheckToys(cfg Config) error {
	if _, err := findToyBehaviour(cfg.Misbehave); err != nil {
		return err
	}
	return cfg.checkPorts()
}

// ListenToys opens the ports of toys. Whoever connects waits until Run.
func ListenToys(cfg Config) (*Toys, error) {
	if err := CheckToys(cfg); err != nil {
		return nil, err
	}
	toys, err := newToys(1, cfg.Count, cfg.Misbehave)
	if err != nil {
		return nil, err
	}
	ports, err := listen(cfg, "toy")
	return &Toys{toys, ports}, err
}

// Run serves the toys until ctx ends; it then returns nil.
func (a *Toys) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, a.close)
	defer stop()
	var wg sync.WaitGroup
	errs := make(chan error, len(a.Toys))
	for i, toy := range a.Toys {
		wg.Go(func() {
			if err := serveToy(ctx, toy, a.ports[i], &wg); err != nil {
				errs <- err
				cancel()
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// serveToy talks with whoever connects, as boards do that have a server of their
// own.
func serveToy(ctx context.Context, toy *Toy, ln net.Listener, wg *sync.WaitGroup) error {
	for {
		conn, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("accepting: %w", err)
		}
		wg.Go(func() { toy.Talk(ctx, xiaozhi.Lines(conn), true) }) // how one client ends is no matter to the others
	}
}
