package dock

import (
	"fmt"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// A device on which nothing can be changed may be adopted without a person. Its connector
// judges that at one time, and its manifest is read at another, so the dock does not rely on
// the connector:
//
//   - A device is adopted as a sensor only if all tools that are in use read (pinSensor).
//   - Device.Sensor remembers that no person was asked. Such a device is pending again when
//     one of its tools changes something, whatever the reason (pinSensor, keepSensor).
//   - A tool that is new waits, as on any adopted device (pin).
//   - A person who adopts the device, or accepts what it offers, ends this.

// pinSensor is pin. A device that is adopted as a sensor becomes pending if something can be
// changed with it.
func (r *registry) pinSensor(s *transport.Sighting, dev *ferrule.Device, m *ferrule.Manifest, kept, before *ferrule.Device, c *comparison) (*ferrule.Manifest, map[ferrule.Kind]*ferrule.Manifest) {
	offered := *dev
	used, stored := r.pin(s, dev, m, kept, before, c)
	if !dev.Sensor {
		return used, stored
	}
	tool := changingTool(r.overlays.Apply(dev.Protocol, dev.Kind, dev.ID, used))
	if tool == "" {
		return used, stored
	}
	r.logNoSensor(dev, tool)
	*dev = offered
	dev.Trust, dev.Sensor = ferrule.TrustPending, false
	return r.pin(s, dev, m, kept, before, c)
}

// keepSensor returns a device that is not being admitted, after its overlays may have changed:
// as it is, or pending if it was adopted as a sensor and is not one any longer.
func (r *registry) keepSensor(dev *ferrule.Device) *ferrule.Device {
	if !dev.Sensor {
		return dev
	}
	tool := changingTool(r.effective[dev.ID])
	if tool == "" {
		return dev
	}
	r.logNoSensor(dev, tool)
	pending := *dev
	pending.Trust, pending.Sensor = ferrule.TrustPending, false
	delete(r.effective, dev.ID) // until it connects
	r.storeDevice(&pending)
	return &pending
}

func (r *registry) logNoSensor(dev *ferrule.Device, tool string) {
	r.log.Warn(fmt.Sprintf("device waits to be adopted: it was taken for a sensor, and its tool %s changes something", tool), "device", dev.ID)
}

// changingTool returns the name of a tool that does not only read; empty if there is none.
func changingTool(effective *ferrule.Manifest) string {
	if effective != nil {
		for i := range effective.Tools {
			if effective.Tools[i].Effect != ferrule.Reads {
				return effective.Tools[i].Name
			}
		}
	}
	return ""
}
