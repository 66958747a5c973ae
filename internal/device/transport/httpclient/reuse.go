package httpclient

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// Opening a connection takes as long as a fast response, so connections are reused, as
// HTTP/1.1 has it, unless the device closes them. An idle one is kept for a second: on one
// that is idle for longer, a device that lost power would look like one that received the
// request and did not answer. If a reused connection turns out to be closed, a request is
// sent on a new one if nothing of it was sent, or if it says that it may be repeated. A
// device that closes connections without saying so gets a new one for each request for a
// while.

const (
	// maxIdle is how long an idle connection is kept.
	maxIdle = time.Second
	// dropTime is how long a device gets new connections that closed one in use.
	dropTime = 10 * time.Minute
	// drainTimeout and maxDrain limit what may follow the last event of a stream.
	drainTimeout = time.Second
	maxDrain     = 4 << 10
)

// reuses reports whether a request may use a connection that served another one.
func (t *roundTripper) reuses(out *http.Request) bool {
	return !out.Close && !t.link.place.droppedLately()
}

// dropped takes note that the device closed a connection while it was in use again.
func (p *place) dropped() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = time.Now()
}

func (p *place) droppedLately() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.drops.IsZero() && time.Since(p.drops) < dropTime
}

// repeats reports whether a request may be sent again after the device has read it. As for
// an http.Transport, the header Idempotency-Key says so; without a value it is not sent.
func repeats(out *http.Request) bool {
	_, marked := out.Header["Idempotency-Key"]
	return marked || out.Method == http.MethodGet
}

// idle is the connection that waits for the next request, if there is one.
type idle struct {
	mu    sync.Mutex
	conn  *conn
	since time.Time
	timer *time.Timer
}

// put keeps a connection for the next request.
func (i *idle) put(c *conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.conn != nil {
		c.Close()
		return
	}
	i.conn, i.since = c, time.Now()
	if i.timer == nil {
		i.timer = time.AfterFunc(maxIdle, i.expire)
		return
	}
	i.timer.Reset(maxIdle)
}

// take returns the connection, or nil if there is none that is fit for use.
func (i *idle) take() *conn {
	i.mu.Lock()
	c := i.conn
	i.conn = nil
	i.mu.Unlock()
	if c == nil {
		return nil
	}
	if !c.unused() {
		c.Close()
		return nil
	}
	c.reused = true
	return c
}

// expire closes the connection if it was idle for maxIdle.
func (i *idle) expire() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.conn != nil && time.Since(i.since) >= maxIdle {
		i.conn.Close()
		i.conn = nil
	}
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
