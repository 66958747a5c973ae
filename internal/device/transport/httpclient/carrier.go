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

// maxStreams is how many answers to posts may be streams at once, beside which
// there can be other posts. A board has one or none.
const maxStreams = 4

// maxHeader is the length of the longest header of an answer.
const maxHeader = 64 << 10

// carrier is the http.RoundTripper of a link. It is made for boards: a connection
// for each request, one post at a time, one stream that is read beside, and nothing
// that is kept open in case; see keep.go for those that say that they want it otherwise.
type carrier struct {
	link  *link
	once  *http.Transport // a connection for each request
	kept  *http.Transport // connections that are used again
	keeps atomic.Bool     // the device keeps connections open

	// Each holds something for each request that is under way.
	posts, gets, streams chan struct{}
}

func newCarrier(l *link) *carrier {
	c := &carrier{
		link:    l,
		once:    newTransport(l),
		kept:    newTransport(l),
		posts:   make(chan struct{}, 1),
		gets:    make(chan struct{}, 1),
		streams: make(chan struct{}, maxStreams),
	}
	c.once.DisableKeepAlives = true
	return c
}

// newTransport makes a transport. Without Proxy, none is used: a device is in the house.
// It speaks HTTP/1 only, and so repeats no post of which a byte was sent.
func newTransport(l *link) *http.Transport {
	return &http.Transport{
		DialContext:            l.dial,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        keepTime,
		TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
		TLSHandshakeTimeout:    l.cfg.DialTimeout,
		ResponseHeaderTimeout:  l.cfg.Answer,
		MaxResponseHeaderBytes: maxHeader,
	}
}

// request is one that is under way.
type request struct {
	carrier *carrier
	cancel  context.CancelFunc
	detach  func() bool   // has it not end with its caller
	lane    chan struct{} // holds one for this request; nil if it does not any more
	sent    atomic.Bool   // there was a connection, and bytes may have gone out
	again   bool          // its connection may be used again
}

// RoundTrip implements http.RoundTripper.
func (c *carrier) RoundTrip(out *http.Request) (*http.Response, error) {
	if out.Body != nil {
		defer out.Body.Close()
	}
	if out.Response != nil {
		// What was redirected has been sent once, and a device that redirects
		// may have acted.
		return nil, fmt.Errorf("the device redirects to %s, which is not followed: if that is right, it is the URL to give", out.URL.Redacted())
	}
	if out.URL.Scheme != c.link.at.scheme || hostport(out.URL) != c.link.at.host {
		return nil, fmt.Errorf("%w: %s is not this device", transport.ErrUnsent, out.URL.Redacted())
	}
	var body []byte
	if out.Body != nil {
		var err error
		if body, err = io.ReadAll(out.Body); err != nil {
			return nil, fmt.Errorf("%w: %w", transport.ErrUnsent, err)
		}
	}
	r, ctx, err := c.begin(out)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	answer, err := r.send(ctx, out, body)
	if err != nil {
		r.end()
		return nil, err
	}
	return r.receive(answer), nil
}

// begin waits until it is the turn of a request.
func (c *carrier) begin(out *http.Request) (*request, context.Context, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(out.Context()))
	detach := context.AfterFunc(out.Context(), cancel)
	r := &request{carrier: c, cancel: func() { detach(); cancel() }, detach: detach, again: !out.Close && c.keeps.Load()}
	if err := c.link.begin(r); err != nil {
		return nil, nil, err
	}
	lane := c.posts
	if out.Method == http.MethodGet {
		lane = c.gets
	}
	select {
	case lane <- struct{}{}:
		r.lane = lane
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		err := c.link.why(out.Context(), ctx.Err())
		r.end()
		return nil, nil, err
	}
	return r, ctx, nil
}

// end lets the next request begin.
func (r *request) end() {
	r.carrier.link.finish(r)
	if r.lane != nil {
		<-r.lane
		r.lane = nil
	}
}

// send sends a request, and waits for the head of its answer. Its length is told
// beforehand: a board has no memory to find it out.
func (r *request) send(ctx context.Context, out *http.Request, body []byte) (*http.Response, error) {
	l := r.carrier.link
	copied := out.Clone(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { r.sent.Store(true) },
	}))
	copied.Body, copied.GetBody, copied.ContentLength, copied.TransferEncoding = nil, nil, 0, nil
	if len(body) > 0 {
		copied.Body, copied.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	tripper := r.carrier.once
	if r.again {
		tripper = r.carrier.kept
	}
	if l.token != "" {
		copied.Header.Set("Authorization", "Bearer "+l.token)
	}
	l.Saw(transport.Out, transport.Message{Channel: out.Method, Data: body}, "") // before the answer can be seen
	answer, err := tripper.RoundTrip(copied)
	if err == nil {
		answer.Request = out
		r.learn(answer)
		return answer, nil
	}
	err = l.why(out.Context(), err)
	if !r.sent.Load() {
		err = fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	l.Note(fmt.Sprintf("%s: %v", out.Method, err))
	return nil, err
}

// receive makes an answer one that is bounded, and that the tap has seen. What is no
// stream is read at once, so that the board is free for the next request whatever
// becomes of the answer.
func (r *request) receive(answer *http.Response) *http.Response {
	l := r.carrier.link
	if kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); kind == "text/event-stream" {
		l.Saw(transport.In, transport.Message{Channel: strconv.Itoa(answer.StatusCode)}, "a stream of events begins")
		events := &stream{
			link: l, body: answer.Body, release: r.stream(),
			why: func(err error) error { return l.why(answer.Request.Context(), err) },
		}
		if r.again {
			events.rest = r.rest
		}
		answer.Body = events
		return answer
	}
	slow := time.AfterFunc(l.cfg.Answer, r.cancel)
	data, err := io.ReadAll(io.LimitReader(answer.Body, int64(l.cfg.Message)+1))
	switch late := !slow.Stop(); {
	case len(data) > l.cfg.Message:
		data, err = data[:l.cfg.Message], fmt.Errorf("%w: the answer has more than %d bytes", transport.ErrTooLong, l.cfg.Message)
	case err != nil && late:
		err = fmt.Errorf("the answer broke off: %w", errSilent)
	case err != nil:
		err = fmt.Errorf("the answer broke off: %w", l.why(answer.Request.Context(), err))
	}
	answer.Body.Close()
	r.end()
	note := ""
	if err != nil {
		note = err.Error()
	}
	l.Saw(transport.In, transport.Message{Channel: strconv.Itoa(answer.StatusCode), Data: data}, note)
	answer.Body = io.NopCloser(io.MultiReader(bytes.NewReader(data), broken{cmp.Or(err, io.EOF)}))
	return answer
}

// stream gives the lane of a post whose answer is a stream to the next: a question
// that the device asks in the stream is answered by a post. It returns what ends the
// request.
func (r *request) stream() func() {
	end := r.end
	if r.lane == r.carrier.posts {
		select {
		case r.carrier.streams <- struct{}{}:
			<-r.lane
			r.lane = nil
			end = func() { r.end(); <-r.carrier.streams }
		default: // then the others wait
		}
	}
	return sync.OnceFunc(end)
}

// broken ends a body with an error.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }
