package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Watcher tells of what happens to devices, and of what they say. Fn is called with
// what comes from now on, until stop is called; it does not block. An empty device
// means all.
type Watcher interface {
	Watch(device string, fn func(ferrule.Event)) (stop func(), err error)
}

// Sampler tells of what a device measures. Fn is called with what asking it brings from
// now on that is about a signal, or about any where it is empty, until stop is called. It
// does not block, and what it is called with is shared and read only.
type Sampler interface {
	Samples(device, signal string, fn func(ferrule.Reading)) (stop func())
}

// The bounds of what waits for a slow reader; more is dropped, and counted. One reading
// may bring thousands of samples.
const (
	watchBacklog   = 1024 // events
	readingBacklog = 256
	sampleBacklog  = 64 << 10 // of all readings together
)

// backlog is what waits for a reader.
type backlog struct {
	events   chan ferrule.Event
	readings chan ferrule.Reading
	samples  atomic.Int64
	missed   missed
}

// happened takes in an event.
func (b *backlog) happened(e ferrule.Event) {
	select {
	case b.events <- e:
	default:
		b.missed.add()
	}
}

// measured takes in a reading.
func (b *backlog) measured(r ferrule.Reading) {
	n := samplesOf(&r)
	if b.samples.Add(n) > sampleBacklog {
		b.samples.Add(-n)
		b.missed.add()
		return
	}
	select {
	case b.readings <- r:
	default:
		b.samples.Add(-n)
		b.missed.add()
	}
}

func samplesOf(r *ferrule.Reading) (n int64) {
	for i := range r.Batches {
		n += int64(len(r.Batches[i].Samples))
	}
	return n
}

// watch writes events and readings as they come.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	b := &backlog{events: make(chan ferrule.Event, watchBacklog), readings: make(chan ferrule.Reading, readingBacklog)}
	stop, err := s.listen(r.URL.Query(), b)
	out := newLines(w)
	if err != nil {
		out.write(reply{Error: ferrule.AsError(err)})
		return
	}
	defer stop()
	// A reader that has stopped reading would keep the gateway from ending.
	defer context.AfterFunc(r.Context(), func() { http.NewResponseController(w).SetWriteDeadline(time.Now()) })()
	for {
		var next reply
		select {
		case e := <-b.events:
			next.Event = &e
		case reading := <-b.readings:
			b.samples.Add(-samplesOf(&reading))
			next.Reading = &reading
		case <-r.Context().Done():
			return
		}
		if n := b.missed.take(); n > 0 {
			out.write(reply{Missed: n})
		}
		out.write(next)
	}
}

// listen has a backlog told of what is asked for.
func (s *Server) listen(asked url.Values, b *backlog) (stop func(), err error) {
	device, events, readings := asked.Get("device"), asked.Get("events") != "false", asked.Get("readings") == "true"
	if readings && device == "" {
		return nil, ferrule.Errorf(ferrule.Invalid, "readings are those of one device, and none is named")
	}
	var stops []func()
	if events {
		stop, err := s.parts.Watcher.Watch(device, b.happened)
		if err != nil {
			return nil, err
		}
		stops = append(stops, stop)
	}
	if readings && s.parts.Samples != nil {
		stops = append(stops, s.parts.Samples.Samples(device, asked.Get("signal"), b.measured))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}, nil
}

// Watching is what somebody wants to hear of: what happens to a device, or to all where
// none is named, and what a device measures, where one is. What has nobody to hear it is
// not asked for.
type Watching struct {
	Device string
	// Signal is the one whose readings are wanted; all are if it is empty.
	Signal  string
	Event   func(ferrule.Event)
	Reading func(ferrule.Reading)
	// Missed is told of how much was lost, because those are too slow.
	Missed func(n int)
}

// query is how it is asked for.
func (w *Watching) query() string {
	asked := url.Values{"device": {w.Device}}
	if w.Event == nil {
		asked.Set("events", "false")
	}
	if w.Reading != nil {
		asked.Set("readings", "true")
	}
	if w.Signal != "" {
		asked.Set("signal", w.Signal)
	}
	return asked.Encode()
}

// Watch tells of what happens and is measured, until ctx ends; it then returns nil.
func (c *Client) Watch(ctx context.Context, w Watching) error {
	resp, err := c.ask(ctx, http.MethodGet, "/watch?"+w.query(), nil)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: it does not tell what happens (%s)", ErrVersion, resp.Status)
	}
	for in := json.NewDecoder(resp.Body); ; {
		var r reply
		if err := in.Decode(&r); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("the gateway went away: %w", err)
		}
		switch {
		case r.Error != nil:
			return r.Error
		case r.Missed > 0:
			w.Missed(r.Missed)
		case r.Event != nil && w.Event != nil: // an older gateway tells of them anyway
			w.Event(*r.Event)
		case r.Reading != nil && w.Reading != nil:
			w.Reading(*r.Reading)
		}
	}
}
