package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// spool keeps events in memory until they are stored. It is bounded: the oldest events
// are dropped first, and counted.
type spool struct {
	name string // distinguishes the numbers of two spools

	mu       sync.Mutex
	events   []ferrule.Event // by number; a missing number was dropped
	notified int             // how many of events are of type Notified
	last     uint64
	lost     int       // since the last report
	reported uint64    // lost events that were reported
	at       time.Time // of the last report
	ended    bool      // no more events follow
	more     bell
}

const (
	// maxSpool is how many events wait in memory.
	maxSpool = 16384
	// maxNotified is how many of them may be of type Notified: talkative devices must not hide
	// that another one is gone.
	maxNotified = 1024
	// reportEvery is the minimum time between two reports of lost events.
	reportEvery = time.Minute
)

func newSpool(name string) *spool { return &spool{name: name} }

func (s *spool) origin() string { return s.name }

// add numbers an event and keeps it.
func (s *spool) add(e ferrule.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	e.Seq = s.last
	if e.Type == ferrule.Notified {
		if s.notified >= maxNotified {
			s.lost++
			return
		}
		s.notified++
	}
	if len(s.events) >= maxSpool {
		drop := maxSpool / 16 // not one at a time
		s.forget(drop)
		s.events = append(make([]ferrule.Event, 0, maxSpool), s.events...)
		s.lost += drop
	}
	s.events = append(s.events, e)
	s.more.ring()
}

// forget removes the first n events. It is called with mu held.
func (s *spool) forget(n int) {
	for _, e := range s.events[:n] {
		if e.Type == ferrule.Notified {
			s.notified--
		}
	}
	clear(s.events[:n]) // free what devices sent, which may be long
	s.events = s.events[n:]
}

// lose counts an event that could not even be added.
func (s *spool) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.lost++
}

// next waits for the first event after a number, and forgets those up to it. It returns
// io.EOF after the last one.
func (s *spool) next(ctx context.Context, after uint64) (ferrule.Event, error) {
	for {
		more := s.more.wait()
		s.mu.Lock()
		for len(s.events) > 0 && s.events[0].Seq <= after {
			s.forget(1)
		}
		if len(s.events) > 0 {
			e := s.events[0]
			s.mu.Unlock()
			return e, nil
		}
		ended := s.ended
		s.mu.Unlock()
		if ended {
			return ferrule.Event{}, io.EOF
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ferrule.Event{}, ctx.Err()
		}
	}
}

// end marks that no more events follow.
func (s *spool) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.more.ring()
}

// report returns how many events were lost since the last report, or 0 if that was less
// than reportEvery ago.
func (s *spool) report() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == 0 || time.Since(s.at) < reportEvery {
		return 0
	}
	n := s.lost
	s.lost, s.reported, s.at = 0, s.reported+uint64(n), time.Now()
	return n
}

func (s *spool) count() (waiting int, lost uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.events), s.reported + uint64(s.lost)
}

// diskSpool is a spool in a stream of a leaf's own server.
type diskSpool struct {
	stream jetstream.Stream
	name   string
	more   func() <-chan struct{}
}

func spoolSubject(e ferrule.Event) string { return "ferrule-spool." + e.Device + "." + string(e.Type) }

func (s *Streams) openDiskSpool(ctx context.Context, e *engine.Engine) (*diskSpool, error) {
	stream, err := e.Local.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: engine.SpoolStream, Subjects: []string{engine.SpoolSubjects}, Storage: jetstream.FileStorage, MaxMsgsPerSubject: eventsEach,
		MaxBytes: min(maxSpoolBytes, s.cfg.Store/4), Discard: jetstream.DiscardOld, AllowDirect: true,
	})
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	// A stream that was created again counts from one again.
	name := s.options.Identity + "-" + strconv.FormatInt(stream.CachedInfo().Created.UnixNano(), 36)
	return &diskSpool{stream: stream, name: name, more: s.spooled.wait}, nil
}

func (d *diskSpool) origin() string { return d.name }

// next waits for the first event after a number, and deletes those up to it: the hub
// does not keep them forever, and must not get them twice. It deletes them one by one: a
// purge while the disk is full blocks nats-server 2.15.2 forever.
func (d *diskSpool) next(ctx context.Context, after uint64) (e ferrule.Event, err error) {
	for {
		more := d.more()
		msg, err := d.stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(engine.SpoolSubjects)) // the first from 1 on
		switch {
		case err == nil && msg.Sequence > after && json.Unmarshal(msg.Data, &e) == nil:
			e.Seq = msg.Sequence
			return e, nil
		case err == nil: // sent, or cannot be read
			if err := d.stream.DeleteMsg(ctx, msg.Sequence); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
				return e, err
			}
			continue
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return e, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return e, ctx.Err()
		}
	}
}

// keepSpool moves events from memory to a leaf's disk, until ctx ends or the server must
// be restarted.
func (s *Streams) keepSpool(ctx context.Context, e *engine.Engine) error {
	if _, err := s.openDiskSpool(ctx, e); err != nil {
		return err
	}
	for after := uint64(0); ; {
		event, err := s.spool.next(ctx, after)
		if err != nil {
			return err
		}
		data, err := encodeEvent(event)
		if err != nil {
			return err
		}
		attempt, cancel := context.WithTimeout(ctx, shipTime)
		_, err = e.Local.Publish(attempt, spoolSubject(event), data, jetstream.WithMsgID(s.spool.name+"-"+strconv.FormatUint(event.Seq, 10)))
		cancel()
		switch {
		case err == nil:
		case ctx.Err() == nil && e.Stuck(err):
			return engine.ErrStuck
		default:
			return fmt.Errorf("spool: %w", err)
		}
		after = event.Seq
		s.spooled.ring()
	}
}
