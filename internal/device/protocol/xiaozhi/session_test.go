package xiaozhi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// scripted is a link to a device that answers at once, or not at all.
type scripted struct {
	name   string
	answer func(m transport.Message) string
	in     chan string

	mu     sync.Mutex
	closed bool
	stuck  chan struct{} // if not nil, Send waits for it
}

func newScripted(name string, answer func(m transport.Message) string) *scripted {
	return &scripted{name: name, answer: answer, in: make(chan string, 16)}
}

func (s *scripted) Recv(ctx context.Context) (transport.Message, error) {
	select {
	case text, ok := <-s.in:
		if !ok {
			return transport.Message{}, transport.ErrClosed
		}
		return transport.Message{Channel: "text", Data: []byte(text)}, nil
	case <-ctx.Done():
		return transport.Message{}, ctx.Err()
	}
}

func (s *scripted) Send(ctx context.Context, m transport.Message) error {
	s.mu.Lock()
	closed, stuck := s.closed, s.stuck
	s.mu.Unlock()
	switch {
	case closed:
		return fmt.Errorf("%w: %w", transport.ErrUnsent, transport.ErrClosed)
	case stuck != nil:
		<-stuck
		return errors.New("stuck")
	}
	if text := s.answer(m); text != "" {
		s.in <- text
	}
	return nil
}

func (s *scripted) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.in)
	}
	return nil
}

func (s *scripted) Info() transport.Info { return transport.Info{Transport: s.name, Address: "test"} }

// usualAnswer answers a greeting, and calls with true.
func usualAnswer(m transport.Message) string {
	var q struct {
		Payload struct {
			ID     *int
			Method string
		}
	}
	if json.Unmarshal(m.Data, &q) != nil || q.Payload.ID == nil {
		return ""
	}
	result := `{"content":[{"type":"text","text":"true"}],"isError":false}`
	switch q.Payload.Method {
	case "initialize":
		result = `{"serverInfo":{"name":"toy","version":"1"}}`
	case "tools/list":
		result = `{"tools":[]}`
	}
	return fmt.Sprintf(`{"type":"mcp","payload":{"jsonrpc":"2.0","id":%d,"result":%s}}`, *q.Payload.ID, result)
}

// TestManyPages: reading an endless list stops at the page limit.
func TestManyPages(t *testing.T) {
	pages := 0
	link := newScripted("mqtt", func(m transport.Message) string {
		if !strings.Contains(string(m.Data), "tools/list") {
			return usualAnswer(m)
		}
		pages++
		return fmt.Sprintf(`{"type":"mcp","payload":{"jsonrpc":"2.0","id":%d,"result":{"tools":[{"name":"t%d"}],"nextCursor":"t%d"}}}`, pages+1, pages, pages+1)
	})
	d := New(Parts{})
	d.firstID = func() int { return 1 }
	_, m, err := d.Greet(t.Context(), link)
	if err != nil || pages != maxPages || len(m.Tools) != maxPages || len(m.Notes) != 1 || !strings.Contains(m.Notes[0], "more than 64 pages") {
		t.Errorf("%d pages: %+v, %v", pages, m, err)
	}
}

// TestLargePages: reading a list stops at the size limit.
func TestLargePages(t *testing.T) {
	pages := 0
	text := strings.Repeat("x", 200<<10)
	link := newScripted("mqtt", func(m transport.Message) string {
		if !strings.Contains(string(m.Data), "tools/list") {
			return usualAnswer(m)
		}
		pages++
		return fmt.Sprintf(`{"type":"mcp","payload":{"jsonrpc":"2.0","id":%d,"result":{"tools":[{"name":"t%d","description":"%s"}],"nextCursor":"t%d"}}}`, pages+1, pages, text, pages+1)
	})
	d := New(Parts{})
	d.firstID = func() int { return 1 }
	_, m, err := d.Greet(t.Context(), link)
	if err != nil || pages > 6 || len(m.Notes) != 1 || !strings.Contains(m.Notes[0], "does not end") {
		t.Errorf("%d pages: %v, %v", pages, m.Notes, err)
	}
}

// TestFirstIDs: ids start at random, far below the limit of a C int.
func TestFirstIDs(t *testing.T) {
	seen := make(map[int]bool)
	for range 1000 {
		id := New(Parts{}).firstID()
		if id < 1 || id > 1<<30 {
			t.Fatalf("a session starts with id %d", id)
		}
		seen[id] = true
	}
	if len(seen) < 990 {
		t.Errorf("1000 sessions started with %d different ids", len(seen))
	}
}

// TestSessionIDs: a device does not escape its session_id in JSON.
func TestSessionIDs(t *testing.T) {
	id := New(Parts{}).sessionID()
	if len(id) < 16 || strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		t.Errorf("session_id %q", id)
	}
}

// TestBeatsAreSpread: the keep-alives of devices that reconnect at the same time are
// spread out.
func TestBeatsAreSpread(t *testing.T) {
	shortest, longest := beat, time.Duration(0)
	for range 1000 {
		first := New(Parts{}).firstBeat()
		shortest, longest = min(shortest, first), max(longest, first)
	}
	if shortest < beat/2 || longest > beat || longest-shortest < beat/3 {
		t.Errorf("first beats are from %v to %v", shortest, longest)
	}
}

// TestStuckBeat: a device that does not read blocks the keep-alive. A call still keeps its
// deadline, and Run waits for the keep-alive.
func TestStuckBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := newScripted("ws", usualAnswer)
		link.in <- `{"type":"hello","features":{"mcp":true},"transport":"websocket"}`
		s, _, err := New(Parts{}).Greet(t.Context(), link)
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- s.Run(context.Background()) }()
		synctest.Wait()
		link.mu.Lock()
		link.stuck = make(chan struct{})
		link.mu.Unlock()
		time.Sleep(2 * beat)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err = s.Invoke(ctx, &ferrule.Call{Device: "toy", Tool: "a"})
		if e := ferrule.AsError(err); e.Code != ferrule.Busy || e.MayHaveRun() || time.Since(start) != time.Second {
			t.Errorf("%#v after %v", err, time.Since(start))
		}
		link.Close() // the link breaks
		synctest.Wait()
		select {
		case err := <-ran:
			t.Errorf("Run returned %v while the beat was being sent", err)
		default:
		}
		close(link.stuck)
		if err := <-ran; err == nil {
			t.Error("Run returned nil after the link broke")
		}
	})
}

// TestIdleSessions: an idle session has one goroutine and little memory.
func TestIdleSessions(t *testing.T) {
	const count = 1000
	d := New(Parts{})
	d.firstBeat = func() time.Duration { return time.Hour }
	quiet := make(chan string)
	before := heap()
	goroutines := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range count {
		s := newSession(d, &scripted{name: "ws", in: quiet, closed: true})
		wg.Go(func() { s.Run(ctx) })
	}
	for runtime.NumGoroutine() < goroutines+count {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	each := int(heap()-before) / count
	more := runtime.NumGoroutine() - goroutines
	t.Logf("%d bytes and %.2f goroutines per session, without stacks", each, float64(more)/count)
	figure.AtMost(t, "bytes of an idle session", each, 1536)
	if more > count {
		t.Errorf("%d goroutines for %d sessions", more, count)
	}
	cancel()
	close(quiet)
	wg.Wait()
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
