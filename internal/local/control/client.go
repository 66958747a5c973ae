package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// ErrNoGateway is returned if no gateway listens on the socket.
var ErrNoGateway = errors.New("no gateway is running")

// ErrNotAllowed is returned if this user may not open the socket.
var ErrNotAllowed = errors.New("you may not use this gateway")

// ErrUnreachable is returned if the socket cannot be opened for another reason.
var ErrUnreachable = errors.New("cannot connect to the gateway")

// ErrVersion is returned if the gateway does not support the request.
var ErrVersion = errors.New("the running gateway has another version; restart it")

// ErrNotHandedOver is returned if the gateway keeps running.
var ErrNotHandedOver = errors.New("the running gateway keeps running")

// dialError is why the socket could not be opened. Nothing was sent.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

// wsaConnRefused is ECONNREFUSED on Windows.
const wsaConnRefused = syscall.Errno(10061)

// Client sends requests to the running gateway.
type Client struct {
	http http.Client

	mu    sync.Mutex
	paths []string // sockets to try, in order; one is left after the first connection
}

// NewClient returns a client of the first gateway that runs: path is its socket, or one of
// others. It connects when it is used, and then stays with that gateway.
func NewClient(path string, others ...string) *Client {
	c := &Client{paths: append([]string{path}, others...)}
	// An idle connection may belong to a gateway that has just exited. A call on it fails
	// without saying whether it was received.
	c.http.Transport = &http.Transport{DialContext: c.dial, DisableKeepAlives: true}
	return c
}

// dial connects to the first socket on which a gateway listens. A socket that cannot be
// opened for another reason ends the search: the user may want that gateway.
func (c *Client) dial(ctx context.Context, _, _ string) (conn net.Conn, err error) {
	c.mu.Lock()
	paths := c.paths
	c.mu.Unlock()
	for _, path := range paths {
		if conn, err = Dial(ctx, path); err == nil {
			c.mu.Lock()
			c.paths = []string{path}
			c.mu.Unlock()
			return conn, nil
		}
		if !errors.Is(err, ErrNoGateway) {
			break
		}
	}
	return nil, dialError{err}
}

// Dial opens a socket. The error is ErrNoGateway, ErrNotAllowed or ErrUnreachable. Nothing
// was sent.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, wsaConnRefused):
		return nil, ErrNoGateway
	case errors.Is(err, os.ErrPermission) && path == ServiceSocket:
		return nil, ferrule.Errorf(ferrule.Denied, "%w: it is the service of this machine, and you are not in its group", ErrNotAllowed).
			WithHint("Run `sudo usermod -aG %s $USER`, then log out and in.", serviceGroup)
	case errors.Is(err, os.ErrPermission):
		return nil, ferrule.Errorf(ferrule.Denied, "%w: %s belongs to another user", ErrNotAllowed, path).
			WithHint("Run the command as that user. Leave out --data to use the service of this machine.")
	}
	return nil, ferrule.Errorf(ferrule.Offline, "%w: %v", ErrUnreachable, err)
}

// usesService reports whether the client is connected to the packaged service.
func (c *Client) usesService() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.paths) == 1 && c.paths[0] == ServiceSocket
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Handle runs a call on the gateway; it is a ferrule.Handler. It returns the error of
// the gateway, ErrNoGateway, or ferrule.Unanswered if the connection was lost.
func (c *Client) Handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	body, err := json.Marshal(request{call, call.Ask != nil})
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Invalid, "encoding the call: %w", err)
	}
	sending, release := untilAnswered(ctx)
	defer release()
	resp, err := c.do(sending, http.MethodPost, "/call", bytes.NewReader(body))
	if failed := (dialError{}); errors.As(err, &failed) {
		return nil, failed.error
	}
	if err != nil {
		return nil, connectionLost(ctx, call, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return nil, ferrule.Errorf(ferrule.Invalid, "the gateway rejected the call: %s", bytes.TrimSpace(text))
	}
	answering, cancel := context.WithCancel(ctx)
	var answers sync.WaitGroup
	defer answers.Wait()
	defer cancel()
	for in := json.NewDecoder(resp.Body); ; {
		var r reply
		if err := in.Decode(&r); err != nil {
			return nil, connectionLost(ctx, call, err)
		}
		switch {
		case r.Progress != nil:
			call.Report(*r.Progress)
		case r.Question != nil && call.Ask != nil:
			answers.Go(func() { c.answer(answering, call, *r.Question) })
		case r.Error != nil && r.Error.Code == ferrule.Internal && ctx.Err() != nil:
			return nil, connectionLost(ctx, call, r.Error) // it only says that the call was cancelled
		case r.Error != nil:
			return nil, r.Error
		case r.Result != nil:
			return r.Result, nil
		}
	}
}

