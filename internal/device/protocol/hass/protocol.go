package hass

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Protocol greets devices that a Hub has found.
type Protocol struct{}

// New returns the protocol.
func New() *Protocol { return &Protocol{} }

// describing limits how many devices are described at a time. Thousands may appear at
// once, and other devices must be served meanwhile.
var describing = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// offerWait is the time for the link to pass the offer. The hub has it already.
const offerWait = 5 * time.Second

// Greet implements protocol.Protocol. It publishes nothing.
func (p *Protocol) Greet(ctx context.Context, link transport.Link) (protocol.Session, *ferrule.Manifest, error) {
	subscriber, ok := link.(Subscriber)
	if !ok {
		return nil, nil, fmt.Errorf("%w: the link does not lead to a broker", protocol.ErrNotMine)
	}
	o, err := receiveOffer(ctx, link)
	if err != nil {
		return nil, nil, err
	}
	select {
	case describing <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	d := describe(o)
	<-describing
	if topics := d.topics(); len(topics) > 0 {
		if err := subscriber.Subscribe(ctx, topics); err != nil {
			return nil, nil, fmt.Errorf("subscribing to states: %w", err)
		}
	}
	return newSession(link, d), d.manifest, nil
}

// receiveOffer returns the first message of a link.
func receiveOffer(ctx context.Context, link transport.Link) (*offer, error) {
	waiting, cancel := context.WithTimeout(ctx, offerWait)
	defer cancel()
	m, err := link.Recv(waiting)
	switch {
	case err != nil && ctx.Err() == nil && waiting.Err() != nil:
		return nil, fmt.Errorf("%w: it was not described within %v", protocol.ErrNotMine, offerWait)
	case err != nil:
		return nil, err
	case m.Channel != channelDiscovery:
		return nil, fmt.Errorf("%w: its first message does not describe it", protocol.ErrNotMine)
	}
	var o offer
	if err := json.Unmarshal(m.Data, &o); err != nil {
		return nil, fmt.Errorf("%w: its description cannot be decoded", protocol.ErrNotMine)
	}
	return &o, nil
}
