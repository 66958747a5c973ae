package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/httpclient"
	"github.com/ferrulehq/ferrule/internal/device/transport/plugin"
	"github.com/ferrulehq/ferrule/internal/device/transport/serial"
	"github.com/ferrulehq/ferrule/internal/device/transport/tcp"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// Requests holds the devices that are requested by address: in the configuration, on
// the command line, and by `ferrule mcp` processes that join.
type Requests struct {
	serial  *serial.Connector
	tcp     *tcp.Connector
	web     *httpclient.Connector
	brokers *brokers
	homes   *homes
	plugins *plugin.Connector
	settled func(ctx context.Context, calm time.Duration)
	started chan struct{} // closed when the first devices are online or failed

	mu    sync.Mutex
	cfg   config.Config           // with all devices
	added []control.DeviceRequest // by `ferrule mcp` processes
	// revisions are those of the token files, by URL.
	revisions map[string]string
}

// newRequests builds the transports that connect to requested devices. Boards and
// servers are the protocols to try: over serial ports and TCP, and over HTTP and to plugins.
func newRequests(cfg config.Config, boards, servers []string, log *slog.Logger) *Requests {
	web, revisions := withRevisions(cfg.HTTP(servers))
	return &Requests{
		serial: serial.New(cfg.Serial(boards)), tcp: tcp.New(cfg.TCP(boards)),
		web:     httpclient.New(web, cfg.DialIn.WebSocket(nil).Dial, log),
		brokers: newBrokers(cfg.Brokers(), log), homes: newHomes(cfg.Homes(), log),
		plugins: plugin.New(cfg.PluginConfig(servers), log),
		started: make(chan struct{}), cfg: cfg, revisions: revisions,
	}
}

// withRevisions sets the revisions of token files, so that a device whose token changed is
// connected again. It returns them by URL.
func withRevisions(cfg httpclient.Config) (httpclient.Config, map[string]string) {
	revisions := make(map[string]string)
	for i, d := range cfg.Devices {
		if d.TokenFile == "" {
			continue
		}
		text, err := os.ReadFile(d.TokenFile)
		if err != nil {
			text = []byte(err.Error()) // reported when the device is opened
		}
		sum := sha256.Sum256(text)
		cfg.Devices[i].Revision = hex.EncodeToString(sum[:])
		revisions[d.URL] = cfg.Devices[i].Revision
	}
	return cfg, revisions
}

func (r *Requests) connectors() []transport.Connector {
	return []transport.Connector{r.serial, r.tcp, r.web, r.brokers, r.homes, r.plugins}
}

// Run waits for the devices of the configuration, and then until ctx ends.
func (r *Requests) Run(ctx context.Context) error {
	r.mu.Lock()
	cfg, calm := r.cfg, time.Duration(0)
	r.mu.Unlock()
	if len(cfg.Brokers()) > 0 || len(cfg.Homes()) > 0 || cfg.HTTP(nil).Browse {
		calm = searchTime
	}
	r.settle(ctx, calm)
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
		r.settle(ctx, searchTime)
	}
	return errors.Join(errs...)
}

// searchTime is how long no new device must have been greeted until those that are searched for,
// or were added a moment ago, count as found.
const searchTime = 80 * time.Millisecond

// settle waits until devices are online or failed.
func (r *Requests) settle(ctx context.Context, calm time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, control.SettleTime)
	defer cancel()
	r.brokers.settle(ctx)
	r.homes.settle(ctx)
	r.settled(ctx, calm)
}

// add adds a device, unless it is there already or its configuration is wrong. It is
// called with mu held.
func (r *Requests) add(request control.DeviceRequest) error {
	if hasDevice(r.cfg, request) {
		return nil
	}
	more := r.cfg
	more.Devices = withDevice(r.cfg.Devices, request)
	if err := more.Check(); err != nil {
		return err
	}
	r.cfg, r.added = more, append(r.added, request)
	switch ports, boards, servers := more.Serial(nil).Ports, more.TCP(nil).Boards, more.HTTP(nil).Devices; {
	case request.Transport == serial.Name:
		r.serial.Add(ports[len(ports)-1])
	case request.Transport == mqttclient.Name:
		r.brokers.set(more.Brokers())
	case request.Transport == homeassistant.Name:
		r.homes.set(more.Homes())
	case request.Transport == tcp.Name:
		r.tcp.Add(boards[len(boards)-1])
	case request.Address == config.Auto:
		r.web.Browse()
	case request.Transport == httpclient.Name:
		r.web.Add(servers[len(servers)-1])
	}
	return nil
}