// cancelWait is how long a cancelled call waits for the gateway to say what became of it. A
// device has 3 s to cancel a job.
const cancelWait = 5 * time.Second

// untilAnswered returns a context for the request of a call. If ctx is canceled, the sending
// half of the connection is closed, which cancels the call on the gateway. The request then
// lasts until the gateway answers: only it knows whether the device was told to stop. Release
// must be called after the answer.
func untilAnswered(ctx context.Context) (sending context.Context, release func()) {
	sending, abort := context.WithCancel(context.WithoutCancel(ctx))
	conns := make(chan net.Conn, 1)
	sending = httptrace.WithClientTrace(sending, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		select {
		case conns <- info.Conn:
		default:
		}
	}})
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			select {
			case conn := <-conns:
				if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
					time.AfterFunc(cancelWait, abort)
					return
				}
			default:
			}
		}
		abort()
	})
	return sending, func() {
		stop()
		abort()
	}
}

// connectionLost returns the error of a call that was sent and not answered.
func connectionLost(ctx context.Context, call *ferrule.Call, err error) error {
	if ctx.Err() != nil {
		return ferrule.Errorf(ferrule.Cancelled, "%s on %s was cancelled while it was running", call.Tool, call.Device).AfterSend()
	}
	return ferrule.Errorf(ferrule.Unanswered, "connection to the gateway lost during the call: %w", err).
		WithHint("Run `ferrule audit` to see how far the call got.")
}

// Trace calls fn with the frames to and from a device until ctx ends. It then
// returns nil.
func (c *Client) Trace(ctx context.Context, device string, fn func(ferrule.Trace)) error {
	resp, err := c.send(ctx, http.MethodGet, "/trace?device="+url.QueryEscape(device), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return eachReply(ctx, resp.Body, func(r reply) {
		if r.Trace != nil {
			fn(*r.Trace)
		}
	})
}

// eachReply calls fn with every reply until ctx ends. It then returns nil.
func eachReply(ctx context.Context, body io.Reader, fn func(reply)) error {
	for in := json.NewDecoder(body); ; {
		var r reply
		switch err := in.Decode(&r); {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("connection to the gateway lost: %w", err)
		case r.Error != nil:
			return r.Error
		}
		fn(r)
	}
}

// TakeOver asks the gateway to exit, so that the caller can take over. The error is
// ErrNotHandedOver if the gateway stays.
func (c *Client) TakeOver(ctx context.Context) error {
	resp, err := c.send(ctx, http.MethodPost, "/handover", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("%w: %s", ErrNotHandedOver, bytes.TrimSpace(text))
	}
	return nil
}

// send sends a request other than a call.
func (c *Client) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	resp, err := c.do(ctx, method, path, body)
	if failed := (dialError{}); errors.As(err, &failed) {
		return nil, failed.error
	}
	if err != nil {
		return nil, fmt.Errorf("connection to the gateway lost: %w", err)
	}
	return resp, nil
}

func (c *Client) do(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://ferrule"+path, body)
	if err != nil {
		return nil, err
	}
	return c.http.Do(req)
}
