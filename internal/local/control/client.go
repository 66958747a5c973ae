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

// ErrNoGateway is returned if no gateway listens on the socket.
var ErrNoGateway = errors.New("no gateway is running")

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
type Client struct{ http http.Client }

// NewClient returns a client for the socket at path. It connects when it is used.
func NewClient(path string) *Client {
	return &Client{http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
			switch {
			case err == nil:
				return conn, nil
			case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, wsaConnRefused):
				return nil, dialError{ErrNoGateway}
			}
			return nil, dialError{ferrule.Errorf(ferrule.Offline, "cannot connect to the gateway: %w", err)}
		},
		// An idle connection may belong to a gateway that has just exited. A call on
		// it fails without saying whether it was received.
		DisableKeepAlives: true,
	}}}
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
	resp, err := c.do(ctx, http.MethodPost, "/call", bytes.NewReader(body))
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
		case r.Error != nil:
			return nil, r.Error
		case r.Result != nil:
			return r.Result, nil
		}
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
