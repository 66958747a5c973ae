package httpclient

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// maxStreams is the number of responses to posts that may be streams at once while
// other posts go out. A board has one or none.
const maxStreams = 4

// maxHeader is the length of the longest response header.
const maxHeader = 64 << 10

// roundTripper is the http.RoundTripper of a link. It is made for boards: one
// connection per request, one post at a time, one stream in addition, and no idle
// connections. A device can announce that it keeps connections open, see
// keepalive.go.
type roundTripper struct {
	link       *link
	single     *http.Transport // one connection per request
	persistent *http.Transport // reuses connections
	keepsAlive atomic.Bool     // the device keeps connections open

	// Semaphores: each holds one element per request in progress.
	posts, gets, streams chan struct{}
}

func newRoundTripper(l *link) *roundTripper {
	t := &roundTripper{
		link:       l,
		single:     newTransport(l),
		persistent: newTransport(l),
		posts:      make(chan struct{}, 1),
		gets:       make(chan struct{}, 1),
		streams:    make(chan struct{}, maxStreams),
	}
	t.single.DisableKeepAlives = true
	return t
}

// newTransport returns an HTTP transport. It uses no proxy, because devices are
// local. It speaks HTTP/1 only, and so never resends a post that was partly sent.
func newTransport(l *link) *http.Transport {
	return &http.Transport{
		DialContext:            l.dial,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        idleTimeout,
		TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
		TLSHandshakeTimeout:    l.cfg.DialTimeout,
		ResponseHeaderTimeout:  l.cfg.ResponseTimeout,
		MaxResponseHeaderBytes: maxHeader,
	}
}

// request is a request in progress.
type request struct {
	tripper   *roundTripper
	cancel    context.CancelFunc
	detach    func() bool   // lets it outlive its caller
	semaphore chan struct{} // holds one element for this request; nil after release
	sent      atomic.Bool   // there was a connection, so bytes may have been sent
	reuse     bool          // its connection may be reused
}

// RoundTrip implements http.RoundTripper.
func (t *roundTripper) RoundTrip(out *http.Request) (*http.Response, error) {
	if out.Body != nil {
		defer out.Body.Close()
	}
	if out.Response != nil {
		// The request was sent once already, and the device may have acted on it.
		return nil, fmt.Errorf("the device redirects to %s, and redirects are not followed; if that is the device, use it as its URL", out.URL.Redacted())
	}
	if out.URL.Scheme != t.link.at.scheme || hostport(out.URL) != t.link.at.host {
		return nil, fmt.Errorf("%w: %s is another device", transport.ErrUnsent, out.URL.Redacted())
	}
	var body []byte
	if out.Body != nil {
		var err error
		if body, err = io.ReadAll(out.Body); err != nil {
			return nil, fmt.Errorf("%w: %w", transport.ErrUnsent, err)
		}
	}
	r, ctx, err := t.begin(out)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	response, err := r.send(ctx, out, body)
	if err != nil {
		r.end()
		return nil, err
	}
	return r.receive(response), nil
}

// begin waits for the turn of a request.
func (t *roundTripper) begin(out *http.Request) (*request, context.Context, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(out.Context()))
	detach := context.AfterFunc(out.Context(), cancel)
	r := &request{tripper: t, cancel: func() { detach(); cancel() }, detach: detach, reuse: !out.Close && t.keepsAlive.Load()}
	if err := t.link.begin(r); err != nil {
		return nil, nil, err
	}
	semaphore := t.posts
	if out.Method == http.MethodGet {
		semaphore = t.gets
	}
	select {
	case semaphore <- struct{}{}:
		r.semaphore = semaphore
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		err := t.link.reason(out.Context(), ctx.Err())
		r.end()
		return nil, nil, err
	}
	return r, ctx, nil
}

// end ends the request and lets the next one begin.
func (r *request) end() {
	r.tripper.link.finish(r)
	if r.semaphore != nil {
		<-r.semaphore
		r.semaphore = nil
	}
}

// send sends a request and waits for the header of the response. It always sets
// Content-Length: many boards cannot read a chunked body.
func (r *request) send(ctx context.Context, out *http.Request, body []byte) (*http.Response, error) {
	l := r.tripper.link
	copied := out.Clone(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { r.sent.Store(true) },
	}))
	copied.Body, copied.GetBody, copied.ContentLength, copied.TransferEncoding = nil, nil, 0, nil
	if len(body) > 0 {
		copied.Body, copied.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	inner := r.tripper.single
	if r.reuse {
		inner = r.tripper.persistent
	}
	if l.token != "" {
		copied.Header.Set("Authorization", "Bearer "+l.token)
	}
	l.Trace(transport.Out, transport.Message{Channel: out.Method, Data: body}, "") // before the response can be traced
	response, err := inner.RoundTrip(copied)
	if err == nil {
		response.Request = out
		r.checkKeepAlive(response)
		return response, nil
	}
	err = l.reason(out.Context(), err)
	if !r.sent.Load() {
		err = fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	l.Note(fmt.Sprintf("%s: %v", out.Method, err))
	return nil, err
}

// receive limits the body of a response and traces it. Unless it is a stream, it is
// read at once: the board is then free for the next request, whatever the caller
// does with the response.
func (r *request) receive(response *http.Response) *http.Response {
	l := r.tripper.link
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind == "text/event-stream" {
		l.Trace(transport.In, transport.Message{Channel: strconv.Itoa(response.StatusCode)}, "event stream begins")
		events := &eventStream{
			link: l, body: response.Body, release: r.stream(),
			reason: func(err error) error { return l.reason(response.Request.Context(), err) },
		}
		if r.reuse {
			events.drain = r.drain
		}
		response.Body = events
		return response
	}
	slow := time.AfterFunc(l.cfg.ResponseTimeout, r.cancel)
	data, err := io.ReadAll(io.LimitReader(response.Body, int64(l.cfg.MaxMessage)+1))
	switch late := !slow.Stop(); {
	case len(data) > l.cfg.MaxMessage:
		data, err = data[:l.cfg.MaxMessage], fmt.Errorf("%w: limit is %d bytes", transport.ErrTooLong, l.cfg.MaxMessage)
	case err != nil && late:
		err = fmt.Errorf("response is incomplete: %w", errTimeout)
	case err != nil:
		err = fmt.Errorf("response is incomplete: %w", l.reason(response.Request.Context(), err))
	}
	response.Body.Close()
	r.end()
	note := ""
	if err != nil {
		note = err.Error()
	}
	l.Trace(transport.In, transport.Message{Channel: strconv.Itoa(response.StatusCode), Data: data}, note)
	response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(data), errReader{cmp.Or(err, io.EOF)}))
	return response
}

// stream releases the semaphore of a post whose response is a stream, so that another
// post can answer a question that the device asks in the stream. It returns the
// function that ends the request.
func (r *request) stream() func() {
	end := r.end
	if r.semaphore == r.tripper.posts {
		select {
		case r.tripper.streams <- struct{}{}:
			<-r.semaphore
			r.semaphore = nil
			end = func() { r.end(); <-r.tripper.streams }
		default: // other posts wait
		}
	}
	return sync.OnceFunc(end)
}

// errReader ends a body with an error.
type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }
