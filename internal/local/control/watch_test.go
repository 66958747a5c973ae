package control_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// TestWatch: what happens crosses as it is, and the gateway is told when nobody
// watches any more.
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
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var seen []string
	err := client.Watch(ctx, control.Watching{Device: "robot 1", Event: func(e ferrule.Event) {
		if seen = append(seen, fmt.Sprintf("%s %s %s %s", e.Device, e.Type, e.Method, e.Params)); len(seen) == 3 {
			cancel()
		}
	}, Missed: func(int) { t.Error("some were missed") }})
	if err != nil || len(seen) != 3 || strings.ReplaceAll(seen[2], `\u003c`, "<") != `robot 1 notified m {"a":[2,"<"]}` {
		t.Errorf("%q, %v", seen, err)
	}
	select {
	case <-stopped:
	case <-time.After(10 * time.Second):
		t.Error("the gateway goes on telling")
	}
	if err := client.Watch(t.Context(), control.Watching{Device: "x", Event: func(ferrule.Event) {}}); err == nil || ferrule.AsError(err).Code != ferrule.NotFound || ferrule.AsError(err).Hint == "" {
		t.Errorf("got %v", err)
	}
}

// talker is a gateway where something happens when the test says so.
type talker chan func(ferrule.Event)

func (k talker) watch(_ string, fn func(ferrule.Event)) (stop func(), err error) {
	k <- fn
	return func() {}, nil
}

// burst is more than the sockets and the backlog hold.
func (k talker) burst() (count int) {
	fn := <-k
	for count = range 50000 {
		fn(ferrule.Event{Type: ferrule.Notified, Device: "toy", Method: "m", Params: []byte(`"` + strings.Repeat("x", 500) + `"`)})
	}
	return count + 1
}

// TestSlowWatcher: a reader that is too slow misses events, and is told how many; who
// tells does not wait.
func TestSlowWatcher(t *testing.T) {
	k := make(talker)
	client, _ := serve(t, &gateway{watch: k.watch})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	told := make(chan struct{})
	seen, lost := 0, 0
	over := make(chan error, 1)
	go func() {
		over <- client.Watch(ctx, control.Watching{Event: func(ferrule.Event) {
			if seen++; lost > 0 {
				cancel()
			}
			<-told // it reads when all was told
		}, Missed: func(n int) { lost += n }})
	}()
	count := k.burst()
	close(told)
	if err := <-over; err != nil || lost == 0 || seen+lost > count {
		t.Errorf("%d of %d seen, %d lost, %v", seen, count, lost, err)
	}
}

// TestDeafWatcher: a gateway that ends does not wait for a reader that does not read.
func TestDeafWatcher(t *testing.T) {
	var stopped time.Time
	reads := make(chan struct{})
	t.Cleanup(func() { // when the gateway has ended
		close(reads)
		if took := time.Since(stopped); took > 3*time.Second {
			t.Errorf("it took %v to end", took)
		}
	})
	k := make(talker)
	client, stop := serve(t, &gateway{watch: k.watch})
	go client.Watch(context.Background(), control.Watching{Event: func(ferrule.Event) { <-reads }, Missed: func(int) {}})
	k.burst()
	stopped = time.Now()
	stop()
}
