package dock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/wire"
)

// breath is how long a broken link is given to be noticed by its reader.
const breath = 5 * time.Millisecond

// handle serves a call: it waits for the lane and has the session invoke it. A
// call that went unanswered is sent once more if that can do no harm, the link
// is back, and there is time.
func (b *berth) handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	result, err := b.once(ctx, call)
	if codeOf(err) != ferrule.Unanswered || !call.Target.Tool.Repeatable() {
		return result, err
	}
	for b.linked(ctx, call) {
		again, errAgain := b.once(ctx, call)
		switch {
		case errAgain == nil || ferrule.AsError(errAgain).MayHaveRun():
			return again, errAgain
		case codeOf(errAgain) != ferrule.Offline:
			return nil, err
		}
	}
	return nil, err // it was sent the first time, whatever came of the second
}

// linked waits until there is a session. It is false if ctx ends first.
func (b *berth) linked(ctx context.Context, call *ferrule.Call) bool {
	select {
	case <-time.After(breath):
	case <-ctx.Done():
		return false
	}
	b.mu.Lock()
	session, arrival := b.session, b.arrival
	b.mu.Unlock()
	if session != nil {
		return true
	}
	call.Report(ferrule.Progress{Message: fmt.Sprintf("the link to %s broke; waiting for it to come back", call.Device)})
	select {
	case <-arrival:
		return true
	case <-ctx.Done():
		return false
	}
}

// codeOf is the code of an error, nothing for none.
func codeOf(err error) ferrule.Code {
	if err == nil {
		return ""
	}
	return ferrule.AsError(err).Code
}

// once sends a call at most once.
func (b *berth) once(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	if err := b.lane.enter(ctx, call); err != nil {
		return nil, err
	}
	defer b.lane.leave()
	b.mu.Lock()
	session, dev := b.session, b.device
	b.mu.Unlock()
	if session == nil {
		if dev == nil {
			dev = call.Target.Device
		}
		return nil, dev.OfflineError()
	}
	return session.Invoke(ctx, call)
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

var ways = map[wire.Way]string{wire.In: "in", wire.Out: "out", wire.Aside: "note"}

// observe hands a frame to whoever watches; mostly nobody does.
func (b *berth) observe(f wire.Frame) {
	watchers := b.watchers.Load()
	if watchers == nil {
		return
	}
	t := ferrule.Trace{Time: time.Now(), Way: ways[f.Way], Channel: f.Message.Channel, Data: readable(f.Message.Data), Note: f.Note}
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
