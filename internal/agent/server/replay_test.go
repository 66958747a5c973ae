package server

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

// What is told on streams.
const (
	progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`
	question = `{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}`
	answer   = `{"jsonrpc":"2.0","id":7,"result":{"text":"method"}}`
)

// told has something told on a stream.
func told(t *testing.T, k *replays, session, stream string, messages ...string) {
	t.Helper()
	for _, m := range messages {
		if err := k.Append(t.Context(), session, stream, []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
}

func opened(t *testing.T, k *replays, session string, streams ...string) {
	t.Helper()
	for _, stream := range append([]string{""}, streams...) {
		if err := k.Open(t.Context(), session, stream); err != nil {
			t.Fatal(err)
		}
	}
}

// heard is what comes after an event, and whether something is missing.
func heard(k *replays, session, stream string, last int) (all string, missing bool) {
	var b strings.Builder
	for event, err := range k.After(context.Background(), session, stream, last) {
		if err != nil {
			return "", errors.Is(err, mcp.ErrEventsPurged)
		}
		b.Write(event)
		b.WriteByte('\n')
	}
	return b.String(), false
}

func TestReplay(t *testing.T) {
	k := newReplays()
	opened(t, k, "s", "call")
	told(t, k, "s", "call", "", progress, question, answer)
	for last, want := range []string{progress + "\n" + question + "\n" + answer + "\n", question + "\n" + answer + "\n", answer + "\n", ""} {
		if got, missing := heard(k, "s", "call", last); got != want || missing {
			t.Errorf("after %d: %q, %t", last, got, missing)
		}
	}
	for _, last := range []int{-1, 4, math.MaxInt} {
		if got, missing := heard(k, "s", "call", last); got != "" || !missing {
			t.Errorf("after %d: %q", last, got)
		}
	}
	if _, missing := heard(k, "s", "other", 0); !missing {
		t.Error("a stream that never was is there")
	}
	if _, missing := heard(k, "t", "call", 0); !missing {
		t.Error("a stream of another session is there")
	}
}

// TestReplayNews: who was not there for longer than news are kept hears what is left, and
// what comes then has the numbers that the SDK gives.
func TestReplayNews(t *testing.T) {
	k := newReplays()
	opened(t, k, "s")
	told(t, k, "s", "", "a", "b", "c")
	k.forget(time.Now().Add(time.Minute))
	told(t, k, "s", "", "d", "e")
	if got, missing := heard(k, "s", "", 3); got != "e\n" || missing {
		t.Errorf("got %q, %t", got, missing)
	}
	if got, missing := heard(k, "s", "", 0); got != "d\ne\n" || missing { // the SDK calls them 1 and 2 from now on
		t.Errorf("got %q, %t", got, missing)
	}
	told(t, k, "s", "", "f")
	if got, missing := heard(k, "s", "", 2); got != "f\n" || missing {
		t.Errorf("got %q, %t", got, missing)
	}
}

// TestReplayForgets: what was answered goes after a while, and what is under way can
// still be come back to.
func TestReplayForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newReplays()
		opened(t, k, "s", "done", "open", "silent")
		told(t, k, "s", "silent", "")
		told(t, k, "s", "done", "", answer)
		told(t, k, "s", "open", "", progress)
		time.Sleep(keptTime)
		told(t, k, "s", "", "changed")
		k.forget(time.Now().Add(-time.Second))
		for stream, last := range map[string]int{"done": 0, "open": 0} {
			if _, missing := heard(k, "s", stream, last); !missing {
				t.Errorf("something of %q is left", stream)
			}
		}
		told(t, k, "s", "open", answer)
		told(t, k, "s", "silent", answer)
		for stream, last := range map[string]int{"open": 1, "silent": 0} {
			if got, missing := heard(k, "s", stream, last); got != answer+"\n" || missing {
				t.Errorf("%q: %q, %t", stream, got, missing)
			}
		}
		if got, _ := heard(k, "s", "", -1); got != "changed\n" {
			t.Errorf("of changes: %q", got)
		}
		time.Sleep(keptTime)
		k.forget(time.Now())
		if n := len(k.sessions["s"].streams); n != 1 || k.size != 0 || k.listed() != 0 {
			t.Errorf("%d streams, %d bytes are left", n, k.size)
		}
	})
}

// TestReplayEnds: nothing is left of a session that has ended, and nothing comes after.
func TestReplayEnds(t *testing.T) {
	k := newReplays()
	opened(t, k, "s", "call")
	told(t, k, "s", "call", "", progress)
	told(t, k, "s", "", "changed")
	k.SessionClosed(t.Context(), "s")
	if err := k.Append(t.Context(), "s", "call", []byte(answer)); err == nil {
		t.Error("an answer is kept")
	}
	k.Open(t.Context(), "s", "late")
	if len(k.sessions) != 0 || k.size != 0 || k.listed() != 0 {
		t.Errorf("%d sessions, %d bytes are left", len(k.sessions), k.size)
	}
}

// TestReplayBounds: whatever is told, in whatever order, all bounds hold and the sums
// are right, and what is heard is whole or known not to be.
func TestReplayBounds(t *testing.T) {
	k := newReplays()
	random := rand.New(rand.NewPCG(1, 2))
	large := strings.Repeat("x", 300<<10)
	told := make(map[string][]string) // what was told since a session began, by session and stream
	for i := range 3000 {
		session, stream := fmt.Sprint("s", random.IntN(12)), fmt.Sprint("c", random.IntN(100)&random.IntN(100))
		key := session + " " + stream
		switch random.IntN(200) {
		case 0:
			k.SessionClosed(t.Context(), session)
			maps.DeleteFunc(told, func(other string, _ []string) bool { return strings.HasPrefix(other, session+" ") })
		case 1:
			k.forget(time.Now().Add(-time.Duration(random.IntN(100)) * time.Millisecond))
		default:
			k.Open(t.Context(), session, "")
			if told[key] == nil {
				k.Open(t.Context(), session, stream)
			}
			shape := `{"jsonrpc":"2.0","method":"m","params":"%d %s"}`
			if random.IntN(4) == 0 {
				shape = `{"jsonrpc":"2.0","id":"x","result":"%d %s"}`
			}
			message := fmt.Sprintf(shape, i, large[:random.IntN(len(large))>>random.IntN(10)])
			told[key] = append(told[key], message)
			k.Append(t.Context(), session, stream, []byte(message))
		}
		checkReplays(t, k)
		all := told[key]
		last := random.IntN(len(all)+1) - 1
		if got, missing := heard(k, session, stream, last); !missing && got != lines(all[last+1:]) {
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

// checkReplays checks bounds and sums.
func checkReplays(t *testing.T, k *replays) {
	t.Helper()
	all, listed := 0, 0
	for id, s := range k.sessions {
		size := 0
		for _, one := range s.streams {
			own := 0
			for _, event := range one.events {
				own += len(event) + keptCost
			}
			size += own
			if own != one.size || (len(one.events) > 0) != (one.place != nil) {
				t.Fatalf("a stream of %s: %d bytes, counted %d", id, own, one.size)
			}
			if one.place != nil {
				listed++
			}
		}
		if size != s.size || size > maxKeptSession || len(s.streams) > maxKeptStreams {
			t.Fatalf("%s: %d bytes, counted %d, in %d streams", id, size, s.size, len(s.streams))
		}
		all += size
	}
	if all != k.size || all > maxKept || listed != k.listed() {
		t.Fatalf("%d bytes, counted %d; %d streams, listed %d", all, k.size, listed, k.listed())
	}
	for _, order := range []*list.List{k.news, k.calls} {
		var times []time.Time
		for e := order.Front(); e != nil; e = e.Next() {
			times = append(times, e.Value.(*keptStream).told)
		}
		if !slices.IsSortedFunc(times, time.Time.Compare) {
			t.Fatal("they are not in order")
		}
	}
}

// listed is how many streams are in an order.
func (k *replays) listed() int { return k.news.Len() + k.calls.Len() }

// TestReplayKeepsWhatIsUnderWay: a session that is called without end keeps what is under
// way, and so do others.
func TestReplayKeepsWhatIsUnderWay(t *testing.T) {
	k := newReplays()
	opened(t, k, "s", "long")
	opened(t, k, "other", "long")
	told(t, k, "s", "long", "", progress)
	told(t, k, "other", "long", "", progress)
	for i := range 400 {
		call, size := fmt.Sprint("call", i), 0
		if i < 200 {
			size = 64 << 10
		}
		opened(t, k, "s", call)
		told(t, k, "s", call, "", strings.Replace(answer, "method", strings.Repeat("x", size), 1))
	}
	for _, session := range []string{"s", "other"} {
		told(t, k, session, "long", answer)
		if got, missing := heard(k, session, "long", 0); got != progress+"\n"+answer+"\n" || missing {
			t.Errorf("%s: %q, %t", session, got, missing)
		}
	}
	checkReplays(t, k)
}

// TestReplayKeepsWhatWasBegun: requests that are refused after their stream was opened, such
// as those of an agent that asks again and again with the ID of a call that is under way, do
// not take the place of that call.
func TestReplayKeepsWhatWasBegun(t *testing.T) {
	k := newReplays()
	opened(t, k, "s", "call")
	told(t, k, "s", "call", "")
	for i := range 2 * maxKeptStreams {
		opened(t, k, "s", fmt.Sprint("refused", i))
	}
	told(t, k, "s", "call", answer)
	if got, missing := heard(k, "s", "call", 0); got != answer+"\n" || missing {
		t.Errorf("%q, %t", got, missing)
	}
	checkReplays(t, k)
}

// TestReplayNewsGoFirst: however much agents are told of changes, of one session or of all,
// no answer is lost for that.
func TestReplayNewsGoFirst(t *testing.T) {
	k := newReplays()
	opened(t, k, "s", "call")
	told(t, k, "s", "call", "", answer)
	for i := range 20 {
		session := fmt.Sprint("s", i)
		if i < 5 {
			session = "s"
		}
		opened(t, k, session)
		told(t, k, session, "", strings.Repeat("x", maxKeptSession/2), strings.Repeat("y", maxKeptSession/3))
	}
	if got, missing := heard(k, "s", "call", 0); got != answer+"\n" || missing {
		t.Errorf("%q, %t", got, missing)
	}
	checkReplays(t, k)
}

// TestIsAnswer: what is told apart by its first bytes is what it is.
func TestIsAnswer(t *testing.T) {
	for message, want := range map[string]bool{
		progress: false, question: false, answer: true,
		`{"jsonrpc":"2.0","id":"7,\"method\":","result":{}}`:        true,
		`{"jsonrpc":"2.0","id":12,"error":{"code":1,"message":""}}`: true,
	} {
		if isAnswer([]byte(message)) != want {
			t.Errorf("%s: want %t", message, want)
		}
	}
}
