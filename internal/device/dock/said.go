package dock

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// heed passes on what a device says by itself, if its dialect knows of such. It is
// called before the session runs.
func (b *berth) heed(session protocol.Session) {
	if n, ok := session.(protocol.Notifier); ok && b.dock.parts.OnEvent != nil {
		n.Notify(b.said)
	}
}

// errHeld is why nobody hears a device that is not trusted: there may be many of those,
// and what they say is not to take the room of others.
var errHeld = errors.New("the device is held until it is adopted")

// said passes on one thing that the device said, under the name that it has now.
func (b *berth) said(method string, params json.RawMessage) {
	dev := b.slot.device.Load()
	e := ferrule.Event{Time: time.Now(), Type: ferrule.Notified, Device: dev.ID, Kind: dev.Kind, Method: method, Params: params}
	err := errHeld
	if dev.Trust != ferrule.TrustPending {
		err = e.Bound()
	}
	if err != nil {
		b.observe(transport.Frame{Way: transport.Aside, Note: "dropped: a notification: " + err.Error()})
		return
	}
	b.dock.parts.OnEvent(e)
}
