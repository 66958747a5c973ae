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
	"net/url"
	"os"
	"sync"
	"syscall"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// ErrNoGateway is returned when nobody listens on the socket.
var ErrNoGateway = errors.New("no gateway is running")

// ErrVersion is returned by a gateway that does not know what is asked of it.
var ErrVersion = errors.New("the gateway that is running is of another version; end it, and start it anew")

// ErrKept is returned by a gateway that does not make room for another.
var ErrKept = errors.New("the gateway that is running stays")

// unreachable is why the socket could not be opened: nothing was sent.
type unreachable struct{ error }

func (e unreachable) Unwrap() error { return e.error }

// wsaRefused is what Windows calls ECONNREFUSED.
const wsaRefused = syscall.Errno(10061)

// Client is a command's end of the socket.
type Client struct{ http http.Client }

// NewClient makes a client of the socket at path. It connects when it is used.
func NewClient(path string) *Client {
	return &Client{http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
			switch {
			case err == nil:
				return conn, nil
			case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, wsaRefused):
				return nil, unreachable{ErrNoGateway}
			}
			return nil, unreachable{ferrule.Errorf(ferrule.Offline, "the gateway cannot be reached: %w", err)}
		},
		// One that is kept may be that of a gateway which has just gone, and then
		// nobody can tell whether a call was taken.
		DisableKeepAlives: true,
	}}}
}

// Close lets go of the connection.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Handle has the gateway serve a call; it is a ferrule.Handler. Its errors are
// the gateway's, or ErrNoGateway, or tell that the gateway went away.
func (c *Client) Handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	body, err := json.Marshal(request{call, call.Ask != nil})
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Invalid, "the call cannot be told to the gateway: %w", err)
	}
	resp, err := c.do(ctx, http.MethodPost, "/call", bytes.NewReader(body))
	if never := (unreachable{}); errors.As(err, &never) {
		return nil, never.error
	}
	if err != nil {
		return nil, lost(ctx, call, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return nil, ferrule.Errorf(ferrule.Invalid, "the gateway did not take the call: %s", bytes.TrimSpace(text))
	}
	asking, cancel := context.WithCancel(ctx)
	var answers sync.WaitGroup
	defer answers.Wait()
	defer cancel()
	for in := json.NewDecoder(resp.Body); ; {
		var r reply
		if err := in.Decode(&r); err != nil {
			return nil, lost(ctx, call, err)
		}
		switch {
		case r.Progress != nil:
			call.Report(*r.Progress)
		case r.Question != nil && call.Ask != nil:
			answers.Go(func() { c.answer(asking, call, *r.Question) })
		case r.Error != nil:
			return nil, r.Error
		case r.Result != nil:
			return r.Result, nil
		}
	}
}

// lost says that the gateway went away in the middle of a call.
func lost(ctx context.Context, call *ferrule.Call, err error) error {
	if ctx.Err() != nil {
		return ferrule.Errorf(ferrule.Cancelled, "cancelled while %s was at %s", call.Device, call.Tool).AfterSend()
	}
	return ferrule.Errorf(ferrule.Unanswered, "the gateway went away during the call: %w", err).
		WithHint("`ferrule audit` tells how far it got")
}

// Trace calls fn with everything that is seen on the wire to a device, until ctx
// ends; it then returns nil.
func (c *Client) Trace(ctx context.Context, device string, fn func(ferrule.Trace)) error {
	resp, err := c.ask(ctx, http.MethodGet, "/trace?device="+url.QueryEscape(device), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for in := json.NewDecoder(resp.Body); ; {
		var r reply
		if err := in.Decode(&r); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("the gateway went away: %w", err)
		}
		switch {
		case r.Error != nil:
			return r.Error
		case r.Trace != nil:
			fn(*r.Trace)
		}
	}
}

// Yield asks the gateway to end, so that the caller can become it.
func (c *Client) Yield(ctx context.Context) error {
	resp, err := c.ask(ctx, http.MethodPost, "/yield", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("%w: %s", ErrKept, bytes.TrimSpace(text))
	}
	return nil
}

// ask makes a request that is no call.
func (c *Client) ask(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	resp, err := c.do(ctx, method, path, body)
	if never := (unreachable{}); errors.As(err, &never) {
		return nil, never.error
	}
	if err != nil {
		return nil, fmt.Errorf("the gateway went away: %w", err)
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
