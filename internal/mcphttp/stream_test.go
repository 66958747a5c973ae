package mcphttp

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// brittle is a response whose client may be gone. It counts writes.
type brittle struct {
	http.ResponseWriter
	gone   bool
	writes atomic.Int32
}

func (b *brittle) Write(p []byte) (int, error) {
	b.writes.Add(1)
	return b.ResponseWriter.Write(p)
}

func (b *brittle) FlushError() error {
	if b.gone {
		return errors.New("the client is gone")
	}
	return nil
}

// TestStreamWithoutSDK checks that a stream gets comments while there is nothing to send, and that nothing
// is written when it has ended or its client is gone: the response may belong to another request
// by then.
func TestStreamWithoutSDK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &brittle{ResponseWriter: httptest.NewRecorder()}
		s := NewEvents(w)
		time.Sleep(time.Minute)
		if w.writes.Load() != 0 {
			t.Errorf("%d writes before the first message", w.writes.Load())
		}
		if err := s.Send([]byte(`{}`)); err != nil || w.writes.Load() != 1 {
			t.Errorf("%v, %d writes", err, w.writes.Load())
		}
		time.Sleep(2*keepAliveEvery + time.Second)
		if w.writes.Load() != 3 {
			t.Errorf("%d writes, want a message and two comments", w.writes.Load())
		}
		s.End()
		if err := s.Send([]byte(`{}`)); err == nil {
			t.Error("a message was sent after the end")
		}
		time.Sleep(time.Minute)
		if w.writes.Load() != 3 {
			t.Errorf("%d writes after the end", w.writes.Load()-3)
		}

		w = &brittle{ResponseWriter: httptest.NewRecorder(), gone: true}
		s = NewEvents(w)
		if s.Send([]byte(`{}`)) == nil {
			t.Error("a message was sent to a client that is gone")
		}
		time.Sleep(time.Minute)
		if w.writes.Load() != 1 {
			t.Errorf("%d writes to a client that is gone", w.writes.Load())
		}
	})
}
