package transport

import "net/http"

// HTTP is the ability of a Link whose peer is spoken to through an HTTP library.
// Such a Link carries no Messages: its Recv waits until the link is closed, and
// its Send sends nothing.
type HTTP interface {
	// HTTP returns the URL of the peer, and what carries requests to it and to
	// nobody else. The carrier may be used by many goroutines at once. Its error
	// is ErrUnsent only if no byte of the request left. It never sends a
	// request twice, and what is under way through it ends with the link. A
	// request whose Close is set has a connection of its own; any other may go
	// where one went before, if the peer keeps connections open.
	HTTP() (url string, carrier http.RoundTripper)
}
