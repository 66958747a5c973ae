package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/httpclient"
	"github.com/ferrulehq/ferrule/internal/device/transport/serial"
	"github.com/ferrulehq/ferrule/internal/device/transport/tcp"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// wishes is the devices that are asked for: in the file, on the command line, and
// by processes that join.
type wishes struct {
	serial  *serial.Connector
	tcp     *tcp.Connector
	web     *httpclient.Connector
	settled func(context.Context)
	begun   chan struct{} // closed when the devices of the beginning are there, or cannot be reached

	mu  sync.Mutex
	cfg config.Config
}

// newWishes makes the media that are told of devices. Boards are those that speak on
// ports and lines, and servers those that speak HTTP.
func newWishes(cfg config.Config, boards, servers []string, log *slog.Logger) *wishes {
	return &wishes{
		serial: serial.New(cfg.Serial(boards)), tcp: tcp.New(cfg.TCP(boards)),
		web:   httpclient.New(cfg.HTTP(servers), cfg.DialIn.WebSocket(nil).Dial, log),
		begun: make(chan struct{}), cfg: cfg,
	}
}

func (w *wishes) connectors() []transport.Connector {
	return []transport.Connector{w.serial, w.tcp, w.web}
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

// Add implements control.DeviceRequests.
func (w *wishes) Add(ctx context.Context, asked []control.DeviceRequest) error {
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
func (w *wishes) grant(wish control.DeviceRequest) error {
	if slices.ContainsFunc(wishesOf(w.cfg), func(had control.DeviceRequest) bool {
		return had.Transport == wish.Transport && had.Address == wish.Address
	}) {
		return nil
	}
	more := w.cfg
	more.Devices = withWish(w.cfg.Devices, wish)
	if err := more.Check(); err != nil {
		return err
	}
	w.cfg = more
	switch ports, boards, servers := more.Serial(nil).Ports, more.TCP(nil).Boards, more.HTTP(nil).Devices; {
	case wish.Transport == serial.Name:
		w.serial.Add(ports[len(ports)-1])
	case wish.Transport == tcp.Name:
		w.tcp.Add(boards[len(boards)-1])
	case wish.Address == config.Auto:
		w.web.Browse()
	case wish.Transport == httpclient.Name:
		w.web.Add(servers[len(servers)-1])
	}
	return nil
}

// All implements control.DeviceRequests.
func (w *wishes) All() []control.DeviceRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return wishesOf(w.cfg)
}

// wishesOf are the devices that a config asks for.
func wishesOf(cfg config.Config) []control.DeviceRequest {
	all := []control.DeviceRequest{}
	for _, d := range cfg.Devices.Serial {
		all = append(all, control.DeviceRequest{Transport: serial.Name, Address: d.Port, Name: d.Name, Pending: d.Pending, Baud: d.Baud, Reset: d.Reset})
	}
	for _, d := range cfg.Devices.TCP {
		all = append(all, control.DeviceRequest{Transport: tcp.Name, Address: d.Address, Name: d.Name, Pending: d.Pending})
	}
	for _, d := range cfg.Devices.HTTP {
		all = append(all, control.DeviceRequest{Transport: httpclient.Name, Address: d.URL, Name: d.Name, Pending: d.Pending})
	}
	return all
}

// withWish adds a device to those that a config asks for.
func withWish(devices config.Devices, wish control.DeviceRequest) config.Devices {
	switch wish.Transport {
	case serial.Name:
		devices.Serial = append(slices.Clip(devices.Serial), config.SerialDevice{
			Port: wish.Address, Name: wish.Name, Pending: wish.Pending, Baud: wish.Baud, Reset: wish.Reset,
		})
	case tcp.Name:
		devices.TCP = append(slices.Clip(devices.TCP), config.TCPDevice{Address: wish.Address, Name: wish.Name, Pending: wish.Pending})
	case httpclient.Name:
		devices.HTTP = append(slices.Clip(devices.HTTP), config.HTTPDevice{URL: wish.Address, Name: wish.Name, Pending: wish.Pending})
	}
	return devices
}
