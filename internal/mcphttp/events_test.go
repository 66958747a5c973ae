package mcphttp

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// testLimits are those of the gateway.
var testLimits = EventLimits{Total: 8 << 20, Session: 2 << 20, Age: 2 * time.Minute}

func newTestStore() *EventStore { return NewEventStore(testLimits) }

// Messages on streams.
const (
	progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`
	question = `{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}`
	answer   = `{"jsonrpc":"2.0","id":7,"result":{"text":"method"}}`
)

// appended adds events to a stream.
func appended(t *testing.T, e *EventStore, session, stream string, messages ...string) {
	t.Helper()
	for _, m := range messages {
		if err := e.Append(t.Context(), session, stream, []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
}

func opened(t *testing.T, e *EventStore, session string, streams ...string) {
	t.Helper()
	for _, stream := range append([]string{""}, streams...) {
		if err := e.Open(t.Context(), session, stream); err != nil {
			t.Fatal(err)
		}
	}
}

// after returns the events after a number, and whether events are missing.
func after(e *EventStore, session, stream string, last int) (all string, missing bool) {
	var b strings.Builder
	for event, err := range e.After(context.Background(), session, stream, last) {
		if err != nil {
			return "", errors.Is(err, mcp.ErrEventsPurged)
		}
		b.Write(event)
		b.WriteByte('\n')
	}
	return b.String(), false
}

func TestEvents(t *testing.T) {
	e := newTestStore()
	opened(t, e, "s", "call")
	appended(t, e, "s", "call", "", progress, question, answer)
	for last, want := range []string{progress + "\n" + question + "\n" + answer + "\n", question + "\n" + answer + "\n", answer + "\n", ""} {
		if got, missing := after(e, "s", "call", last); got != want || missing {
			t.Errorf("after %d: %q, %t", last, got, missing)
		}
	}
	for _, last := range []int{-1, 4, math.MaxInt} {
		if got, missing := after(e, "s", "call", last); got != "" || !missing {
			t.Errorf("after %d: %q", last, got)
		}
	}
	if _, missing := after(e, "s", "other", 0); !missing {
		t.Error("an unknown stream exists")
	}
	if _, missing := after(e, "t", "call", 0); !missing {
		t.Error("a stream of another session exists")
	}
}

// TestEventsNotifications: a client that was away for longer than notifications are
// kept gets what is left, and later events have the numbers that the SDK gives them.
func TestEventsNotifications(t *testing.T) {
	e := newTestStore()
	opened(t, e, "s")
	appended(t, e, "s", "", "a", "b", "c") // 1 to 3: the opening event is 0
	e.Expire(time.Now().Add(time.Minute))
	appended(t, e, "s", "", "d", "e")
	if got, missing := after(e, "s", "", 4); got != "e\n" || missing {
		t.Errorf("got %q, %t", got, missing)
	}
	if got, missing := after(e, "s", "", 0); got != "d\ne\n" || missing { // the SDK calls them 1 and 2 from now on
		t.Errorf("got %q, %t", got, missing)
	}
	appended(t, e, "s", "", "f")
	if got, missing := after(e, "s", "", 2); got != "f\n" || missing {
		t.Errorf("got %q, %t", got, missing)
	}
}

// TestEventsExpire: answered calls expire, and calls under way can still be resumed.
func TestEventsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newTestStore()
		opened(t, e, "s", "done", "open", "silent")
		appended(t, e, "s", "silent", "")
		appended(t, e, "s", "done", "", answer)
		appended(t, e, "s", "open", "", progress)
		time.Sleep(testLimits.Age)
		appended(t, e, "s", "", "changed")
		e.Expire(time.Now().Add(-time.Second))
		for stream, last := range map[string]int{"done": 0, "open": 0} {
			if _, missing := after(e, "s", stream, last); !missing {
				t.Errorf("events of %q are left", stream)
			}
		}
		appended(t, e, "s", "open", answer)
		appended(t, e, "s", "silent", answer)
		for stream, last := range map[string]int{"open": 1, "silent": 0} {
			if got, missing := after(e, "s", stream, last); got != answer+"\n" || missing {
				t.Errorf("%q: %q, %t", stream, got, missing)
			}
		}
		if got, _ := after(e, "s", "", 0); got != "changed\n" {
			t.Errorf("notifications: %q", got)
		}
		time.Sleep(testLimits.Age)
		e.Expire(time.Now())
		if n := len(e.sessions["s"].streams); n != 1 || e.size != 0 || e.listed() != 0 {
			t.Errorf("%d streams, %d bytes are left", n, e.size)
		}
	})
}

// TestEventsSessionClosed: nothing is left of a session that has ended, and nothing is added.
func TestEventsSessionClosed(t *testing.T) {
	e := newTestStore()
	opened(t, e, "s", "call")
	appended(t, e, "s", "call", "", progress)
	appended(t, e, "s", "", "changed")
	e.SessionClosed(t.Context(), "s")
	if err := e.Append(t.Context(), "s", "call", []byte(answer)); err == nil {
		t.Error("a response is kept")
	}
	e.Open(t.Context(), "s", "late")
	if len(e.sessions) != 0 || e.size != 0 || e.listed() != 0 {
		t.Errorf("%d sessions, %d bytes are left", len(e.sessions), e.size)
	}
}

// TestEventsLimits appends at random: all limits hold, the sums are right, and what a
// client gets is complete or known to be incomplete.
func TestEventsLimits(t *testing.T) {
	e := newTestStore()
	random := rand.New(rand.NewPCG(1, 2))
	large := strings.Repeat("x", 300<<10)
	sent := make(map[string][]string) // since a session began, by session and stream
	for i := range 3000 {
		session, stream := fmt.Sprint("s", random.IntN(12)), fmt.Sprint("c", random.IntN(100)&random.IntN(100))
		key := session + " " + stream
		switch random.IntN(200) {
		case 0:
			e.SessionClosed(t.Context(), session)
			maps.DeleteFunc(sent, func(other string, _ []string) bool { return strings.HasPrefix(other, session+" ") })
		case 1:
			e.Expire(time.Now().Add(-time.Duration(random.IntN(100)) * time.Millisecond))
		default:
			e.Open(t.Context(), session, "")
			if sent[key] == nil {
				e.Open(t.Context(), session, stream)
			}
			shape := `{"jsonrpc":"2.0","method":"m","params":"%d %s"}`
			if random.IntN(4) == 0 {
				shape = `{"jsonrpc":"2.0","id":"x","result":"%d %s"}`
			}
			message := fmt.Sprintf(shape, i, large[:random.IntN(len(large))>>random.IntN(10)])
			sent[key] = append(sent[key], message)
			e.Append(t.Context(), session, stream, []byte(message))
		}
		checkStore(t, e)
		all := sent[key]
		last := random.IntN(len(all)+1) - 1
		if got, missing := after(e, session, stream, last); !missing && got != lines(all[last+1:]) {
			t.Fatalf("after %d of %d: %d bytes, want %d", last, len(all), len(got), len(lines(all[last+1:])))
		}
	}
}

func lines(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return strings.Join(all, "\n") + "\n"
}

// checkStore checks limits and sums.
func checkStore(t *testing.T, e *EventStore) {
	t.Helper()
	all, listed := 0, 0
	for id, s := range e.sessions {
		size := 0
		for _, one := range s.streams {
			own := 0
			for _, event := range one.events {
				own += len(event) + eventCost
			}
			size += own
			if own != one.size || (len(one.events) > 0) != (one.place != nil) {
				t.Fatalf("a stream of %s: %d bytes, counted %d", id, own, one.size)
			}
			if one.place != nil {
				listed++
			}
		}
		if size != s.size || size > testLimits.Session || len(s.streams) > maxSessionStreams {
			t.Fatalf("%s: %d bytes, counted %d, in %d streams", id, size, s.size, len(s.streams))
		}
		all += size
	}
	if all != e.size || all > testLimits.Total || listed != e.listed() {
		t.Fatalf("%d bytes, counted %d; %d streams, listed %d", all, e.size, listed, e.listed())
	}
	for _, order := range []*list.List{e.notifications, e.calls} {
		var times []time.Time
		for e := order.Front(); e != nil; e = e.Next() {
			times = append(times, e.Value.(*storedStream).used)
		}
		if !slices.IsSortedFunc(times, time.Time.Compare) {
			t.Fatal("streams are not ordered by use")
		}
	}
}

// listed returns the number of streams with events.
func (e *EventStore) listed() int { return e.notifications.Len() + e.calls.Len() }

// TestEventsKeepCallsUnderWay: a session with many calls keeps those under way, and so
// do other sessions.
func TestEventsKeepCallsUnderWay(t *testing.T) {
	e := newTestStore()
	opened(t, e, "s", "long")
	opened(t, e, "other", "long")
	appended(t, e, "s", "long", "", progress)
	appended(t, e, "other", "long", "", progress)
	for i := range 400 {
		call, size := fmt.Sprint("call", i), 0
		if i < 200 {
			size = 64 << 10
		}
		opened(t, e, "s", call)
		appended(t, e, "s", call, "", strings.Replace(answer, "method", strings.Repeat("x", size), 1))
	}
	for _, session := range []string{"s", "other"} {
		appended(t, e, session, "long", answer)
		if got, missing := after(e, session, "long", 0); got != progress+"\n"+answer+"\n" || missing {
			t.Errorf("%s: %q, %t", session, got, missing)
		}
	}
	checkStore(t, e)
}

// TestEventsKeepOpenedCalls: requests that are refused after their stream was opened do
// not displace a call under way. A client may repeat the ID of that call.
func TestEventsKeepOpenedCalls(t *testing.T) {
	e := newTestStore()
	opened(t, e, "s", "call")
	appended(t, e, "s", "call", "")
	for i := range 2 * maxSessionStreams {
		opened(t, e, "s", fmt.Sprint("refused", i))
	}
	appended(t, e, "s", "call", answer)
	if got, missing := after(e, "s", "call", 0); got != answer+"\n" || missing {
		t.Errorf("%q, %t", got, missing)
	}
	checkStore(t, e)
}

// TestEventsDropNotificationsFirst: notifications never displace a response.
func TestEventsDropNotificationsFirst(t *testing.T) {
	e := newTestStore()
	opened(t, e, "s", "call")
	appended(t, e, "s", "call", "", answer)
	for i := range 20 {
		session := fmt.Sprint("s", i)
		if i < 5 {
			session = "s"
		}
		opened(t, e, session)
		appended(t, e, session, "", strings.Repeat("x", testLimits.Session/2), strings.Repeat("y", testLimits.Session/3))
	}
	if got, missing := after(e, "s", "call", 0); got != answer+"\n" || missing {
		t.Errorf("%q, %t", got, missing)
	}
	checkStore(t, e)
}

// TestEventsSmallLimits: with the limits of a device, the newest responses are kept.
func TestEventsSmallLimits(t *testing.T) {
	limits := EventLimits{Total: 256 << 10, Session: 256 << 10}
	for name, size := range map[string]int{"small": 1, "large": limits.Total / 20} {
		e := NewEventStore(limits)
		opened(t, e, "s")
		for i := range 4 * maxSessionStreams {
			stream := fmt.Sprint(i)
			opened(t, e, "s", stream)
			appended(t, e, "s", stream, strings.Replace(answer, "method", strings.Repeat("x", size), 1))
		}
		if n := e.calls.Len(); e.size > limits.Total || len(e.sessions["s"].streams) != n+1 || n < 15 {
			t.Errorf("%s: %d bytes of %d streams", name, e.size, n)
		}
		if got, missing := after(e, "s", fmt.Sprint(4*maxSessionStreams-1), -1); len(got) < size || missing {
			t.Errorf("%s: of the newest, %d bytes are left, %t", name, len(got), missing)
		}
		if _, missing := after(e, "s", "0", -1); !missing {
			t.Errorf("%s: the oldest is left", name)
		}
	}
}

func TestIsResponse(t *testing.T) {
	for message, want := range map[string]bool{
		progress: false, question: false, answer: true,
		`{"jsonrpc":"2.0","id":"7,\"method\":","result":{}}`:        true,
		`{"jsonrpc":"2.0","id":12,"error":{"code":1,"message":""}}`: true,
	} {
		if isResponse([]byte(message)) != want {
			t.Errorf("%s: want %t", message, want)
		}
	}
}
