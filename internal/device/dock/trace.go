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

// Trace calls fn with everything that is seen on the wire to a device, across
// reconnects, until ctx ends. Fn is called from the goroutines that send and
// receive: it must be quick.
func (d *Dock) Trace(ctx context.Context, id string, fn func(ferrule.Trace)) error {
	address, ok := d.roster.address(id)
	if !ok {
		return ferrule.UnknownDevice(id)
	}
	b := d.berth(address)
	if b == nil {
		return ferrule.Errorf(ferrule.Offline, "%s is not in sight: nothing goes over a wire to it", id).
			WithHint("`ferrule up` needs to be told of it, as when it was last seen at %s", address)
	}
	stop := b.watch(fn)
	defer stop()
	<-ctx.Done()
	return nil
}

// watch has fn called with everything seen on the wire, until stop is called.
func (b *berth) watch(fn func(ferrule.Trace)) (stop func()) {
	entry := &fn
	b.change(func(all []*func(ferrule.Trace)) []*func(ferrule.Trace) { return append(slices.Clip(all), entry) })
	return func() {
		b.change(func(all []*func(ferrule.Trace)) []*func(ferrule.Trace) {
			return slices.DeleteFunc(slices.Clone(all), func(e *func(ferrule.Trace)) bool { return e == entry })
		})
	}
}

// change replaces the list of watchers, which is never changed in place.
func (b *berth) change(edit func([]*func(ferrule.Trace)) []*func(ferrule.Trace)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*func(ferrule.Trace)
	if p := b.watchers.Load(); p != nil {
		all = *p
	}
	if all = edit(all); len(all) == 0 {
		b.watchers.Store(nil)
	} else {
		b.watchers.Store(&all)
	}
}

var ways = map[transport.Direction]string{transport.In: "in", transport.Out: "out", transport.Aside: "note"}

// observe hands a frame to whoever watches; mostly nobody does.
func (b *berth) observe(f transport.Frame) {
	watchers := b.watchers.Load()
	if watchers == nil {
		return
	}
	t := ferrule.Trace{Time: time.Now(), Direction: ways[f.Way], Channel: f.Message.Channel, Data: readable(f.Message.Data), Note: f.Note}
	for _, fn := range *watchers {
		(*fn)(t)
	}
}

// readable is bytes as text, with what is no text escaped.
func readable(data []byte) string {
	const most = 64 << 10
	text := string(data[:min(len(data), most)])
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\t' }) < 0 {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
