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

// ErrSingleNode is returned if the gateway is not part of a cluster. The journal in its
// data directory is the only one.
var ErrSingleNode = errors.New("this gateway is not part of a cluster")

// Journals reads the copied journals of all nodes.
type Journals interface {
	// Read calls fn with journal lines, in order within each chain and at most
	// ferrule.MaxJournalLines bytes at a time. If q.Forged is set, it also calls fn with
	// messages that no node wrote, without lines. It returns after the last line. If
	// q.Follow is set, it goes on with new lines until ctx ends and returns nil. An
	// error of fn ends the reading and is returned. fn may block.
	Read(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error
}

// journal writes journal lines as fast as the caller reads them.
func (s *Server) journal(w http.ResponseWriter, r *http.Request) {
	if s.parts.Journals == nil {
		http.Error(w, ErrSingleNode.Error(), http.StatusNotFound)
		return
	}
	q, err := journalQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out := newLines(w)
	// A caller that stopped reading must not delay the exit of the gateway.
	defer context.AfterFunc(r.Context(), func() { http.NewResponseController(w).SetWriteDeadline(time.Now()) })()
	err = s.parts.Journals.Read(r.Context(), q, func(l ferrule.JournalLines) error {
		if n := len(l.Lines); n > ferrule.MaxJournalLines {
			return fmt.Errorf("journal lines have %d bytes, limit is %d", n, ferrule.MaxJournalLines)
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

// journalQuery parses the query of a request.
func journalQuery(values url.Values) (q ferrule.JournalQuery, err error) {
	q.Node, q.Follow, q.Forged = values.Get("node"), values.Get("follow") == "true", values.Get("forged") == "true"
	if since := values.Get("since"); since != "" {
		q.Since, err = time.Parse(time.RFC3339Nano, since)
	}
	return q, err
}

// Journal calls fn with the journal lines of all nodes, as Journals.Read does. The
// error is ErrSingleNode if the gateway is not part of a cluster.
func (c *Client) Journal(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error {
	values := url.Values{"node": {q.Node}, "follow": {fmt.Sprint(q.Follow)}, "forged": {fmt.Sprint(q.Forged)}}
	if !q.Since.IsZero() {
		values.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	resp, err := c.send(ctx, http.MethodGet, "/journal?"+values.Encode(), nil)
	if err != nil {
		return readError(ctx, q, err)
	}
	defer resp.Body.Close()
	if c.usesService() {
		// The journal of the user's own data directory would be the wrong one.
		return ferrule.Errorf(ferrule.Denied, "the journal of the service can only be read by its user").
			WithHint("Run `sudo -u %s ferrule audit --data %s`. Add --local for the journal of your own gateway.", serviceGroup, ServiceData)
	}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound: // older gateways without /journal had no cluster
		return ErrSingleNode
	default:
		return fmt.Errorf("%w: it does not offer journals (%s)", ErrVersion, resp.Status)
	}
	for in := json.NewDecoder(resp.Body); ; {
		var r reply
		if err := in.Decode(&r); err != nil {
			return readError(ctx, q, fmt.Errorf("connection to the gateway lost: %w", err))
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

// readError returns the error of a reading that ended with err. A caller that follows
// the journal ends it by canceling ctx; then the error is nil.
func readError(ctx context.Context, q ferrule.JournalQuery, err error) error {
	switch {
	case ctx.Err() == nil:
		return err
	case q.Follow:
		return nil
	}
	return ctx.Err()
}
