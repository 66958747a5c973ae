package httpclient

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// maxStreams is the number of responses to posts that may be streams at once while
// other posts go out. A board has one or none.
const maxStreams = 4

// roundTripper is the http.RoundTripper of a link. It is made for boards: one post at a
// time, one stream in addition, and no connection that is idle for long. See reuse.go.
type roundTripper struct {
	link *link
	idle idle

	// Semaphores: each holds one element per request in progress.
	posts, gets, streams chan struct{}
}

func newRoundTripper(l *link) *roundTripper {
	return &roundTripper{
		link:    l,
		posts:   make(chan struct{}, 1),
		gets:    make(chan struct{}, 1),
		streams: make(chan struct{}, maxStreams),
	}
}

// request is a request in progress.
type request struct {
	tripper   *roundTripper
	cancel    context.CancelFunc
	detach    func() bool   // lets it outlive its caller
	semaphore chan struct{} // holds one element for this request; nil after release
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
	var data []byte
	if out.Body != nil {
		var err error
		if data, err = io.ReadAll(out.Body); err != nil {
			return nil, fmt.Errorf("%w: %w", transport.ErrUnsent, err)
		}
	}
	r, ctx, err := t.begin(out)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	response, err := r.send(ctx, out, data)
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
	r := &request{tripper: t, cancel: func() { detach(); cancel() }, detach: detach}
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
		r.reuse = t.reuses(out) // as the last request left the device
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

// send sends a request and waits for the header of the response. A body always has a
// Content-Length: many boards cannot read a chunked one.
func (r *request) send(ctx context.Context, out *http.Request, data []byte) (*http.Response, error) {
	l := r.tripper.link
	copied := out.WithContext(ctx)
	copied.ContentLength, copied.TransferEncoding = int64(len(data)), nil
	if l.token != "" {
		copied.Header = out.Header.Clone()
		copied.Header.Set("Authorization", "Bearer "+l.token)
	}
	l.Trace(transport.Out, transport.Message{Channel: out.Method, Data: data}, "") // before the response can be traced
	response, wrote, err := r.try(ctx, copied, data)
	if err == nil {
		response.Request = out
		return response, nil
	}
	err = l.reason(out.Context(), err)
	if !wrote {
		err = fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	l.Note(fmt.Sprintf("%s: %v", out.Method, err))
	return nil, err
}

// try sends a request on a connection that served others, if there is one. If the device
// has closed that, it sends it on a new one, unless it may have run. It also returns
// whether something of the request may have been sent.
func (r *request) try(ctx context.Context, out *http.Request, data []byte) (_ *http.Response, wrote bool, _ error) {
	for {
		c, err := r.connection(ctx)
		if err != nil {
			return nil, wrote, err
		}
		out.Body, out.Close = http.NoBody, !r.reuse
		if len(data) > 0 {
			out.Body = io.NopCloser(bytes.NewReader(data))
		}
		response, err := c.exchange(ctx, out)
		wrote = wrote || c.wrote
		if err == nil {
			return response, wrote, nil
		}
		c.unwatch()
		c.Close()
		if !c.reused || ctx.Err() != nil {
			return nil, wrote, err
		}
		r.tripper.link.place.dropped()
		r.reuse = false
		if again := !c.wrote || repeats(out) && !c.heard && !isTimeout(err); !again {
			return nil, wrote, err
		}
	}
}

// connection returns a connection for a request.
func (r *request) connection(ctx context.Context) (*conn, error) {
	if r.reuse {
		if c := r.tripper.idle.take(); c != nil {
			return c, nil
		}
	}
	return r.tripper.link.dial(ctx)
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
