package control_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestWatch checks that events arrive unchanged, and that the subscription ends with the
// caller.
func TestWatch(t *testing.T) {
	stopped := make(chan struct{})
	client, _ := serve(t, &gateway{watch: func(device string, fn func(ferrule.Event)) (func(), error) {
		if device == "x" {
			return nil, ferrule.UnknownDevice(device)
		}
		for i := range 3 {
			fn(ferrule.Event{Type: ferrule.Notified, Device: device, Method: "m", Params: fmt.Appendf(nil, `{"a":[%d,"<"]}`, i)})
		}
		return func() { close(stopped) }, nil
	}})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	var seen []string
	err := client.Watch(ctx, control.Subscription{Device: "robot 1", Event: func(e ferrule.Event) {
		if seen = append(seen, fmt.Sprintf("%s %s %s %s", e.Device, e.Type, e.Method, e.Params)); len(seen) == 3 {
			cancel()
		}
	}, Missed: func(int) { t.Error("events were dropped") }})
	if err != nil || len(seen) != 3 || strings.ReplaceAll(seen[2], `\u003c`, "<") != `robot 1 notified m {"a":[2,"<"]}` {
		t.Errorf("%q, %v", seen, err)
	}
	select {
	case <-stopped:
	case <-time.After(wait.Ample):
		t.Error("the subscription is still open")
	}
	if err := client.Watch(t.Context(), control.Subscription{Device: "x", Event: func(ferrule.Event) {}}); err == nil || ferrule.AsError(err).Code != ferrule.NotFound || ferrule.AsError(err).Hint == "" {
		t.Errorf("got %v", err)
	}
}

// eventSource is a gateway whose events are sent by the test.
type eventSource chan func(ferrule.Event)

func (s eventSource) watch(_ string, fn func(ferrule.Event)) (stop func(), err error) {
	s <- fn
	return func() {}, nil
}

// burst sends more events than the sockets and the backlog hold.
func (s eventSource) burst() (count int) {
	fn := <-s
	for count = range 50000 {
		fn(ferrule.Event{Type: ferrule.Notified, Device: "toy", Method: "m", Params: []byte(`"` + strings.Repeat("x", 500) + `"`)})
	}
	return count + 1
}

// TestWatchSlowReader checks that events for a slow reader are dropped and counted, and
// that the sender does not wait.
func TestWatchSlowReader(t *testing.T) {
	source := make(eventSource)
	client, _ := serve(t, &gateway{watch: source.watch})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	sent := make(chan struct{})
	seen, dropped := 0, 0
	over := make(chan error, 1)
	go func() {
		over <- client.Watch(ctx, control.Subscription{Event: func(ferrule.Event) {
			if seen++; dropped > 0 {
				cancel()
			}
			<-sent // read nothing before all was sent
		}, Missed: func(n int) { dropped += n }})
	}()
	count := source.burst()
	close(sent)
	if err := <-over; err != nil || dropped == 0 || seen+dropped > count {
		t.Errorf("%d of %d seen, %d dropped, %v", seen, count, dropped, err)
	}
}

// TestShutdownWithStuckReader checks that the gateway exits while a caller does not read.
func TestShutdownWithStuckReader(t *testing.T) {
	var stopped time.Time
	reads := make(chan struct{})
	t.Cleanup(func() { // runs after the gateway has exited
		close(reads)
		figure.AtMost(t, "exit with a watcher that does not read", time.Since(stopped), 3*time.Second)
	})
	source := make(eventSource)
	client, stop := serve(t, &gateway{watch: source.watch})
	go client.Watch(context.Background(), control.Subscription{Event: func(ferrule.Event) { <-reads }, Missed: func(int) {}})
	source.burst()
	stopped = time.Now()
	stop()
}
