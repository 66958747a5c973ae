package transport

import "net/http"

// HTTP is the ability of a Link that carries HTTP requests instead of Messages. Its
// Recv waits until the link is closed, and its Send always fails.
type HTTP interface {
	// HTTP returns the URL of the peer and a RoundTripper that sends requests to it
	// only. The RoundTripper may be used concurrently. Its error is ErrUnsent only if
	// no byte of the request was sent, and Close of the link cancels its requests. A
	// request with Close set gets a connection of its own; any other may reuse one. If
	// that turns out to be closed, a request with the header Idempotency-Key, as net/http
	// has it, without values, is sent again, and no other.
	HTTP() (url string, tripper http.RoundTripper)
}
