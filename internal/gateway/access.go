package gateway

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// What is recorded about access. Everybody who reaches a port can be refused without end, so
// that is summed up by address: at most 33 records a minute in the long run.
// Who has a credential can use it without end, and is summed up much later, and apart from
// strangers: a token that may be stolen must not go unnoticed among their attempts. What a
// person did is always recorded.
var (
	strangerRules = ratelimit.DigestRules{First: 3, Window: time.Minute, Keys: 32}
	knownRules    = ratelimit.DigestRules{First: 60, Window: time.Minute, Keys: 256}
)

const (
	// maxAccessWaiting is the limit of records that wait for the journal.
	maxAccessWaiting = 1024
	maxAccessMessage = 500 // characters
)

// access records who was let in, and who was not. Callers never
// wait for the disk.
type access struct {
	parts     accessParts
	strangers *ratelimit.Digest[attempts, ferrule.Entry]
	known     *ratelimit.Digest[uses, ferrule.Entry]

	disk sync.Mutex // held while records are written; taken before mu

	mu      sync.Mutex
	waiting []ferrule.Entry
	lost    int // records that did not fit
}

// accessParts is what an access works with.
type accessParts struct {
	Journal interface {
		Append(e ferrule.Entry, durable bool) error
	}
	Count func(event ferrule.AccessEvent, refused bool)
	Log   *slog.Logger
}

// attempts are the refused attempts of strangers at a host.
type attempts struct {
	host  netip.Prefix
	event ferrule.AccessEvent
}

// uses are the events of an account.
type uses struct {
	who     ferrule.Principal
	event   ferrule.AccessEvent
	refused ferrule.Code
}

func newAccess(p accessParts) *access {
	a := &access{parts: p}
	a.strangers = ratelimit.NewDigest(strangerRules, a.sumAttempts)
	a.known = ratelimit.NewDigest(knownRules, a.sumUses)
	return a
}

// recordAccess records who was let in, and who was not. Refused is the reason, or empty. From
// is an address, with or without a port. The message must not contain a secret.
func (g *Gateway) recordAccess(who ferrule.Principal, event ferrule.AccessEvent, from, message string, refused ferrule.Code) {
	g.access.record(who, event, from, message, refused)
}

func (a *access) record(who ferrule.Principal, event ferrule.AccessEvent, from, message string, refused ferrule.Code) {
	a.parts.Count(event, refused != "")
	if who == (ferrule.Principal{}) {
		who.Role = ferrule.Unverified
	}
	e := ferrule.Entry{
		Phase: ferrule.Access, Principal: who, Tool: string(event), Code: refused, From: ferrule.Clean(mcphttp.Hostname(from), ferrule.MaxWord),
		Message: ferrule.OneLine(ferrule.Clean(message, ferrule.MaxText), maxAccessMessage),
	}
	e.Principal.Name, e.Principal.User = ferrule.Clean(who.Name, ferrule.MaxWord), ferrule.Clean(who.User, ferrule.MaxWord)
	alone := true
	switch {
	case refused != "" && who.Role == ferrule.Unverified:
		alone = a.strangers.Alone(attempts{mcphttp.HostOf(from), event}, e)
	case refused != "" || who.Role != ferrule.Person:
		alone = a.known.Alone(uses{e.Principal.Account(), event, refused}, e)
	}
	if alone {
		a.write(e)
	}
}

// sumAttempts records the attempts at a host that were counted.
func (a *access) sumAttempts(of attempts, count int, last ferrule.Entry) {
	from := "other addresses"
	if of != (attempts{}) {
		from = cmp.Or(hostName(of.host), "an unknown address")
	}
	a.write(ferrule.Entry{
		Phase: ferrule.Access, Principal: ferrule.Principal{Role: ferrule.Unverified}, Tool: cmp.Or(string(of.event), last.Tool), From: hostName(of.host), Code: last.Code,
		Message: fmt.Sprintf("%d more from %s, the last one: %s", count, from, last.Message),
	})
}

// sumUses records the events of an account that were counted.
func (a *access) sumUses(of uses, count int, last ferrule.Entry) {
	by := "others"
	if of != (uses{}) {
		by = of.who.String()
	}
	a.write(ferrule.Entry{
		Phase: ferrule.Access, Principal: cmp.Or(of.who, ferrule.Principal{Role: ferrule.Unverified}), Tool: cmp.Or(string(of.event), last.Tool), From: last.From, Code: last.Code,
		Message: fmt.Sprintf("%d more by %s, the last one: %s", count, by, last.Message),
	})
}

// hostName returns an address, or a network if it stands for all of its addresses; empty if
// it is not known.
func hostName(host netip.Prefix) string {
	if !host.IsValid() {
		return ""
	}
	return strings.TrimSuffix(host.String(), "/32")
}

// write logs what was refused, and has the record written.
func (a *access) write(e ferrule.Entry) {
	e.Time = time.Now()
	if e.Code != "" {
		format := "refused a request from %s: %s"
		switch ferrule.AccessEvent(e.Tool) {
		case ferrule.AccessTokenUsed:
			format = "refused a token from %s: %s"
		case ferrule.AccessLogin:
			format = "refused a login from %s: %s"
		}
		a.parts.Log.Warn(fmt.Sprintf(format, cmp.Or(e.From, "an unknown address"), e.Message))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) >= maxAccessWaiting {
		a.lost++
		return
	}
	if a.waiting = append(a.waiting, e); len(a.waiting) == 1 {
		go a.drain()
	}
}

// drain writes the records that wait.
func (a *access) drain() {
	a.disk.Lock()
	defer a.disk.Unlock()
	a.mu.Lock()
	entries, lost := a.waiting, a.lost
	a.waiting, a.lost = nil, 0
	a.mu.Unlock()
	if lost > 0 {
		entries = append(entries, ferrule.Entry{Phase: ferrule.JournalGap, Message: fmt.Sprintf("%d records of logins and tokens missing: they were too many while the disk was busy", lost)})
	}
	for _, e := range entries {
		if err := a.parts.Journal.Append(e, false); err != nil {
			a.parts.Log.Error("not recorded: "+e.Message, "err", err)
		}
	}
}

// close records what was counted so far.
func (a *access) close() {
	a.strangers.Flush()
	a.known.Flush()
	a.drain()
}
