package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
)

// talk is a conversation over a link of messages: with a voice toy, or with an MCP server on a
// WebSocket or a broker.
type talk struct {
	*service
	// next returns the next link: it dials, or waits until the device connects.
	next func(ctx context.Context) (transport.Link, error)
	// greet brings a new link to the point where requests are answered.
	greet     func(ctx context.Context) error
	enveloped bool
	box       *inbox
	nextID    int
	requests  map[int]*request
	broken    int

	opened      time.Time
	initialized bool
	hellos      int       // on this link
	session     string    // that was given with the hello; empty before
	since       time.Time // when it was given
}

func newTalk(r *run, prefix string) *talk {
	t := &talk{nextID: 101, requests: make(map[int]*request)}
	t.service = &service{run: r, channel: t, prefix: prefix}
	return t
}

// connect takes the next link and greets the device.
func (t *talk) connect(ctx context.Context) error {
	if t.box != nil {
		t.box.close()
	}
	link, err := t.next(ctx)
	if err != nil {
		t.box = nil
		return err
	}
	t.box, t.opened = newInbox(ctx, link), time.Now()
	t.initialized, t.hellos, t.session = false, 0, ""
	return t.greet(ctx)
}

func (t *talk) close() {
	if t.box != nil {
		t.box.close()
	}
}

// sendTimeout bounds the sending of one message.
const sendTimeout = 3 * time.Second

func (t *talk) send(ctx context.Context, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	return t.box.link.Send(ctx, transport.Message{Data: data})
}

// sendRequest sends a request and returns its ID.
func (t *talk) sendRequest(ctx context.Context, method, params string) (int, error) {
	id := t.nextID
	t.nextID++
	data := jsonrpc.AppendRequest(nil, id, method, []byte(params))
	t.requests[id] = &request{sent: string(data), at: time.Now()}
	if t.enveloped {
		data = wrap(data)
	}
	return id, t.send(ctx, data)
}

// notify sends a notification.
func (t *talk) notify(ctx context.Context, method string) error {
	data := jsonrpc.Message{Method: method}.Append(nil)
	if t.enveloped {
		data = wrap(data)
	}
	return t.send(ctx, data)
}

// ask implements channel.
func (t *talk) ask(ctx context.Context, method, params string, wait time.Duration) reply {
	if t.box == nil {
		return reply{outcome: closed}
	}
	id, err := t.sendRequest(ctx, method, params)
	if err != nil {
		t.requests[id].given = true
		return reply{outcome: closed, sent: t.requests[id].sent, tail: reasonText(err)}
	}
	return t.await(ctx, wait, id)
}

// await waits for the answer to one of several requests.
func (t *talk) await(ctx context.Context, wait time.Duration, ids ...int) reply {
	out := reply{outcome: silent}
	if len(ids) > 0 {
		out.sent = t.requests[ids[0]].sent
	}
	defer func() {
		for _, id := range ids {
			t.requests[id].given = true
		}
	}()
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		select {
		case in, ok := <-t.box.in:
			if !ok {
				out.outcome, out.tail = closed, reasonText(t.box.err)
				return out
			}
			wanted := t.receive(ctx, in)
			switch {
			case in.kind == kindNoise && in.answer.isInt && slices.Contains(ids, in.answer.id), in.kind == kindTooLong:
				out.outcome, out.answer = dropped, in.answer
				return out
			case wanted && slices.Contains(ids, in.answer.id):
				req := t.requests[in.answer.id]
				out.outcome, out.answer, out.sent, out.took = answered, in.answer, req.sent, in.at.Sub(req.at)
				return out
			}
		case <-timeout.C:
			return out
		case <-ctx.Done():
			return out
		}
	}
}

// idle receives messages for a time, or until the link ends.
func (t *talk) idle(ctx context.Context, d time.Duration) (ended bool) {
	return t.await(ctx, d).outcome == closed
}

// receive judges a message. It reports whether it is an answer that somebody waits for.
func (t *talk) receive(ctx context.Context, in incoming) bool {
	at := evidence{"", in.raw}
	switch in.kind {
	case kindTooLong:
		t.finding("long-message", evidence{}, "a message was too long and was dropped")
	case kindNoise:
		t.finding("invalid-json", at, "a message is not valid JSON, or not a message of the protocol")
	case kindRequest:
		t.answerRequest(ctx, in)
	case kindAnswer:
		return t.receiveAnswer(in, at)
	default:
		if t.enveloped {
			t.receiveVoice(ctx, in)
		} else if in.kind != kindNotification {
			t.finding("invalid-json", at, "a message is not a JSON-RPC message")
		}
	}
	return false
}

