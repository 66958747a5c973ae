package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/config"
	"github.com/ferrulehq/ferrule/front/control"
	"github.com/ferrulehq/ferrule/wire/serial"
	"github.com/ferrulehq/ferrule/wire/tcp"
)

// wishes is the devices that are asked for: in the file, on the command line, and
// by processes that join.
type wishes struct {
	serial  *serial.Connector
	tcp     *tcp.Connector
	settled func(context.Context)
	begun   chan struct{} // closed when the devices of the beginning are there, or cannot be reached

	mu  sync.Mutex
	cfg config.Config
}

func newWishes(cfg config.Config, dialects []string) *wishes {
	return &wishes{serial: serial.New(cfg.Serial(dialects)), tcp: tcp.New(cfg.TCP(dialects)), begun: make(chan struct{}), cfg: cfg}
}

// settleTime is how long is waited for devices before somebody is told of them.
const settleTime = 2 * time.Second

// Run waits for the devices of the beginning.
func (w *wishes) Run(ctx context.Context) error {
	w.settle(ctx)
	close(w.begun)
	<-ctx.Done()
	return nil
}

// Wish implements control.Wishes.
func (w *wishes) Wish(ctx context.Context, asked []control.Wish) error {
	w.mu.Lock()
	had := len(wishesOf(w.cfg))
	var errs []error
	for _, wish := range asked {
		errs = append(errs, w.grant(wish))
	}
	more := len(wishesOf(w.cfg)) > had
	w.mu.Unlock()
	select {
	case <-w.begun:
	case <-ctx.Done():
	}
	if more {
		w.settle(ctx)
	}
	return errors.Join(errs...)
}

// settle waits until devices are there, or cannot be reached.
func (w *wishes) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	w.settled(ctx)
}

// grant adds a device, unless it is asked for already or cannot be.
func (w *wishes) grant(wish control.Wish) error {
	if slices.ContainsFunc(wishesOf(w.cfg), func(had control.Wish) bool {
		return had.Medium == wish.Medium && had.Address == wish.Address
	}) {
		return nil
	}
	more := w.cfg
	more.Devices = withWish(w.cfg.Devices, wish)
	if err := more.Check(); err != nil {
		return err
	}
	w.cfg = more
	switch ports, boards := more.Serial(nil).Ports, more.TCP(nil).Boards; wish.Medium {
	case serial.Medium:
		w.serial.Add(ports[len(ports)-1])
	case tcp.Medium:
		w.tcp.Add(boards[len(boards)-1])
	}
	return nil
}

// Wishes implements control.Wishes.
func (w *wishes) Wishes() []control.Wish {
	w.mu.Lock()
	defer w.mu.Unlock()
	return wishesOf(w.cfg)
}

// wishesOf are the devices that a config asks for.
func wishesOf(cfg config.Config) []control.Wish {
	all := []control.Wish{}
	for _, d := range cfg.Devices.Serial {
		all = append(all, control.Wish{Medium: serial.Medium, Address: d.Port, Name: d.Name, Held: d.Held, Baud: d.Baud, Reset: d.Reset})
	}
	for _, d := range cfg.Devices.TCP {
		all = append(all, control.Wish{Medium: tcp.Medium, Address: d.Address, Name: d.Name, Held: d.Held})
	}
	return all
}

// withWish adds a device to those that a config asks for.
func withWish(devices config.Devices, wish control.Wish) config.Devices {
	switch wish.Medium {
	case serial.Medium:
		devices.Serial = append(slices.Clip(devices.Serial), config.SerialDevice{
			Port: wish.Address, Name: wish.Name, Held: wish.Held, Baud: wish.Baud, Reset: wish.Reset,
		})
	case tcp.Medium:
		devices.TCP = append(slices.Clip(devices.TCP), config.TCPDevice{Address: wish.Address, Name: wish.Name, Held: wish.Held})
	}
	return devices
}
