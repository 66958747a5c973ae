package httpclient

import (
	"fmt"
	"log/slog"
	"time"
)

// Looking at networks, and at what was found; and how often it is told that there
// are too many.
const (
	lookNetworks = 5 * time.Second
	lookFound    = 100 * time.Millisecond
	tellFull     = time.Minute
)

// ear listens for a browser.
type ear struct {
	browser *browser
	sockets *sockets
	log     *slog.Logger

	networks time.Time // when they were looked at
	deaf     bool      // nothing can be heard, and that was told
	dropped  int       // instances that were not told of
	full     time.Time // when that was told last
}

func newEar(b *browser, log *slog.Logger) *ear {
	take := func(packet []byte, zone string) { b.take(packet, zone, time.Now()) }
	return &ear{browser: b, sockets: newSockets(take), log: log}
}

// listen asks what is to be asked, and returns what is known.
func (e *ear) listen(now time.Time) []found {
	if now.Sub(e.networks) >= lookNetworks {
		e.networks = now
		more, err := e.sockets.refresh()
		if more {
			e.browser.again(now)
		}
		if err != nil && !e.deaf {
			e.log.Warn("devices that announce themselves cannot be heard; by their URLs they can be reached", "err", err)
		}
		e.deaf = err != nil
	}
	for _, packet := range encode(e.browser.ask(now)) {
		e.sockets.send(packet)
	}
	all, dropped := e.browser.look(now)
	if e.dropped += dropped; e.dropped > 0 && now.Sub(e.full) >= tellFull {
		e.log.Warn(fmt.Sprintf("more than %d devices announce themselves; %d announcements were not heeded", maxInstances, e.dropped))
		e.dropped, e.full = 0, now
	}
	return all
}

func (e *ear) close() { e.sockets.close() }