// answerRequest answers what a device asks.
func (t *talk) answerRequest(ctx context.Context, in incoming) {
	m := jsonrpc.Message{ID: in.rawID, Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found"}}
	if in.name == "ping" {
		m = jsonrpc.Message{ID: in.rawID, Result: []byte("{}")}
	}
	t.send(ctx, m.Append(nil)) // the next request shows if the link is broken
}

func (t *talk) receiveAnswer(in incoming, at evidence) bool {
	a := in.answer
	if t.enveloped && in.bare {
		t.finding("bare-answer", at, "an answer has no envelope")
	}
	req := t.requests[a.id]
	if !a.isInt || req == nil {
		t.finding("unknown-id", at, "an answer has the id %s, and no request had it", cutText(a.idText))
		return false
	}
	if t.enveloped && !in.bare && t.session != "" && req.at.After(t.since) && (in.session == nil || *in.session != t.session) {
		t.finding("stale-session", at, "the session_id of an answer is not %s, which the hello named", t.session)
	}
	req.answers++
	switch {
	case req.answers > 1:
		t.finding("answered-twice", evidence{req.sent, a.raw}, "request %d was answered %d times", a.id, req.answers)
	case req.given:
		t.finding("slow-call", evidence{req.sent, a.raw}, "the answer came %.1f s after the request", in.at.Sub(req.at).Seconds())
	default:
		return true
	}
	return false
}

// lost implements channel.
func (t *talk) lost(ctx context.Context, r reply) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r.outcome == closed:
		if t.box != nil && errors.Is(t.box.err, inbound.ErrReplaced) {
			t.finding("second-connection", evidence{r.sent, ""}, "the device opened another connection and left the last one open")
		} else {
			t.finding("closed-connection", r.evidence(), "the device closed the connection instead of answering: %s", r.tail)
		}
		return t.again(ctx)
	case r.outcome != silent:
		return nil
	}
	alive := t.ask(ctx, "ferrule/check-no-such-method", "{}", infoWait)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case alive.outcome == answered:
		t.finding("unanswered-call", evidence{r.sent, ""}, "a request was not answered within %v; the next one was", callWait)
		return nil
	case alive.outcome == closed && errors.Is(t.box.err, inbound.ErrReplaced):
		t.finding("unanswered-call", evidence{r.sent, ""}, "a request was not answered within %v", callWait)
		t.finding("second-connection", evidence{r.sent, ""}, "the device opened another connection and left the last one open")
	default:
		t.finding("stopped-answering", evidence{r.sent, ""}, "the device answered before; now nothing comes, and the connection is still open")
	}
	return t.again(ctx)
}

// ignored implements channel.
func (t *talk) ignored(ctx context.Context, r reply, name, text string) error {
	if r.outcome != silent {
		return t.lost(ctx, r)
	}
	alive := t.ask(ctx, "ferrule/check-no-such-method", "{}", infoWait)
	if alive.outcome != answered {
		return t.lost(ctx, alive)
	}
	t.finding(name, evidence{r.sent, ""}, "%s", text)
	return nil
}

// again connects after the connection ended.
func (t *talk) again(ctx context.Context) error {
	if t.broken++; t.broken > 2 {
		return errGiveUp
	}
	return t.connect(ctx)
}

// several sends two requests without waiting for the first answer.
func (t *talk) several(ctx context.Context, method, params string) (string, error) {
	var ids []int
	for range 2 {
		id, err := t.sendRequest(ctx, method, params)
		if err != nil {
			return "", t.lost(ctx, reply{outcome: closed, sent: t.requests[id].sent})
		}
		ids = append(ids, id)
	}
	began := time.Now()
	for n := range ids {
		left := slices.DeleteFunc(slices.Clone(ids), func(id int) bool { return t.requests[id].answers > 0 })
		for _, id := range left {
			t.requests[id].given = false
		}
		r := t.await(ctx, callWait, left...)
		if r.outcome == dropped || r.outcome == answered {
			continue
		}
		return "", t.ignored(ctx, r, "lost-request", fmt.Sprintf("of 2 requests without waiting, %d were answered", n))
	}
	return strconv.Itoa(len(ids)) + " requests in " + time.Since(began).Round(time.Millisecond).String(), nil
}
