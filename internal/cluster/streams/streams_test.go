package streams

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestSpoolCountsLost checks the count of lost events, whether or not it was reported.
func TestSpoolCountsLost(t *testing.T) {
	s := newSpool("one")
	s.add(ferrule.Event{Type: ferrule.Appeared})
	s.lose()
	s.lose()
	if waiting, lost := s.count(); waiting != 1 || lost != 2 {
		t.Errorf("%d waiting, %d lost", waiting, lost)
	}
	if n := s.report(); n != 2 {
		t.Errorf("%d reported, want 2", n)
	}
	s.lose()
	if _, lost := s.count(); lost != 3 {
		t.Errorf("%d lost, want 3", lost)
	}
}

// TestTalkative checks that events of talkative devices are lost and counted, and no
// others.
func TestTalkative(t *testing.T) {
	s := newSpool("x")
	for n := range maxSpool {
		s.add(ferrule.Event{Type: ferrule.Notified, Device: "toy"})
		if n%16 == 0 {
			s.add(ferrule.Event{Type: ferrule.Gone, Device: "robot"})
		}
	}
	if s.notified != maxNotified || len(s.events) != maxNotified+maxSpool/16 || s.report() != maxSpool-maxNotified || s.report() != 0 {
		t.Errorf("%d of %d events are of type notified", s.notified, len(s.events))
	}
	for after := uint64(0); len(s.events) > 1; {
		e, err := s.next(t.Context(), after)
		if err != nil || e.Seq <= after {
			t.Fatalf("got %+v, %v", e, err)
		}
		after = e.Seq
	}
	if s.notified != 0 {
		t.Errorf("%d events of type said are counted, want 0", s.notified)
	}
}

// TestEventsOnce checks that an event that a node sends again is passed on once, and that
// the events of its next run are passed on, although they count from one again.
func TestEventsOnce(t *testing.T) {
	var l eventListeners
	var got []string
	l.add(&eventListener{fn: func(e ferrule.Event) { got = append(got, e.Method) }})
	for _, m := range []mark{{"x", 1}, {"x", 2}, {"x", 2}, {"x", 1}, {"x", 5}, {"y", 1}, {"y", 1}} {
		l.passOnce(ferrule.Event{Node: "b", Method: fmt.Sprint(m.origin, m.last)}, m)
	}
	if got := strings.Join(got, " "); got != "x1 x2 x5 y1" {
		t.Errorf("got %s", got)
	}
	for i := range 2 * maxMarks {
		l.passOnce(ferrule.Event{Node: fmt.Sprint(i)}, mark{"x", 1})
	}
	if len(l.passed) > maxMarks {
		t.Errorf("%d nodes are remembered, limit is %d", len(l.passed), maxMarks)
	}
}

// TestSamplesOnce checks that a reading that a node sends again is passed on once.
func TestSamplesOnce(t *testing.T) {
	var l sampleListeners
	n := 0
	l.add("robot", &sampleListener{"", func(ferrule.Reading) { n++ }})
	for _, m := range []mark{{"x", 1}, {"x", 2}, {"x", 2}, {"x", 1}, {"y", 1}, {}, {}} {
		l.passOnce(ferrule.Reading{Device: "robot", Node: "b"}, m)
	}
	if n != 5 {
		t.Errorf("%d readings were passed on, want 5", n)
	}
}

// TestBacklog checks the limit in bytes, and forgetting in any order.
func TestBacklog(t *testing.T) {
	l := &backlog{name: "x"}
	for l.add("s", make([]byte, 1<<20)) {
	}
	if l.length() != maxBacklogBytes>>20 {
		t.Errorf("%d MiB are waiting", l.length())
	}
	for _, n := range []uint64{3, 1, 2, 2, 99} {
		l.forget(n)
	}
	if b, ok := l.next(0); !ok || b.last != 4 || l.bytes != maxBacklogBytes-3<<20 {
		t.Errorf("the first is %d, %d bytes are waiting", b.last, l.bytes)
	}
	l.forget(6)
	if b, ok := l.next(5); !ok || b.last != 7 {
		t.Errorf("after 5 comes %d, want 7", b.last)
	}
	if !l.add("s", nil) {
		t.Error("no reading is accepted")
	}
	l.end()
	if l.add("s", nil) {
		t.Error("a reading is accepted after the end")
	}
}

