package console

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// together is several parts of a page that change by themselves.
type together []live

func (t together) watch(changed func(key string)) func() {
	stops := make([]func(), len(t))
	for i, part := range t {
		prefix := strconv.Itoa(i) + " "
		stops[i] = part.watch(func(key string) { changed(prefix + key) })
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

func (t together) update(ctx context.Context, keys []string, out *updates) error {
	for i, part := range t {
		var own []string
		for _, key := range keys {
			if rest, ok := strings.CutPrefix(key, strconv.Itoa(i)+" "); ok {
				own = append(own, rest)
			}
		}
		if len(own) == 0 && len(keys) > 0 {
			continue
		}
		if err := part.update(ctx, own, out); err != nil {
			return err
		}
	}
	return nil
}

// Limits of the samples that wait for a page.
const (
	maxLiveSignals = 64
	maxLiveSamples = 512 // of one signal; older ones are dropped
	maxLiveGaps    = 32
)

// samplesLive sends new samples of a device to a page, as the event "samples".
type samplesLive struct {
	streams Streams
	device  string
	// first returns the samples that the page may not have; it may be nil.
	first func(ctx context.Context) []ferrule.Latest

	mu      sync.Mutex
	waiting map[string]*liveSamples // by signal
}

// liveSamples are samples of one signal that a page gets: times in milliseconds and values
// in turn. Gaps are beginnings and ends in turn.
type liveSamples struct {
	Unit    string    `json:"u,omitempty"`
	Samples []float64 `json:"s"`
	Gaps    []int64   `json:"g,omitempty"`
}

// samplesMessage is the event "samples".
type samplesMessage struct {
	Device  string                  `json:"device"`
	Signals map[string]*liveSamples `json:"signals"`
}

// samplesOf returns the live samples of a device that the person has been found to see.
func (c *Console) samplesOf(f deviceFrame) *samplesLive {
	return &samplesLive{
		streams: c.parts.Streams, device: f.Device.ID,
		first: func(ctx context.Context) []ferrule.Latest { return c.api.Newest(ctx, f.Found) },
	}
}

func (l *samplesLive) watch(changed func(string)) func() {
	return l.streams.Samples(l.device, "", func(r ferrule.Reading) {
		if l.add(r) {
			changed("samples")
		}
	})
}

// add keeps new samples for the next update.
func (l *samplesLive) add(r ferrule.Reading) (added bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range r.Batches {
		b := &r.Batches[i]
		if len(b.Samples) == 0 && len(b.Gaps) == 0 {
			continue
		}
		s := l.signal(b.Signal, b.Unit)
		if s == nil {
			continue
		}
		added = true
		for _, sample := range b.Samples[max(0, len(b.Samples)-maxLiveSamples):] {
			s.add(sample)
		}
		for _, g := range b.Gaps {
			if len(s.Gaps) < 2*maxLiveGaps {
				s.Gaps = append(s.Gaps, g.From.UnixMilli(), g.To.UnixMilli())
			}
		}
	}
	return added
}

// signal returns what waits of a signal, or nil if there are too many. It is called with mu
// held.
func (l *samplesLive) signal(name, unit string) *liveSamples {
	if l.waiting == nil {
		l.waiting = make(map[string]*liveSamples)
	}
	s := l.waiting[name]
	if s == nil && len(l.waiting) < maxLiveSignals {
		s = &liveSamples{Unit: ferrule.Clean(unit, ferrule.MaxUnit)}
		l.waiting[name] = s
	}
	return s
}

func (s *liveSamples) add(sample ferrule.Sample) {
	if len(s.Samples) >= 2*maxLiveSamples {
		s.Samples = s.Samples[:copy(s.Samples, s.Samples[maxLiveSamples:])]
	}
	s.Samples = append(s.Samples, float64(sample.Time.UnixMilli()), sample.Value)
}

func (l *samplesLive) update(ctx context.Context, keys []string, out *updates) error {
	if len(keys) == 0 && l.first != nil { // what was measured while the page was loaded
		latest := l.first(ctx)
		l.mu.Lock()
		for _, one := range latest {
			if l.waiting[one.Signal] == nil {
				if s := l.signal(one.Signal, one.Unit); s != nil {
					s.add(one.Sample)
				}
			}
		}
		l.mu.Unlock()
	}
	l.mu.Lock()
	waiting := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	if len(waiting) == 0 {
		return nil
	}
	return out.event("samples", samplesMessage{l.device, waiting})
}

// shownMarks is how many new calls a page gets at most at a time.
const shownMarks = 20

// marksLive sends new calls of a device to a page that has charts, as the event "marks".
type marksLive struct {
	*Console
	who    ferrule.Principal
	device string
	after  time.Time // the page has earlier calls
}

// marksMessage is the event "marks".
type marksMessage struct {
	Device string      `json:"device"`
	Calls  []chartCall `json:"calls"`
}

func (l *marksLive) watch(changed func(string)) func() {
	return l.hub.subscribe(changed, callsTopic+l.device)
}

func (l *marksLive) update(_ context.Context, keys []string, out *updates) error {
	if len(keys) == 0 {
		l.api.RecentCalls(l.who, l.device, 1) // the first query makes the log of calls follow the journal
		return nil                            // the page has just been drawn
	}
	m := marksMessage{Device: l.device}
	newest := l.after
	for _, call := range l.api.RecentCalls(l.who, l.device, shownMarks) {
		ran := call.Phase == ferrule.Outcome && (call.Code == "" || call.MayHaveRun)
		if !ran || call.Operation != ferrule.CallTool || !call.Ended.After(l.after) {
			continue
		}
		if call.Ended.After(newest) {
			newest = call.Ended
		}
		m.Calls = append(m.Calls, chartCall{call.Time.UnixMilli(), ferrule.Clean(call.Tool, ferrule.MaxToolName), call.MayHaveRun})
	}
	if l.after = newest; len(m.Calls) == 0 {
		return nil
	}
	return out.event("marks", m)
}

// curvesOf returns what keeps the charts of a device current: samples and calls.
func (c *Console) curvesOf(f deviceFrame, who ferrule.Principal) live {
	return together{c.samplesOf(f), &marksLive{Console: c, who: who, device: f.Device.ID, after: time.Now()}}
}
