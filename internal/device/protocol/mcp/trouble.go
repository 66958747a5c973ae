package mcp

import (
	"fmt"
	"net/http"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// trouble is why a request has no answer of JSON-RPC.
type trouble struct {
	sent   bool // bytes of it may have left
	silent bool // nothing came in time
	status int  // of HTTP; zero if there was none
	lost   bool // the device has forgotten the session
	wait   time.Duration
	err    error
}

func (t *trouble) Error() string { return t.err.Error() }
func (t *trouble) Unwrap() error { return t.err }

// declined tells that the device did not take the request: it did not run. Of one that was
// waited for too long nobody knows.
func (t *trouble) declined() bool {
	return t.status >= 400 && t.status < 500 && t.status != http.StatusRequestTimeout
}

// passing tells that what is declined now may be taken later.
func (t *trouble) passing() bool {
	return t.status == http.StatusTooManyRequests || t.status == http.StatusRequestTimeout || t.status >= 500
}

// final tells that asking in another way does not help.
func (t *trouble) final() bool {
	switch t.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return true
	}
	return !t.sent
}

// foreign tells that whoever answered does not speak MCP, or that nobody did.
func (t *trouble) foreign() bool { return t.sent && !t.final() }

// statusError says what a status of HTTP means.
func statusError(status int, said *rpcError) error {
	text := fmt.Sprintf("it answers %d %s", status, http.StatusText(status))
	if said != nil && said.Message != "" {
		text += ": " + said.Error()
	}
	return fmt.Errorf("%s", text)
}

// failure says what trouble with a call means.
func (t *trouble) failure(call *ferrule.Call) *ferrule.Error {
	switch {
	case !t.sent:
		return ferrule.Errorf(ferrule.Offline, "%s could not be reached: %w", call.Device, t.err)
	case t.status == http.StatusUnauthorized, t.status == http.StatusForbidden:
		return ferrule.Errorf(ferrule.Refused, "%s refused %s: %w", call.Device, call.Tool, t.err).
			WithHint("it wants another token: give it with its URL in the config")
	case t.status == http.StatusTooManyRequests:
		return ferrule.Errorf(ferrule.Refused, "%s refused %s: %w", call.Device, call.Tool, t.err).
			WithHint("%s", t.patience())
	case t.lost:
		return ferrule.Errorf(ferrule.Refused, "%s refused %s: %w", call.Device, call.Tool, t.err).
			WithHint("it has forgotten this gateway, as after a restart, and is greeted again: call again in a moment")
	case t.declined():
		return ferrule.Errorf(ferrule.Refused, "%s refused %s: %w", call.Device, call.Tool, t.err)
	}
	return ferrule.Errorf(ferrule.Unanswered, "%s did not answer %s: %w", call.Device, call.Tool, t.err)
}

// patience is what to do after too many requests.
func (t *trouble) patience() string {
	if t.wait > 0 {
		return fmt.Sprintf("it takes no more requests for %v: call again then", t.wait)
	}
	return "it takes only so many requests at a time, and does not say when it takes more: wait some seconds, and call less often"
}
