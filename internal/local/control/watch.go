package control

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Watcher calls fn with the new events of a device until stop is called. fn does not
// block. An empty device selects all devices.
type Watcher interface {
	Watch(device string, fn func(ferrule.Event)) (stop func(), err error)
}

// Sampler calls fn with the new readings of a device until stop is called. An empty
// signal selects all signals. fn does not block, and must not change the reading,
// which is shared.
type Sampler interface {
	Samples(device, signal string, fn func(ferrule.Reading)) (stop func())
}

// Limits of what may wait for a slow reader. More is dropped and counted. Samples have
// a limit of their own because one reading may contain thousands.
const (
	watchBacklog   = 1024 // events
	readingBacklog = 256
	sampleBacklog  = 64 << 10 // samples in all waiting readings
)

// backlog holds events and readings that wait for the reader.
type backlog struct {
	events   chan ferrule.Event
	readings chan ferrule.Reading
	samples  atomic.Int64
	dropped  dropCounter
}

func (b *backlog) addEvent(e ferrule.Event) {
	select {
	case b.events <- e:
	default:
		b.dropped.add()
	}
}

func (b *backlog) addReading(r ferrule.Reading) {
	n := countSamples(&r)
	if b.samples.Add(n) > sampleBacklog {
		b.samples.Add(-n)
		b.dropped.add()
		return
	}
	select {
	case b.readings <- r:
	default:
		b.samples.Add(-n)
		b.dropped.add()
	}
}

func countSamples(r *ferrule.Reading) (n int64) {
	for i := range r.Batches {
		n += int64(len(r.Batches[i].Samples))
	}
	return n
}

// watch writes events and readings as they come.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	b := &backlog{events: make(chan ferrule.Event, watchBacklog), readings: make(chan ferrule.Reading, readingBacklog)}
	stop, err := s.subscribe(r.URL.Query(), b)
	out := newLines(w)
	if err != nil {
		out.write(reply{Error: ferrule.AsError(err)})
		return
	}
	defer stop()
	// A caller that stopped reading must not delay the exit of the gateway.
	defer context.AfterFunc(r.Context(), func() { http.NewResponseController(w).SetWriteDeadline(time.Now()) })()
	for {
		var next reply
		select {
		case e := <-b.events:
			next.Event = &e
		case reading := <-b.readings:
			b.samples.Add(-countSamples(&reading))
			next.Reading = &reading
		case <-r.Context().Done():
			return
		}
		if n := b.dropped.take(); n > 0 {
			out.write(reply{Missed: n})
		}
		out.write(next)
	}
}

// subscribe adds the requested events and readings to b until stop is called.
func (s *Server) subscribe(query url.Values, b *backlog) (stop func(), err error) {
	device, events, readings := query.Get("device"), query.Get("events") != "false", query.Get("readings") == "true"
	if readings && device == "" {
		return nil, ferrule.Errorf(ferrule.Invalid, "readings need a device, none is given")
	}
	var stops []func()
	if events {
		stop, err := s.parts.Watcher.Watch(device, b.addEvent)
		if err != nil {
			return nil, err
		}
		stops = append(stops, stop)
	}
	if readings && s.parts.Samples != nil {
		stops = append(stops, s.parts.Samples.Samples(device, query.Get("signal"), b.addReading))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}, nil
}

// Subscription selects events and readings. Events are those of Device, or of all
// devices if it is empty. Readings need a Device. What has no callback is not requested.
type Subscription struct {
	Device string
	// Signal limits readings to one signal. If it is empty, all are sent.
	Signal  string
	Event   func(ferrule.Event)
	Reading func(ferrule.Reading)
	// Missed is called with the number of events and readings that were dropped
	// because the callbacks are too slow.
	Missed func(n int)
}

// query encodes the subscription.
func (w *Subscription) query() string {
	values := url.Values{"device": {w.Device}}
	if w.Event == nil {
		values.Set("events", "false")
	}
	if w.Reading != nil {
		values.Set("readings", "true")
	}
	if w.Signal != "" {
		values.Set("signal", w.Signal)
	}
	return values.Encode()
}

// Watch calls the callbacks of a subscription until ctx ends. It then returns nil.
func (c *Client) Watch(ctx context.Context, w Subscription) error {
	resp, err := c.send(ctx, http.MethodGet, "/watch?"+w.query(), nil)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: it does not report events (%s)", ErrVersion, resp.Status)
	}
	return eachReply(ctx, resp.Body, func(r reply) {
		switch {
		case r.Missed > 0:
			w.Missed(r.Missed)
		case r.Event != nil && w.Event != nil: // an older gateway sends them anyway
			w.Event(*r.Event)
		case r.Reading != nil && w.Reading != nil:
			w.Reading(*r.Reading)
		}
	})
}