// replace connects the devices of another configuration instead, besides those that
// processes added. Devices that both configurations have stay connected. It changes
// nothing if it returns an error.
func (r *Requests) replace(next config.Config, done *control.Reloaded) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	browse := control.DeviceRequest{Transport: httpclient.Name, Address: config.Auto}
	if hasDevice(r.cfg, browse) && !hasDevice(next, browse) {
		next.Devices = withDevice(next.Devices, browse)
		done.Restart = append(done.Restart, "devices.http: url auto stays on")
	}
	for _, request := range r.added {
		if !hasDevice(next, request) {
			next.Devices = withDevice(next.Devices, request)
		}
	}
	if err := next.Check(); err != nil {
		return err
	}
	if hasDevice(next, browse) {
		r.web.Browse()
	}
	r.serial.Set(next.Serial(nil).Ports)
	r.tcp.Set(next.TCP(nil).Boards)
	web, revisions := withRevisions(next.HTTP(nil))
	r.web.Set(web.Devices)
	r.brokers.set(next.Brokers())
	r.homes.set(next.Homes())
	r.plugins.Set(next.PluginConfig(nil).Plugins)
	compareDevices(r.cfg.Devices, next.Devices, done)
	comparePlugins(r.cfg.Plugins, next.Plugins, done)
	for _, d := range web.Devices {
		if was, known := r.revisions[d.URL]; known && d.TokenFile != "" && was != d.Revision {
			done.Applied = append(done.Applied, "devices.http: another token for "+d.URL)
		}
	}
	r.cfg, r.revisions = next, revisions
	return nil
}

// compareDevices reports what is different about devices.
func compareDevices(from, to config.Devices, done *control.Reloaded) {
	before, after := entriesOf(from), entriesOf(to)
	find := func(all []deviceEntry, d deviceEntry) (deviceEntry, bool) {
		i := slices.IndexFunc(all, func(other deviceEntry) bool { return other.transport == d.transport && other.address == d.address })
		if i < 0 {
			return d, false
		}
		return all[i], true
	}
	for _, d := range after {
		switch was, known := find(before, d); {
		case !known:
			done.Applied = append(done.Applied, fmt.Sprintf("devices.%s: %s was added", d.transport, d))
		case was.settings == d.settings:
		case d.transport == serial.Name && (was.name != d.name || was.pending != d.pending):
			done.Restart = append(done.Restart, fmt.Sprintf("devices.serial: the name and trust of %s, unless you plug it in again", d.address))
		case d.transport == serial.Name:
			done.Applied = append(done.Applied, fmt.Sprintf("devices.serial: %s changed, for when its port is opened next", d))
		default:
			done.Applied = append(done.Applied, fmt.Sprintf("devices.%s: %s changed", d.transport, d))
		}
	}
	for _, d := range before {
		if _, known := find(after, d); !known && (d.transport == mqttclient.Name || d.transport == homeassistant.Name) {
			done.Applied = append(done.Applied, fmt.Sprintf("devices.%s: %s was removed, and its devices are listed as offline until you forget them", d.transport, d))
		} else if !known {
			done.Applied = append(done.Applied, fmt.Sprintf("devices.%s: %s was removed, and is listed as offline until you forget it", d.transport, d))
		}
	}
}

// deviceEntry is a device in a configuration.
type deviceEntry struct {
	transport, address, name string
	pending                  bool
	settings                 any // everything, comparable
}

func (d deviceEntry) String() string {
	if d.name == "" {
		return d.address
	}
	return d.name + " at " + d.address
}

func entriesOf(devices config.Devices) (all []deviceEntry) {
	for _, d := range devices.Serial {
		all = append(all, deviceEntry{serial.Name, d.Port, d.Name, d.Pending, d})
	}
	for _, d := range devices.TCP {
		all = append(all, deviceEntry{tcp.Name, d.Address, d.Name, d.Pending, d})
	}
	for _, d := range devices.HTTP {
		all = append(all, deviceEntry{httpclient.Name, d.URL, d.Name, d.Pending, d})
	}
	for _, b := range (config.Config{Devices: devices}).Brokers() {
		all = append(all, deviceEntry{mqttclient.Name, b.URL, b.Name, false, b})
	}
	for _, h := range (config.Config{Devices: devices}).Homes() {
		all = append(all, deviceEntry{homeassistant.Name, h.URL, h.Name, false, h})
	}
	return all
}

// hasDevice reports whether a configuration has the device of a request.
func hasDevice(cfg config.Config, request control.DeviceRequest) bool {
	return slices.ContainsFunc(requestsOf(cfg), func(other control.DeviceRequest) bool {
		return other.Transport == request.Transport && other.Address == request.Address
	})
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
	for _, b := range cfg.Brokers() {
		all = append(all, control.DeviceRequest{Transport: mqttclient.Name, Address: b.URL, Name: b.Name})
	}
	for _, h := range cfg.Homes() {
		all = append(all, control.DeviceRequest{Transport: homeassistant.Name, Address: h.URL, Name: h.Name})
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
	case mqttclient.Name:
		devices.MQTT = append(slices.Clip(devices.MQTT), config.Broker{URL: request.Address, Name: request.Name})
	case homeassistant.Name:
		devices.HomeAssistant = append(slices.Clip(devices.HomeAssistant), config.Home{URL: request.Address, Name: request.Name})
	}
	return devices
}
