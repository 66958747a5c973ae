package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/ferrulehq/ferrule"
)

// Watcher tells of what happens to devices, and of what they say. Fn is called with
// what comes from now on, until stop is called; it does not block. An empty device
// means all.
type Watcher interface {
	Watch(device string, fn func(ferrule.Event)) (stop func(), err error)
}

// watchBacklog is how many events wait for a slow reader; more are dropped, and
// counted.
const watchBacklog = 1024

// watch writes events as they come.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	events := make(chan ferrule.Event, watchBacklog)
	var missed missed
	stop, err := s.parts.Watcher.Watch(r.URL.Query().Get("device"), func(e ferrule.Event) {
		select {
		case events <- e:
		default:
			missed.add()
		}
	})
	out := newLines(w)
	if err != nil {
		out.write(reply{Error: ferrule.AsError(err)})
		return
	}
	defer stop()
	// A reader that has stopped reading would keep the gateway from ending.
	defer context.AfterFunc(r.Context(), func() { http.NewResponseController(w).SetWriteDeadline(time.Now()) })()
	for {
		select {
		case e := <-events:
			if n := missed.take(); n > 0 {
				out.write(reply{Missed: n})
			}
			out.write(reply{Event: &e})
		case <-r.Context().Done():
			return
		}
	}
}

// Watch calls fn with everything that happens to a device, or to all if it is empty,
// until ctx ends; it then returns nil. Missed is told of how many events were lost,
// because fn is too slow.
func (c *Client) Watch(ctx context.Context, device string, fn func(ferrule.Event), missed func(n int)) error {
	resp, err := c.ask(ctx, http.MethodGet, "/watch?device="+url.QueryEscape(device), nil)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: it does not tell what happens (%s)", ErrVersion, resp.Status)
	}
	for in := json.NewDecoder(resp.Body); ; {
		var r reply
		if err := in.Decode(&r); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("the gateway went away: %w", err)
		}
		switch {
		case r.Error != nil:
			return r.Error
		case r.Missed > 0:
			missed(r.Missed)
		case r.Event != nil:
			fn(*r.Event)
		}
	}
}
