package gateway

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/httpclient"
	"github.com/ferrulehq/ferrule/internal/device/transport/serial"
	"github.com/ferrulehq/ferrule/internal/device/transport/tcp"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// Requests holds the devices that are requested by address: in the configuration, on
// the command line, and by `ferrule mcp` processes that join.
type Requests struct {
	serial  *serial.Connector
	tcp     *tcp.Connector
	web     *httpclient.Connector
	settled func(context.Context)
	started chan struct{} // closed when the first devices are online or failed

	mu  sync.Mutex
	cfg config.Config
}

// newRequests builds the transports that connect to requested devices. Boards and
// servers are the protocols to try: over serial ports and TCP, and over HTTP.
func newRequests(cfg config.Config, boards, servers []string, log *slog.Logger) *Requests {
	return &Requests{
		serial: serial.New(cfg.Serial(boards)), tcp: tcp.New(cfg.TCP(boards)),
		web:     httpclient.New(cfg.HTTP(servers), cfg.DialIn.WebSocket(nil).Dial, log),
		started: make(chan struct{}), cfg: cfg,
	}
}

func (r *Requests) connectors() []transport.Connector {
	return []transport.Connector{r.serial, r.tcp, r.web}
}

// Run waits for the devices of the configuration, and then until ctx ends.
func (r *Requests) Run(ctx context.Context) error {
	r.settle(ctx)
	close(r.started)
	<-ctx.Done()
	return nil
}

// Add implements control.DeviceRequests. It waits until new devices are online or failed.
func (r *Requests) Add(ctx context.Context, requests []control.DeviceRequest) error {
	r.mu.Lock()
	before := len(requestsOf(r.cfg))
	var errs []error
	for _, request := range requests {
		errs = append(errs, r.add(request))
	}
	more := len(requestsOf(r.cfg)) > before
	r.mu.Unlock()
	select {
	case <-r.started:
	case <-ctx.Done():
	}
	if more {
		r.settle(ctx)
	}
	return errors.Join(errs...)
}

// settle waits until devices are online or failed.
func (r *Requests) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, control.SettleTime)
	defer cancel()
	r.settled(ctx)
}

// add adds a device, unless it is there already or its configuration is wrong. It is
// called with mu held.
func (r *Requests) add(request control.DeviceRequest) error {
	if slices.ContainsFunc(requestsOf(r.cfg), func(old control.DeviceRequest) bool {
		return old.Transport == request.Transport && old.Address == request.Address
	}) {
		return nil
	}
	more := r.cfg
	more.Devices = withDevice(r.cfg.Devices, request)
	if err := more.Check(); err != nil {
		return err
	}
	r.cfg = more
	switch ports, boards, servers := more.Serial(nil).Ports, more.TCP(nil).Boards, more.HTTP(nil).Devices; {
	case request.Transport == serial.Name:
		r.serial.Add(ports[len(ports)-1])
	case request.Transport == tcp.Name:
		r.tcp.Add(boards[len(boards)-1])
	case request.Address == config.Auto:
		r.web.Browse()
	case request.Transport == httpclient.Name:
		r.web.Add(servers[len(servers)-1])
	}
	return nil
}

// All implements control.DeviceRequests.
func (r *Requests) All() []control.DeviceRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return requestsOf(r.cfg)
}

// requestsOf returns the devices that a configuration names.
func requestsOf(cfg config.Config) []control.DeviceRequest {
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

// withDevice returns devices with one more.
func withDevice(devices config.Devices, request control.DeviceRequest) config.Devices {
	switch request.Transport {
	case serial.Name:
		devices.Serial = append(slices.Clip(devices.Serial), config.SerialDevice{
			Port: request.Address, Name: request.Name, Pending: request.Pending, Baud: request.Baud, Reset: request.Reset,
		})
	case tcp.Name:
		devices.TCP = append(slices.Clip(devices.TCP), config.TCPDevice{Address: request.Address, Name: request.Name, Pending: request.Pending})
	case httpclient.Name:
		devices.HTTP = append(slices.Clip(devices.HTTP), config.HTTPDevice{URL: request.Address, Name: request.Name, Pending: request.Pending})
	}
	return devices
}
