package httpclient

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Opening a connection takes as long as a fast response, so connections are reused if
// the device announces with a Keep-Alive header how long it keeps them open. Requests
// that act on the hardware set Close and get a connection of their own: on a reused
// connection, a device that lost power looks like one that received the request and
// did not answer.

const (
	// idleTimeout is how long an idle connection is kept.
	idleTimeout = time.Second
	// minKeepAlive is the shortest time that a device must announce. A shorter one
	// could end while a request is on its way.
	minKeepAlive = 5 * time.Second
	// drainTimeout and maxDrain limit what may follow the last event of a stream.
	drainTimeout = time.Second
	maxDrain     = 4 << 10
)

// checkKeepAlive records whether the device keeps connections open.
func (r *request) checkKeepAlive(response *http.Response) {
	keeps := keepAliveTimeout(response.Header.Get("Keep-Alive")) >= minKeepAlive && !(r.reuse && response.Close)
	r.tripper.keepsAlive.Store(keeps)
}

// keepAliveTimeout returns the timeout of a Keep-Alive header, such as
// "timeout=5, max=100", or zero.
func keepAliveTimeout(header string) time.Duration {
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if seconds, err := strconv.Atoi(value); strings.EqualFold(name, "timeout") && err == nil && seconds > 0 && seconds < 1<<20 {
			return time.Duration(seconds) * time.Second
		}
	}
	return 0
}

// drain reads the end of a stream in the background; without it the connection cannot
// be reused. The caller does not wait for it and may be gone.
func (r *request) drain(body io.Reader, end func()) {
	r.detach()
	go func() {
		slow := time.AfterFunc(drainTimeout, r.cancel)
		io.CopyN(io.Discard, body, maxDrain) // the result does not matter: it is closed next
		slow.Stop()
		end()
	}()
}
