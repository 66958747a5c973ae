package xiaozhi

import (
	"encoding/json"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// The bounds of what a device may say unasked.
const (
	maxParams = 8 << 10         // bytes of a notification
	every     = time.Second / 5 // in the long run
	atOnce    = 20
)

// Notify implements dialect.Notifier.
func (s *session) Notify(fn func(method string, params json.RawMessage)) { s.notify = fn }

// tell hands a notification on, if somebody wants it and there are not too many.
func (s *session) tell(d said) {
	switch {
	case s.notify == nil:
	case len(d.params) > maxParams:
		s.note("dropped: a notification of %d bytes; at most %d are possible", len(d.params), maxParams)
	case !s.allowed.Allow(ratelimit.Rate{Burst: atOnce, Every: every}, time.Now()):
		s.note("dropped: more than %d notifications a second", time.Second/every)
	default:
		s.notify(ferrule.Clean(d.word, ferrule.MaxToolName), d.params)
	}
}
