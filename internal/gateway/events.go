package gateway

import "github.com/ferrulehq/ferrule/internal/ferrule"

// handleEvent receives the notifications of devices, on this node and on others. The fleet
// stores them before agents are told, so that an agent can read them at once.
func (g *Gateway) handleEvent(e ferrule.Event) {
	g.Fleet.RecordEvent(e)
	g.Agents.HandleEvent(e)
	g.Requests.brokers.notified(e)
}

// Watch implements control.Watcher. It calls fn with the events of a device, or of all if
// device is empty, on this node and on others. A stop of everything concerns each device.
func (g *Gateway) Watch(device string, fn func(ferrule.Event)) (stop func(), err error) {
	if device == "" {
		return g.Cluster.Listen(fn), nil
	}
	dev, _, ok := g.Fleet.Lookup(device)
	if !ok || device == ferrule.GatewayID {
		return nil, ferrule.UnknownDevice(device)
	}
	return g.Cluster.Listen(func(e ferrule.Event) {
		if e.Device == dev.ID || e.Device == ferrule.GatewayID {
			fn(e)
		}
	}), nil
}
