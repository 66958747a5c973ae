package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// Toys are voice toys that listen on TCP, with one message per line and several clients at a
// time.
type Toys struct {
	Toys []*Toy
	ports
}

// CheckToys returns an error if the configuration is invalid for toys.
func CheckToys(cfg Config) error {
	if _, err := findToyBehavior(cfg.Misbehave); err != nil {
		return err
	}
	return cfg.checkPorts()
}

// ListenToys opens the ports of the toys. Clients wait until Run.
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

// serveToy serves all clients, as boards with their own server do.
func serveToy(ctx context.Context, toy *Toy, ln net.Listener, wg *sync.WaitGroup) error {
	for {
		conn, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("accepting: %w", err)
		}
		wg.Go(func() { toy.ServeConn(ctx, xiaozhi.Lines(conn), true) }) // an error ends only this client
	}
}
