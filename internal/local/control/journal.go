package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// ErrAlone is returned by a gateway that is not one of several nodes: the journal in
// its data directory is all there is.
var ErrAlone = errors.New("this gateway stands alone")

// Journals is the journals of all nodes, as far as they were copied.
type Journals interface {
	// Read calls fn with lines of chains, in order within each chain and at most
	// ferrule.MaxJournalLines bytes at a time, until all that there is was read; if
	// the query follows, it goes on with what comes until ctx ends, and then returns
	// nil. An error of fn ends it and is returned. Fn may take its time.
	Read(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error
}

// journal writes lines of journals as fast as they are taken.
func (s *Server) journal(w http.ResponseWriter, r *http.Request) {
	if s.parts.Journals == nil {
		http.Error(w, ErrAlone.Error(), http.StatusNotFound)
		return
	}
	q, err := journalQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out := newLines(w)
	// A reader that has stopped reading would keep the gateway from ending.
	defer context.AfterFunc(r.Context(), func() { http.NewResponseController(w).SetWriteDeadline(time.Now()) })()
	err = s.parts.Journals.Read(r.Context(), q, func(l ferrule.JournalLines) error {
		if n := len(l.Lines); n > ferrule.MaxJournalLines {
			return fmt.Errorf("lines of a journal came in a piece of %d bytes", n)
		}
		out.write(reply{Journal: &l})
		return r.Context().Err()
	})
	switch {
	case r.Context().Err() != nil:
	case err != nil:
		out.write(reply{Error: ferrule.AsError(err)})
	default:
		out.write(reply{End: true})
	}
}

// journalQuery is the query that a request stands for.
func journalQuery(values url.Values) (q ferrule.JournalQuery, err error) {
	q.Node, q.Follow = values.Get("node"), values.Get("follow") == "true"
	if since := values.Get("since"); since != "" {
		q.Since, err = time.Parse(time.RFC3339Nano, since)
	}
	return q, err
}

// Journal calls fn with lines of the journals of all nodes, as Journals does. The
// error is ErrAlone if the gateway is not one of several.
func (c *Client) Journal(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error {
	values := url.Values{"node": {q.Node}, "follow": {fmt.Sprint(q.Follow)}}
	if !q.Since.IsZero() {
		values.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	resp, err := c.ask(ctx, http.MethodGet, "/journal?"+values.Encode(), nil)
	if err != nil {
		return ended(ctx, q, err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound: // a gateway of an older version is alone, too
		return ErrAlone
	default:
		return fmt.Errorf("%w: it does not tell of journals (%s)", ErrVersion, resp.Status)
	}
	for in := json.NewDecoder(resp.Body); ; {
		var r reply
		if err := in.Decode(&r); err != nil {
			return ended(ctx, q, fmt.Errorf("the gateway went away: %w", err))
		}
		switch {
		case r.Error != nil:
			return r.Error
		case r.End:
			return nil
		case r.Journal != nil:
			if err := fn(*r.Journal); err != nil {
				return err
			}
		}
	}
}

// ended is why reading ended: it is no error that a caller who follows had enough.
func ended(ctx context.Context, q ferrule.JournalQuery, err error) error {
	switch {
	case ctx.Err() == nil:
		return err
	case q.Follow:
		return nil
	}
	return ctx.Err()
}
