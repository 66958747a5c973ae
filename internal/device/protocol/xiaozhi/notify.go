package xiaozhi

import (
	"encoding/json"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// The limits of notifications.
const (
	maxParams = 8 << 10         // bytes
	every     = time.Second / 5 // on average
	burst     = 20
)

// Notify implements protocol.Notifier.
func (s *session) Notify(fn func(method string, params json.RawMessage)) { s.notify = fn }

// notification passes on a notification within the limits.
func (s *session) notification(m message) {
	switch {
	case s.notify == nil:
	case len(m.params) > maxParams:
		s.note("dropped: notification of %d bytes, limit is %d", len(m.params), maxParams)
	case !s.rate.Allow(ratelimit.Rate{Burst: burst, Every: every}, time.Now()):
		s.note("dropped: notification, limit is %d per second", time.Second/every)
	default:
		s.notify(ferrule.Clean(m.name, ferrule.MaxToolName), m.params)
	}
}
