package main

import "github.com/ferrulehq/ferrule/internal/ferrule"

// hear takes in what devices say by themselves, here and at other nodes. An agent that
// is told of it can read it then.
func (g *gateway) hear(e ferrule.Event) {
	g.fleet.RecordEvent(e)
	g.agents.HandleEvent(e)
}

// lookout tells people of what happens to devices, here and at other nodes.
type lookout struct{ *gateway }

// Watch implements control.Watcher.
func (l lookout) Watch(device string, fn func(ferrule.Event)) (stop func(), err error) {
	if device == "" {
		return l.bus.Listen(fn), nil
	}
	if _, _, ok := l.fleet.Lookup(device); !ok || device == ferrule.GatewayID {
		return nil, ferrule.UnknownDevice(device)
	}
	return l.bus.Listen(func(e ferrule.Event) {
		if e.Device == device {
			fn(e)
		}
	}), nil
}
