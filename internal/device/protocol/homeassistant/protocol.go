package homeassistant

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/describe"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Protocol greets devices that a Hub has found.
type Protocol struct {
	describe func(*home.Offer) (*ferrule.Manifest, *describe.Plan)
}

// New returns the protocol.
func New() *Protocol { return &Protocol{describe.Device} }

// describing limits how many devices are described at a time. Thousands may appear at
// once, and other devices must be served meanwhile.
var describing = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// offerWait is the time for the link to pass the offer. The hub has it already.
const offerWait = 5 * time.Second

// Greet implements protocol.Protocol. It sends nothing.
func (p *Protocol) Greet(ctx context.Context, link transport.Link) (protocol.Session, *ferrule.Manifest, error) {
	offer, err := receiveOffer(ctx, link)
	if err != nil {
		return nil, nil, err
	}
	select {
	case describing <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	manifest, plan := p.describe(offer)
	<-describing
	s := newSession(p, link, offer, plan)
	if err := s.firstStates(ctx); err != nil {
		return nil, nil, err
	}
	return s, manifest, nil
}

// statesWait is the time for the link to pass the first states. The hub has them already, and
// passes none if there are none.
const statesWait = 200 * time.Millisecond

// firstStates hears the first states: a call that follows at once needs them.
func (s *Session) firstStates(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, statesWait)
	defer cancel()
	m, err := s.link.Recv(waiting)
	switch {
	case err == nil && m.Channel == channelOffer:
		return errChanged // the manifest is the old one
	case err == nil:
		s.hear(m, time.Now())
	case waiting.Err() == nil || ctx.Err() != nil:
		return err
	}
	return nil
}

// receiveOffer returns the first message of a link.
func receiveOffer(ctx context.Context, link transport.Link) (*home.Offer, error) {
	waiting, cancel := context.WithTimeout(ctx, offerWait)
	defer cancel()
	m, err := link.Recv(waiting)
	switch {
	case err != nil && ctx.Err() == nil && waiting.Err() != nil:
		return nil, fmt.Errorf("%w: it was not described within %v", protocol.ErrNotMine, offerWait)
	case err != nil:
		return nil, err
	case m.Channel != channelOffer:
		return nil, fmt.Errorf("%w: its first message does not describe it", protocol.ErrNotMine)
	}
	offer, err := parseOffer(m.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: its description cannot be decoded", protocol.ErrNotMine)
	}
	return offer, nil
}

func parseOffer(data []byte) (*home.Offer, error) {
	var offer home.Offer
	if err := json.Unmarshal(data, &offer); err != nil {
		return nil, err
	}
	return &offer, nil
}
