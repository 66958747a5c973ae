package sim

import (
	"fmt"
	"sync"
	"time"
)

// Progress shows the state of toys: every change of a few, or counts of many.
type Progress struct {
	count int
	show  func(text string, value any)

	mu     sync.Mutex
	states map[string]Event // the last event of each toy
	counts map[string]int   // number of toys in each state
	reason string           // of the last failure
	news   bool
}

// maxListed is the number of toys up to which each change is shown.
const maxListed = 10

// NewProgress returns the progress of a number of toys. It calls show with a line of text
// and the same as a value for JSON, never concurrently.
func NewProgress(count int, show func(text string, value any)) *Progress {
	return &Progress{count: count, show: show, states: make(map[string]Event), counts: make(map[string]int)}
}

// Add records an event.
func (p *Progress) Add(n Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.states[n.Toy]
	if before == n {
		return // the same failure again
	}
	if known {
		p.counts[before.What]--
	}
	p.states[n.Toy] = n
	p.counts[n.What]++
	p.news = true
	if n.What == "failed" || n.What == "ended" {
		p.reason = n.Detail
	}
	if p.count <= maxListed {
		p.show(n.String(), n)
	}
}

// Start shows counts every second if there are many toys, until stop is called.
func (p *Progress) Start() (stop func()) {
	if p.count <= maxListed {
		return func() {}
	}
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Second):
				p.showCounts()
			}
		}
	}()
	return func() {
		close(done)
		<-over
	}
}

func (e Event) String() string {
	text := e.What
	switch {
	case e.What == "code":
		text = "shows the code " + e.Detail
	case e.Detail != "":
		text += ": " + e.Detail
	}
	return e.Toy + " " + text
}

// toyCounts is the number of toys in each state.
type toyCounts struct {
	Toys      int    `json:"toys"`
	Connected int    `json:"connected"`
	Code      int    `json:"code"`   // shows a code
	Ended     int    `json:"ended"`  // lost its connection
	Failed    int    `json:"failed"` // could not connect
	Reason    string `json:"reason,omitempty"`
}

// showCounts shows the counts, if something has changed.
func (p *Progress) showCounts() {
	p.mu.Lock()
	s := toyCounts{p.count, p.counts["connected"], p.counts["code"], p.counts["ended"], p.counts["failed"], p.reason}
	news := p.news
	p.news, p.reason = false, ""
	p.mu.Unlock()
	if !news {
		return
	}
	text := fmt.Sprintf("%d of %d connected", s.Connected, s.Toys)
	for _, part := range []struct {
		count int
		text  string
	}{{s.Code, "show a code"}, {s.Ended, "lost their connection"}, {s.Failed, "could not connect"}} {
		if part.count > 0 {
			text += fmt.Sprintf(", %d %s", part.count, part.text)
		}
	}
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	p.show(text, s)
}
