package pipeline

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
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

// refusalWindow is how long the calls of a caller that exceeds its limits are counted
// before they are recorded together.
const refusalWindow = 10 * time.Second

// refusals records calls above a limit: the first one of a caller, and then how many
// followed, because a caller can make them without end.
type refusals struct {
	journal Journal
	log     *slog.Logger

	mu   sync.Mutex
	open map[ferrule.Principal]*refusal // by account
}

// refusal counts the refused calls of one caller that are not recorded one by one.
type refusal struct {
	count int
	last  string // message
}

func newRefusals(journal Journal, log *slog.Logger) *refusals {
	return &refusals{journal: journal, log: log, open: make(map[ferrule.Principal]*refusal)}
}

// record records or counts a refused call.
func (r *refusals) record(e ferrule.Entry) {
	who := e.Principal.Account()
	r.mu.Lock()
	one, counting := r.open[who]
	if counting {
		one.count++
		one.last = e.Message
	} else {
		r.open[who] = &refusal{}
		time.AfterFunc(refusalWindow, func() { r.sum(who) })
	}
	r.mu.Unlock()
	if !counting {
		r.append(e)
	}
}

// sum records how many calls of a caller were counted.
func (r *refusals) sum(who ferrule.Principal) {
	r.mu.Lock()
	one := r.open[who]
	delete(r.open, who)
	r.mu.Unlock()
	if one.count > 0 {
		r.append(ferrule.Entry{Phase: ferrule.JournalGap, Principal: who, Message: fmt.Sprintf("%d more calls by %s were refused: %s", one.count, who, one.last)})
	}
}

func (r *refusals) append(e ferrule.Entry) {
	if err := r.journal.Append(e, false); err != nil {
		r.log.Error("refused calls not recorded: "+e.Message, "err", err)
	}
}
