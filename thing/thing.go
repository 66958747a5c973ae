// Package thing is for writing a device in Go that describes itself: what it
// says of itself over MCP/U is made of what is declared.
//
//	board := thing.New("greenhouse", "1.0.0")
//	board.Output(2, "pump", "Water pump", func(on bool) error { … })
//	board.Analog(34, "moisture", "Soil moisture", func() int { … }).
//		Sampled(time.Second, 120).Summary()
//	thing.Tool(board, "water", "Water for some seconds",
//		func(ctx context.Context, in Watering) (Watered, error) { … })
//	err := board.ServeTCP(ctx, listener)
//
// It shares the specification with the gateway and no code, so that each proves
// the other.
package thing

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Device is a device in the making, and then the device. Pins and tools are
// declared before it is served. It does one thing at a time.
type Device struct {
	// Platform is what get_info says it runs on.
	Platform string
	// Profile is the memory profile in get_info; empty to leave it out, as
	// suits a device whose requests may have any length.
	Profile string

	name, version string
	within        func(ctx context.Context) context.Context // of a twin; else nil

	turn  sync.Mutex // held while a request is answered
	mu    sync.Mutex // not held while a tool runs, so that tools can use the device
	pins  []*Pin
	tools []*tool
}

// New begins a device. Its name is that of its model: every one made like it
// has the same.
func New(name, version string) *Device {
	return &Device{name: name, version: version, Platform: "go"}
}

// Serve answers requests on rw until it ends or ctx does; it then returns nil.
// If rw can be closed, it is when ctx ends.
func (d *Device) Serve(ctx context.Context, rw io.ReadWriter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c, ok := rw.(io.Closer); ok {
		stop := context.AfterFunc(ctx, func() { c.Close() })
		defer stop()
	}
	defer d.sample(ctx)()
	in := bufio.NewReaderSize(rw, maxRequest)
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) { // dispatched as it is, like firmware does
			err = nil
		}
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading requests: %w", err)
		}
		if answer := d.Answer(ctx, line); answer != nil {
			if _, err := rw.Write(answer); err != nil {
				return fmt.Errorf("writing an answer: %w", err)
			}
		}
	}
}

// maxRequest is the longest request that is read as one.
const maxRequest = 64 << 10

// ServeTCP serves whoever connects, one after the other, until ctx ends; it then
// returns nil. It closes ln.
func (d *Device) ServeTCP(ctx context.Context, ln net.Listener) error {
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	defer ln.Close()
	for {
		conn, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accepting: %w", err)
		}
		d.Serve(ctx, conn) // how one client ends is no matter to the next
		conn.Close()
	}
}

// sample has samples taken while the device is served, if any pin wants them.
// The function that it returns ends that.
func (d *Device) sample(ctx context.Context) (stop func()) {
	next, any := d.Tick(time.Now())
	if !any {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-time.After(time.Until(next)):
				next, _ = d.Tick(now)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// Tick takes the samples that are due, and tells when the next one is. Serve
// sees to that; who serves very many devices with Answer can do it for all of
// them at once.
func (d *Device) Tick(now time.Time) (next time.Time, any bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.pins {
		if p.interval == 0 {
			continue
		}
		due := p.tick(now)
		if !any || due.Before(next) {
			next, any = due, true
		}
	}
	return next, any
}
