package dock

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// forwardNotifications forwards notifications, if the protocol has them. It is
// called before the session runs.
func (c *supervisor) forwardNotifications(session protocol.Session) {
	if n, ok := session.(protocol.Notifier); ok && c.dock.parts.OnEvent != nil {
		n.Notify(c.notify)
	}
}

// errPending is why notifications of pending devices are dropped: there may be many
// such devices, and they must not displace others.
var errPending = errors.New("the device is not adopted")

// notify forwards a notification under the present ID of the device.
func (c *supervisor) notify(method string, params json.RawMessage) {
	dev := c.slot.device.Load()
	e := ferrule.Event{Time: time.Now(), Type: ferrule.Notified, Device: dev.ID, Kind: dev.Kind, Method: method, Params: params}
	err := errPending
	if dev.Trust != ferrule.TrustPending {
		err = e.Bound()
	}
	if err != nil {
		c.observe(transport.Frame{Direction: transport.Remark, Note: "notification dropped: " + err.Error()})
		return
	}
	c.dock.parts.OnEvent(e)
}

// forwardReports forwards what a device measures and reports by itself, under the present
// ID of the device. What a pending device says is not recorded.
func (c *supervisor) forwardReports(session protocol.Session) {
	r, ok := session.(protocol.Reporter)
	if !ok || c.dock.parts.OnReport == nil {
		return
	}
	r.Report(func(at time.Time, measured []ferrule.Measurement) {
		if dev := c.slot.device.Load(); dev.Trust != ferrule.TrustPending {
			c.dock.parts.OnReport(dev.ID, at, measured)
		}
	})
}
