package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// journals implements control.Journals with a function.
type journals func(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error

func (j journals) Read(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error {
	return j(ctx, q, fn)
}

// TestJournal checks that the query reaches the gateway, that lines arrive unchanged and
// in order, and that the end differs from a lost connection.
func TestJournal(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	line := []byte("not even text: \xff\x00\n")
	client, _ := serve(t, &gateway{journals: journals(func(_ context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error {
		switch q.Node {
		case "broken":
			return ferrule.Errorf(ferrule.Offline, "no leader").WithHint("wait")
		case "huge":
			return fn(ferrule.JournalLines{Lines: make([]byte, 1<<20+1)})
		case "a b&c":
			if !q.Since.Equal(since) || q.Follow || !q.Forged {
				t.Errorf("got query %+v", q)
			}
		default:
			if !q.Since.IsZero() || q.Forged {
				t.Errorf("got query %+v", q)
			}
		}
		if q.Forged {
			if err := fn(ferrule.JournalLines{Node: "n", Forgery: ferrule.Replayed, Message: 7}); err != nil {
				return err
			}
		}
		for i := range uint64(3) {
			if err := fn(ferrule.JournalLines{Node: "n", Chain: "c", First: i, Last: i + 1, Lines: line}); err != nil {
				return err
			}
		}
		return fn(ferrule.JournalLines{Lines: bytes.Repeat([]byte("x"), 1<<20)})
	})})
	for _, q := range []ferrule.JournalQuery{{Node: "a b&c", Since: since, Forged: true}, {}} {
		var got []string
		err := client.Journal(t.Context(), q, func(l ferrule.JournalLines) error {
			if l.Forgery != "" {
				if !q.Forged || l.Forgery != ferrule.Replayed || l.Message != 7 {
					t.Errorf("got %+v", l)
				}
				return nil
			}
			got = append(got, fmt.Sprintf("%s %s %d-%d %d", l.Node, l.Chain, l.First, l.Last, len(l.Lines)))
			if len(l.Lines) < 100 && !bytes.Equal(l.Lines, line) {
				t.Errorf("got %q", l.Lines)
			}
			return nil
		})
		if err != nil || strings.Join(got, ", ") != "n c 0-1 18, n c 1-2 18, n c 2-3 18,   0-0 1048576" {
			t.Errorf("got %q, %v", got, err)
		}
	}
	nothing := func(ferrule.JournalLines) error { return nil }
	if e := ferrule.AsError(client.Journal(t.Context(), ferrule.JournalQuery{Node: "broken"}, nothing)); e.Code != ferrule.Offline || e.Hint != "wait" {
		t.Errorf("got %+v", e)
	}
	if err := client.Journal(t.Context(), ferrule.JournalQuery{Node: "huge"}, nothing); err == nil || !strings.Contains(err.Error(), "have 1048577 bytes, limit is 1048576") {
		t.Errorf("got %v", err)
	}
	enough := errors.New("enough")
	if err := client.Journal(t.Context(), ferrule.JournalQuery{}, func(ferrule.JournalLines) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
}

// TestJournalSingleNode checks the error of a gateway outside of a cluster, and of older
// gateways without journals.
func TestJournalSingleNode(t *testing.T) {
	client, _ := serve(t, &gateway{})
	if err := client.Journal(t.Context(), ferrule.JournalQuery{}, nil); !errors.Is(err, control.ErrSingleNode) {
		t.Errorf("got %v", err)
	}
	for status, want := range map[int]error{http.StatusNotFound: control.ErrSingleNode, http.StatusBadRequest: control.ErrVersion} {
		path, err := control.SocketPath(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		if err := control.NewClient(path).Journal(t.Context(), ferrule.JournalQuery{}, nil); !errors.Is(err, want) {
			t.Errorf("got %v for %d", err, status)
		}
		ln.Close()
		if err := control.NewClient(path).Journal(t.Context(), ferrule.JournalQuery{}, nil); !errors.Is(err, control.ErrNoGateway) {
			t.Errorf("got %v", err)
		}
	}
}

// endless returns journals that never end. It counts reads in read.
func endless(read *atomic.Int64, over chan<- error) journals {
	return func(ctx context.Context, _ ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error {
		for {
			err := fn(ferrule.JournalLines{Lines: bytes.Repeat([]byte("x"), 100_000)})
			if err != nil {
				over <- err
				return err
			}
			read.Add(1)
		}
	}
}

// TestJournalCancelled checks that reading ends when the caller cancels, without an error
// if it follows.
func TestJournalCancelled(t *testing.T) {
	for _, follow := range []bool{true, false} {
		var read atomic.Int64
		over := make(chan error, 1)
		client, _ := serve(t, &gateway{journals: endless(&read, over)})
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		err := client.Journal(ctx, ferrule.JournalQuery{Follow: follow}, func(ferrule.JournalLines) error {
			if n++; n == 5 {
				cancel()
			}
			return nil
		})
		if follow && err != nil || !follow && !errors.Is(err, context.Canceled) {
			t.Errorf("follow %t: got %v", follow, err)
		}
		select {
		case <-over:
		case <-time.After(wait.Ample):
			t.Error("reading goes on")
		}
	}
}

// TestJournalSlowReader checks that the gateway reads no more than the caller takes, and
// that it exits although a caller has stopped reading.
func TestJournalSlowReader(t *testing.T) {
	var read atomic.Int64
	over := make(chan error, 1)
	client, end := serve(t, &gateway{journals: endless(&read, over)})
	hold, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- client.Journal(t.Context(), ferrule.JournalQuery{Follow: true}, func(ferrule.JournalLines) error {
			<-hold
			return nil
		})
	}()
	for last := int64(-1); last != read.Load() || last == 0; {
		last = read.Load()
		time.Sleep(200 * time.Millisecond)
	}
	if n := read.Load(); n > 100 {
		t.Errorf("%d chunks were read while the caller took one", n)
	}
	start := time.Now()
	end()
	select {
	case <-over:
	case <-time.After(wait.Ample):
		t.Error("the gateway waits for the reader")
	}
	figure.AtMost(t, "exit with a reader of the journal that does not read", time.Since(start), 2*time.Second)
	close(hold)
	if err := <-done; err == nil || !strings.Contains(err.Error(), "connection to the gateway lost") {
		t.Errorf("got %v", err)
	}
}
