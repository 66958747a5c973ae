package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/sim"
)

// toyProgress prints the state of toys: every change of a few, or counts of many.
type toyProgress struct {
	app   *app
	count int

	mu     sync.Mutex
	states map[string]sim.Event // the last event of each toy
	counts map[string]int       // number of toys in each state
	reason string               // of the last failure
	news   bool
}

// maxListed is the number of toys up to which each change is printed.
const maxListed = 10

func newToyProgress(a *app, count int) *toyProgress {
	return &toyProgress{app: a, count: count, states: make(map[string]sim.Event), counts: make(map[string]int)}
}

// add records an event.
func (p *toyProgress) add(n sim.Event) {
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
		p.print(n)
	}
}

// start prints counts every second if there are many toys, until stop is called.
func (p *toyProgress) start() (stop func()) {
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
				p.printCounts()
			}
		}
	}()
	return func() {
		close(done)
		<-over
	}
}

func (p *toyProgress) print(n sim.Event) {
	if p.app.json {
		p.app.printJSON(n)
		return
	}
	text := n.What
	switch {
	case n.What == "code":
		text = "shows the code " + n.Detail
	case n.Detail != "":
		text += ": " + n.Detail
	}
	fmt.Fprintf(p.app.stdout, "%s %s\n", n.Toy, text)
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

// printCounts prints the counts, if something has changed.
func (p *toyProgress) printCounts() {
	p.mu.Lock()
	s := toyCounts{p.count, p.counts["connected"], p.counts["code"], p.counts["ended"], p.counts["failed"], p.reason}
	news := p.news
	p.news, p.reason = false, ""
	p.mu.Unlock()
	if !news {
		return
	}
	if p.app.json {
		p.app.printJSON(s)
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
	fmt.Fprintln(p.app.stdout, text)
}
