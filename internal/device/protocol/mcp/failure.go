package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// requestError is why a request has no JSON-RPC answer.
type requestError struct {
	sent   bool          // bytes of the request may have left
	silent bool          // there was no answer in time
	status int           // of HTTP; 0 if there was no response
	lost   bool          // the device does not know the session
	wait   time.Duration // after which to retry; 0 if unknown
	err    error
}

func (e *requestError) Error() string { return e.err.Error() }
func (e *requestError) Unwrap() error { return e.err }

// asRequestError returns the requestError that err is or wraps, or nil.
func asRequestError(err error) *requestError {
	var e *requestError
	errors.As(err, &e)
	return e
}

// declined reports whether the device rejected the request, so that it did not run.
// After 408 Request Timeout that is unknown.
func (e *requestError) declined() bool {
	return e.status >= 400 && e.status < 500 && e.status != http.StatusRequestTimeout
}

// temporary reports whether the device may accept the request later.
func (e *requestError) temporary() bool {
	return e.status == http.StatusTooManyRequests || e.status == http.StatusRequestTimeout || e.status >= 500
}

// final reports whether another request would fail as well.
func (e *requestError) final() bool {
	switch e.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return true
	}
	return !e.sent
}

// foreign reports whether the peer does not speak MCP, or did not answer.
func (e *requestError) foreign() bool { return e.sent && !e.final() }

// statusError is the error of an HTTP status. The answer may be nil.
func statusError(status int, said *jsonrpc.Error) error {
	text := fmt.Sprintf("HTTP status %d %s", status, http.StatusText(status))
	if said != nil && said.Message != "" {
		text += ": " + said.Error()
	}
	return errors.New(text)
}

// callError returns what the error means for a call.
func (e *requestError) callError(ctx context.Context, call *ferrule.Call) *ferrule.Error {
	switch {
	case !e.sent:
		return jsonrpc.SendError(ctx, call, e.err, false)
	case e.status == http.StatusUnauthorized, e.status == http.StatusForbidden:
		return jsonrpc.AnswerError(call, e.err, true).WithHint("the token is missing or wrong: set it for this URL in the config")
	case e.status == http.StatusTooManyRequests && e.wait > 0:
		return jsonrpc.AnswerError(call, e.err, true).WithHint("retry after %v", e.wait)
	case e.status == http.StatusTooManyRequests:
		return jsonrpc.AnswerError(call, e.err, true).WithHint("the device limits the rate of requests: wait a few seconds, then call less often")
	case e.lost && call.Target.Tool != nil && call.Target.Tool.Repeatable():
		return jsonrpc.Gone(e.err) // it did not run, and may be sent again
	case e.lost:
		return jsonrpc.AnswerError(call, e.err, true).WithHint("the device was restarted, and the gateway is reconnecting: retry in a moment")
	case e.declined():
		return jsonrpc.AnswerError(call, e.err, true)
	}
	return jsonrpc.NoAnswer(call, e.err)
}
