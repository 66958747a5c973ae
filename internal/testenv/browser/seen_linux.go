package browser

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// seen is what a page has done: its errors, and how much it has loaded.
type seen struct {
	problems []string
	bytes    int
	requests int
}

// watch begins to note what a page does.
func (c *connection) watch(session string) {
	c.mu.Lock()
	c.seen[session] = &seen{}
	c.mu.Unlock()
}

// forget begins to count what the next page loads. Problems stay.
func (b *Browser) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[b.session].bytes, b.seen[b.session].requests = 0, 0
}

// event notes an event. It is called with the lock held.
func (s *seen) event(method string, params json.RawMessage) {
	var p struct {
		EncodedDataLength float64
		Type              string
		Args              []struct {
			Value       any
			Description string
		}
		Entry            struct{ Source, Level, Text, URL string }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if json.Unmarshal(params, &p) != nil {
		return // of an event with other fields
	}
	switch method {
	case "Network.requestWillBeSent":
		s.requests++
	case "Network.loadingFinished":
		s.bytes += int(p.EncodedDataLength)
	case "Runtime.exceptionThrown":
		s.problems = append(s.problems, "exception: "+p.ExceptionDetails.Text+" "+p.ExceptionDetails.Exception.Description)
	case "Runtime.consoleAPICalled":
		if p.Type == "error" || p.Type == "assert" {
			s.problems = append(s.problems, fmt.Sprintf("console: %+v", p.Args))
		}
	case "Log.entryAdded":
		// The status of an answer is not a problem of the page. What the policy forbids is
		// logged as "security", or as "other" by older versions.
		if p.Entry.Source != "network" && (p.Entry.Level == "error" || strings.Contains(p.Entry.Text, "Content Security Policy")) {
			s.problems = append(s.problems, p.Entry.Source+": "+p.Entry.Text+" "+p.Entry.URL)
		}
	}
}

// Problems returns the errors that the page has logged and not caught, and what its
// Content-Security-Policy has forbidden, since the page was opened first.
func (b *Browser) Problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.seen[b.session].problems)
}

// Loaded returns how many bytes the page has loaded since Open, with headers and as they
// were sent, and with how many requests. Streams count when they end.
func (b *Browser) Loaded() (bytes, requests int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen[b.session].bytes, b.seen[b.session].requests
}
