package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/sim"
)

// progress prints what happens to toys: of a few everything, and of many how many
// are how far.
type progress struct {
	app   *app
	count int

	mu     sync.Mutex
	states map[string]sim.Event // of each toy, what happened last
	sums   map[string]int       // how many toys are in each of them
	reason string               // of what went wrong last
	news   bool
}

// few is how many toys are told of one by one.
const few = 10

func newProgress(a *app, count int) *progress {
	return &progress{app: a, count: count, states: make(map[string]sim.Event), sums: make(map[string]int)}
}

// add takes in what happened.
func (p *progress) add(n sim.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.states[n.Toy]
	if before == n {
		return // it fails again
	}
	if known {
		p.sums[before.What]--
	}
	p.states[n.Toy] = n
	p.sums[n.What]++
	p.news = true
	if n.What == "failed" || n.What == "ended" {
		p.reason = n.Detail
	}
	if p.count <= few {
		p.print(n)
	}
}

// start prints sums, if there are many, until stop is called.
func (p *progress) start() (stop func()) {
	if p.count <= few {
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
				p.printSums()
			}
		}
	}()
	return func() {
		close(done)
		<-over
	}
}

// print tells of one toy.
func (p *progress) print(n sim.Event) {
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

// sums is how many toys are how far.
type sums struct {
	Toys      int    `json:"toys"`
	Connected int    `json:"connected"`
	Code      int    `json:"code"`   // show one
	Ended     int    `json:"ended"`  // were connected
	Failed    int    `json:"failed"` // could not ask or connect
	Reason    string `json:"reason,omitempty"`
}

// printSums tells of all toys, if something has changed.
func (p *progress) printSums() {
	p.mu.Lock()
	s := sums{p.count, p.sums["connected"], p.sums["code"], p.sums["ended"], p.sums["failed"], p.reason}
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
