package dock

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Trace calls fn with every frame of a device, across reconnects, until ctx ends. It
// is called by the goroutines that send and receive and must be quick.
func (d *Dock) Trace(ctx context.Context, id string, fn func(ferrule.Trace)) error {
	d.registry.mu.Lock()
	address, ok := d.registry.ids[d.registry.current(id)]
	d.registry.mu.Unlock()
	if !ok {
		return ferrule.UnknownDevice(id)
	}
	c := d.supervisor(address)
	if c == nil {
		return ferrule.Errorf(ferrule.Offline, "%s is not in sight, so there is no traffic to trace", id).
			WithHint("it was last seen at %s; start the gateway with that address", address)
	}
	stop := c.watch(fn)
	defer stop()
	<-ctx.Done()
	return nil
}

// watch calls fn with every frame until stop is called.
func (c *supervisor) watch(fn func(ferrule.Trace)) (stop func()) {
	entry := &fn
	c.editWatchers(func(all []*func(ferrule.Trace)) []*func(ferrule.Trace) { return append(slices.Clip(all), entry) })
	return func() {
		c.editWatchers(func(all []*func(ferrule.Trace)) []*func(ferrule.Trace) {
			return slices.DeleteFunc(slices.Clone(all), func(e *func(ferrule.Trace)) bool { return e == entry })
		})
	}
}

// editWatchers replaces the list of watchers, which is immutable.
func (c *supervisor) editWatchers(edit func([]*func(ferrule.Trace)) []*func(ferrule.Trace)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*func(ferrule.Trace)
	if p := c.watchers.Load(); p != nil {
		all = *p
	}
	if all = edit(all); len(all) == 0 {
		c.watchers.Store(nil)
	} else {
		c.watchers.Store(&all)
	}
}

var directions = map[transport.Direction]string{transport.In: "in", transport.Out: "out", transport.Remark: "note"}

// observe passes a frame to the watchers. Mostly there are none.
func (c *supervisor) observe(f transport.Frame) {
	watchers := c.watchers.Load()
	if watchers == nil {
		return
	}
	t := ferrule.Trace{Time: time.Now(), Direction: directions[f.Direction], Channel: f.Message.Channel, Data: readable(f.Message.Data), Note: f.Note}
	for _, fn := range *watchers {
		(*fn)(t)
	}
}

// readable returns bytes as text, with unprintable ones escaped.
func readable(data []byte) string {
	const limit = 64 << 10
	text := string(data[:min(len(data), limit)])
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\t' }) < 0 {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
