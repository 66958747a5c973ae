package pipeline

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// Limits of the record of a call that changes nothing: such calls cost the caller
// nothing, so their records must not fill the disk.
const (
	maxRefusedArgs    = 4 << 10
	maxRefusedMessage = 1 << 10
)

// shorten replaces long arguments of a call that changed nothing by their length and hash.
func shorten(e *ferrule.Entry) {
	if n := len(e.Args); n > maxRefusedArgs {
		e.Args = ferrule.AppendString(nil, fmt.Sprintf("%d bytes, SHA-256 %x", n, sha256.Sum256(e.Args)))
	}
	if len(e.Message) > 0 {
		e.Message = ferrule.OneLine(e.Message, maxRefusedMessage)
	}
}

// refusalRules say how calls of a caller that exceeds its limits are recorded: the first
// one, and then how many followed, because a caller can make them without end.
var refusalRules = ratelimit.DigestRules{First: 1, Window: 10 * time.Second, Keys: 1024}

// refusals records calls above a limit.
type refusals struct {
	journal Journal
	log     *slog.Logger
	digest  *ratelimit.Digest[ferrule.Principal, string] // messages, by account
}

func newRefusals(journal Journal, log *slog.Logger) *refusals {
	r := &refusals{journal: journal, log: log}
	r.digest = ratelimit.NewDigest(refusalRules, r.sum)
	return r
}

// record records or counts a refused call.
func (r *refusals) record(e ferrule.Entry) {
	if r.digest.Alone(e.Principal.Account(), e.Message) {
		r.append(e)
	}
}

// sum records how many calls of a caller were counted.
func (r *refusals) sum(who ferrule.Principal, count int, last string) {
	name := who.String()
	if who == (ferrule.Principal{}) {
		name = "other callers"
	}
	r.append(ferrule.Entry{Phase: ferrule.JournalGap, Principal: who, Message: fmt.Sprintf("%d more calls by %s were refused: %s", count, name, last)})
}

func (r *refusals) append(e ferrule.Entry) {
	if err := r.journal.Append(e, false); err != nil {
		r.log.Error("refused calls not recorded: "+e.Message, "err", err)
	}
}
