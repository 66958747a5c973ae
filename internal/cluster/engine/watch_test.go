package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// lossy is a bucket whose server drops the first requests.
type lossy struct {
	jetstream.KeyValue
	drops int
	err   error
	watch context.Context // of the last request
}

func (l *lossy) Watch(ctx context.Context, _ string, _ ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	l.watch = ctx
	if l.drops--; l.drops >= 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return stopped{}, l.err
}

type stopped struct{ jetstream.KeyWatcher }

func (stopped) Stop() error { return nil }

// TestWatch: a request to watch that nobody answers is repeated, and the watch does not
// end with the time of the request.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lossy{drops: 3}
		began := time.Now()
		w, err := Watch(t.Context(), l, ">")
		if took := time.Since(began); err != nil || took != 3*RequestTime {
			t.Fatalf("after %v: %v", took, err)
		}
		time.Sleep(time.Hour)
		if l.watch.Err() != nil {
			t.Error("the watch has ended")
		}
		if w.Stop(); l.watch.Err() == nil {
			t.Error("the watch goes on after Stop")
		}
		refused := errors.New("refused")
		if _, err := Watch(t.Context(), &lossy{err: refused}, ">"); err != refused {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := Watch(ctx, &lossy{drops: 1000}, ">"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