// FuzzEvent checks that an accepted event can be encoded and parsed again.
func FuzzEvent(f *testing.F) {
	n := engine.Names{Tenant: "acme", Node: "a"}
	f.Add("b", "toy", "notified", []byte(`{"time":"2026-11-15T12:00:00Z","type":"notified","device":"toy","node":"b","method":"m","params":{"a":1}}`), "1")
	f.Add("b", "toy", "gone", []byte(`{"type":"gone","device":"toy","node":"b","reason":"\u202e","tools":["a"]}`), "2")
	f.Fuzz(func(t *testing.T, node, device, what string, data []byte, last string) {
		msg := nats.NewMsg(engine.Names{Tenant: "acme", Node: node}.Event(device, what))
		msg.Data = data
		msg.Header.Set(lastHeader, last)
		e, _, err := parseEvent(n, msg)
		if err != nil {
			return
		}
		if e.Node != node || e.Device != device || string(e.Type) != what || len(e.Params) > ferrule.MaxParams || e.Method != ferrule.Clean(e.Method, ferrule.MaxMethod) {
			t.Errorf("got %+v", e)
		}
		if msg.Data, err = encodeEvent(e); err != nil {
			t.Fatal(err)
		}
		if len(msg.Data) > maxEvent {
			return
		}
		again, _, err := parseEvent(n, msg)
		if err != nil || string(again.Params) != string(e.Params) || again.Method != e.Method {
			t.Errorf("%+v was encoded as %s: %v", e, msg.Data, err)
		}
	})
}

// FuzzReading checks that an accepted reading is valid, and can be encoded and parsed
// again.
func FuzzReading(f *testing.F) {
	n := engine.Names{Tenant: "acme", Node: "a"}
	f.Add("ferrule.acme.sample.b.toy.light", []byte(`{"device":"toy","node":"b","poll":"light","time":"2026-11-15T12:00:00Z","batches":[{"signal":"light","times":[1700000000000000,500000],"values":[1,2],"within":[250000,-3]}]}`), "k-b-7")
	f.Add("ferrule.acme.sample.b.toy.light.site", []byte(`{"device":"toy","node":"b","poll":"light","time":"2026-11-15T12:00:00Z","batches":[{"signal":"light","gaps":[{"from":"2026-11-15T12:00:00Z","to":"2026-11-15T12:00:00Z","reason":"lost"}]}]}`), "")
	f.Add("ferrule.acme.sample.b.toy.heat", []byte(`{"device":"toy","node":"c","poll":"light"}`), "-")
	f.Fuzz(func(t *testing.T, subject string, data []byte, id string) {
		msg := nats.NewMsg(subject)
		msg.Header.Set(jetstream.MsgIDHeader, id)
		at := position{1, readingID(msg.Header)}
		if again, err := parsePosition(at.String()); err != nil || again != at {
			t.Errorf("%v is formatted as %q: %v", at.id, at, err)
		}
		r, err := parseReading(n, subject, data)
		if err != nil {
			return
		}
		if r.Check() != nil || !strings.HasPrefix(subject, engine.Names{Tenant: "acme", Node: r.Node}.Sample(r.Device, r.Poll, false)) {
			t.Errorf("%q was accepted as %+v", subject, r)
		}
		again, err := encodeReading(&r)
		if err != nil {
			return // a time that JSON cannot represent
		}
		if same, err := parseReading(n, subject, again); err != nil || same.Device != r.Device || len(same.Batches) != len(r.Batches) {
			t.Errorf("%+v was encoded as %s: %v", r, again, err)
		}
	})
}
