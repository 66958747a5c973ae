package dock

import (
	"context"
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/dialect"
	"github.com/ferrulehq/ferrule/wire"
)

// admit brings a device from sight to the fleet: open, greet, bound, Kind, ID,
// trust. From then on calls reach it.
func (b *berth) admit(ctx context.Context, s wire.Sighting) (dialect.Session, error) {
	d := b.dock
	select {
	case d.greetings <- struct{}{}:
		defer func() { <-d.greetings }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	session, manifest, spoken, err := b.speak(ctx, s)
	if err != nil {
		return nil, err
	}
	manifest.Bound()
	kind, err := manifest.Kind()
	if err != nil {
		return nil, err
	}
	shared := d.roster.kinds.shared(spoken, kind, manifest)
	dev := &ferrule.Device{
		Address: s.Address, Local: s.Local, Medium: s.Medium, Dialect: spoken,
		Kind: kind, Model: manifest.Model, Version: manifest.Version,
		State: ferrule.StateOnline, Since: time.Now(), Notes: manifest.Notes,
	}

	b.heed(session)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.link.Info().Restarts {
		dev.Restarted = dev.Since
	}
	d.roster.admit(b.slot, dev, manifest, shared)
	b.session, b.began = session, dev.Since
	close(b.arrival)
	d.parts.Log.Info(fmt.Sprintf("device online: %s %s, %s, %d tools", dev.Model, dev.Version, dev.Trust, len(manifest.Tools)), "device", dev.ID)
	return session, nil
}
