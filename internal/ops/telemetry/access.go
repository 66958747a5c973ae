package telemetry

import (
	"slices"
	"sync/atomic"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// accessEvents are the values of the label event. Unknown ones count as the last.
var accessEvents = [...]string{
	string(ferrule.AccessLogin), string(ferrule.AccessLogout), string(ferrule.AccessConsent), string(ferrule.AccessClientAdded),
	string(ferrule.AccessTokenAdded), string(ferrule.AccessTokenUsed), string(ferrule.AccessTokenRotated), string(ferrule.AccessTokenRevoked),
	string(ferrule.AccessPersonAdded), string(ferrule.AccessPersonRemoved), other,
}

// accessResults are the values of the label result.
var accessResults = [...]string{"ok", "refused"}

// accesses counts who was let in, and who was not.
type accesses [len(accessEvents)][len(accessResults)]atomic.Uint64

// Accessed counts that somebody was let in or refused. It never blocks.
func (o *Telemetry) Accessed(event ferrule.AccessEvent, refused bool) {
	e := slices.Index(accessEvents[:], string(event))
	if e < 0 {
		e = len(accessEvents) - 1
	}
	result := 0
	if refused {
		result = 1
	}
	o.accesses[e][result].Add(1)
}

// each calls fn for every counter, except that of unknown events while it is zero.
func (a *accesses) each(fn func(count uint64, event, result string)) {
	for e := range a {
		for r := range a[e] {
			if count := a[e][r].Load(); count > 0 || accessEvents[e] != other {
				fn(count, accessEvents[e], accessResults[r])
			}
		}
	}
}
