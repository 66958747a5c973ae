package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Home is a simulated home on an MQTT broker. Its devices describe themselves as Zigbee2MQTT,
// ESPHome and others do, obey commands and report their state.
type Home struct {
	// Every is the interval at which something changes by itself; 0 for never.
	Every time.Duration

	mu       sync.Mutex
	bus      Bus
	devices  []*homeDevice
	commands []Command
}

// Bus is a connection to a broker.
type Bus interface {
	// Publish publishes a message.
	Publish(topic string, payload []byte, retain bool) error
	// Subscribe calls fn for each message on a topic, one at a time.
	Subscribe(topic string, fn func(payload []byte)) error
}

// Command is a command that a device of a Home has received.
type Command struct {
	Device, Topic, Payload string
}

// Fault is what a device of a Home does wrong.
type Fault string

// The faults.
const (
	// Obedient devices do and say what they should.
	Obedient Fault = ""
	// Mute devices obey and do not report it.
	Mute Fault = "mute"
	// Deaf devices neither obey nor report.
	Deaf Fault = "deaf"
	// Lying devices report what they were asked for and do nothing.
	Lying Fault = "lying"
	// Clamped devices do half of what a number says.
	Clamped Fault = "clamped"
)

// homeDevice is one device of a Home.
type homeDevice struct {
	name    string
	base    string // of its topics
	configs map[string]any
	state   map[string]any
	fault   Fault
	// commands are the topics below base, and what a payload on it changes; nil if it is
	// not understood.
	commands map[string]func(state map[string]any, payload string) map[string]any
	// drift changes a little by itself.
	drift func(state map[string]any, n int)
	// moves is the number in the state that changes in steps, as a blind does; empty for none.
	moves string
}

// NewHome returns a home with its devices.
func NewHome() *Home { return &Home{devices: homeDevices()} }

// AddLamps adds more lamps, lamp_1 and so on. It must be called before Join.
func (h *Home) AddLamps(count int) {
	for i := range count {
		h.devices = append(h.devices, homeLamp(fmt.Sprintf("lamp_%d", i+1), fmt.Sprintf("Lamp %d", i+1), "Attic"))
	}
}

// Names returns the names of the devices.
func (h *Home) Names() (names []string) {
	for _, d := range h.devices {
		names = append(names, d.name)
	}
	return names
}

// Join publishes the descriptions of all devices on a broker, and then obeys commands
// there. After the connection was lost, it is called again with the new one.
func (h *Home) Join(bus Bus) error {
	h.mu.Lock()
	h.bus = bus
	h.mu.Unlock()
	for _, d := range h.devices {
		for topic := range d.commands {
			if err := bus.Subscribe(d.base+"/"+topic, func(payload []byte) { h.obey(d, topic, string(payload)) }); err != nil {
				return err
			}
		}
	}
	for _, d := range h.devices {
		for topic, config := range d.configs {
			text, err := json.Marshal(config)
			if err == nil {
				err = bus.Publish("homeassistant/"+topic+"/config", text, true)
			}
			if err != nil {
				return err
			}
		}
		if err := bus.Publish(d.base+"/available", []byte("online"), true); err != nil {
			return err
		}
		h.report(d)
	}
	return nil
}

// Run changes what changes by itself until ctx ends: temperatures, power, batteries.
func (h *Home) Run(ctx context.Context) error {
	if h.Every <= 0 {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(h.Every)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		d := h.devices[n%len(h.devices)]
		h.mu.Lock()
		if d.drift != nil {
			d.drift(d.state, n/len(h.devices))
		}
		h.mu.Unlock()
		h.report(d)
	}
}

// Misbehave sets the fault of a device.
func (h *Home) Misbehave(device string, fault Fault) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.devices, func(d *homeDevice) bool { return d.name == device })
	if i < 0 {
		return fmt.Errorf("unknown device %q: use one of %s", device, strings.Join(h.Names(), ", "))
	}
	h.devices[i].fault = fault
	return nil
}

// Commands returns the commands that arrived so far, in order.
func (h *Home) Commands() []Command {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.commands)
}

// State returns what a device has in its state.
func (h *Home) State(device, name string) any {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.devices {
		if d.name == device {
			return d.state[name]
		}
	}
	return nil
}

// Remove removes the descriptions of a device from the broker.
func (h *Home) Remove(device string) error {
	h.mu.Lock()
	bus := h.bus
	i := slices.IndexFunc(h.devices, func(d *homeDevice) bool { return d.name == device })
	h.mu.Unlock()
	if i < 0 {
		return fmt.Errorf("unknown device %q", device)
	}
	for topic := range h.devices[i].configs {
		if err := bus.Publish("homeassistant/"+topic+"/config", nil, true); err != nil {
			return err
		}
	}
	return nil
}

// obey does what a command says.
func (h *Home) obey(d *homeDevice, topic, payload string) {
	h.mu.Lock()
	h.commands = append(h.commands, Command{d.name, d.base + "/" + topic, payload})
	changes := d.commands[topic](d.state, payload)
	fault := d.fault
	if changes == nil || fault == Deaf {
		h.mu.Unlock()
		return
	}
	said := make(map[string]any, len(d.state))
	for name, value := range changes {
		if n, ok := value.(float64); ok && fault == Clamped {
			value = float64(int(n / 2))
		}
		if said[name] = value; fault != Lying && name != d.moves {
			d.state[name] = value
		}
	}
	h.mu.Unlock()
	switch {
	case fault == Mute:
	case fault == Lying:
		h.say(d, said)
	case d.moves != "" && said[d.moves] != nil:
		h.move(d, said[d.moves].(float64))
	default:
		h.report(d)
	}
}

// move takes a device to a position in steps, and reports each.
func (h *Home) move(d *homeDevice, to float64) {
	const steps = 4
	h.mu.Lock()
	from, _ := d.state[d.moves].(float64)
	h.mu.Unlock()
	for i := 1; i <= steps; i++ {
		h.mu.Lock()
		d.state[d.moves] = from + (to-from)*float64(i)/steps
		h.mu.Unlock()
		h.report(d)
	}
}

// report publishes the state of a device.
func (h *Home) report(d *homeDevice) { h.say(d, nil) }

// say publishes the state of a device with some of it replaced.
func (h *Home) say(d *homeDevice, instead map[string]any) {
	h.mu.Lock()
	state := make(map[string]any, len(d.state))
	for name, value := range d.state {
		state[name] = value
	}
	for name, value := range instead {
		state[name] = value
	}
	bus := h.bus
	h.mu.Unlock()
	if bus == nil || len(state) == 0 {
		return
	}
	text, err := json.Marshal(state)
	if err == nil {
		bus.Publish(d.base, text, false) // a broker that is gone gets it after the next connect
	}
}
