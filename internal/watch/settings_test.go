package watch

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestEarlierSamples checks that samples from before a watch was set are not edges: a device
// with a buffer sends them later. What holds afterward is one.
func TestEarlierSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		s.attach("tank")
		w := s.set(claude, nil)
		if got := s.state(w.ID); got.Devices != 1 || got.Unmeasured != 1 {
			t.Errorf("%d devices, %d unmeasured before the first value", got.Devices, got.Unmeasured)
		}
		buffer := func(ages map[time.Duration]float64) {
			b := ferrule.SampleBatch{Signal: "level"}
			for _, age := range []time.Duration{20 * time.Second, 10 * time.Second, time.Second} {
				if v, ok := ages[age]; ok {
					b.Samples = append(b.Samples, ferrule.Sample{Time: time.Now().Add(-age), Value: v})
				}
			}
			s.keeper.Measured(ferrule.Reading{Device: "tank", Node: s.node, Poll: "p", Time: time.Now(), Batches: []ferrule.SampleBatch{b}})
			time.Sleep(time.Second)
			synctest.Wait()
		}
		time.Sleep(5 * time.Second)
		buffer(map[time.Duration]float64{20 * time.Second: 80, 10 * time.Second: 95, time.Second: 80})
		s.want(0, 0)
		if got := s.state(w.ID); got.Unmeasured != 0 {
			t.Errorf("%d unmeasured", got.Unmeasured)
		}
		buffer(map[time.Duration]float64{time.Second: 95})
		s.want(1, 1)
	})
}

// TestSetSenders checks that another configuration is used for the next notice.
func TestSetSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		s.attach("tank")
		w := s.set(claude, nil)
		s.keeper.SetSenders(nil)
		s.measure("tank", 91)
		s.want(1, 0)
		if got := s.state(w.ID); !strings.Contains(got.Undelivered, "webhook is not configured") {
			t.Errorf("undelivered %q", got.Undelivered)
		}
		if _, err := s.keeper.Set(claude, Settings{Name: "x", Notify: []string{Webhook}, Condition: w.Condition}); err == nil {
			t.Error("a watch has a channel that is not configured any more")
		}
		var got Notice
		s.keeper.SetSenders(Senders{Webhook: func(_ context.Context, n Notice) error {
			if n.Event == "watch" {
				got = n
			}
			return nil
		}})
		time.Sleep(2 * time.Minute)
		s.measure("tank", 80, 92)
		if want := `watch "tank full" fired: level of tank is 92 (above 90). It tries to call close of valve {"port":1}; the outcome follows`; got.Text != want {
			t.Errorf("text %s\nwant %s", got.Text, want)
		}
	})
}

// TestNoticeWithoutCall checks what a notice says when the limits hold the call back.
func TestNoticeWithoutCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		s.attach("tank")
		s.attach("tank-2")
		s.set(claude, func(in *Settings) {
			in.Condition.Device, in.Condition.Above, in.Condition.Hysteresis, in.Condition.Changes = "tank*", nil, 0, true
		})
		s.measure("tank", 1, 2)
		s.measure("tank-2", 1, 2)
		s.want(1, 2)
		if n := s.notices[1]; n.NotCalled != "the limits of the watch hold the call back" || !strings.HasSuffix(n.Text, "Not called: the limits of the watch hold the call back") {
			t.Errorf("notice %+v", n)
		}
	})
}

// TestValueText checks that a sample that was read late is not called the present value.
func TestValueText(t *testing.T) {
	now := time.Now()
	hit := condition.Hit{Device: "robot", Signal: "light", Value: 3658, Time: now.Add(-time.Second)}
	if got := ValueText(hit, now); got != "light of robot is 3658" {
		t.Error(got)
	}
	hit.Time = now.Add(-20 * time.Second)
	if got, want := ValueText(hit, now), "light of robot was 3658 at "+ferrule.FormatTime(hit.Time); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Minute: "1m", time.Hour: "1h", 24 * time.Hour: "24h", 90 * time.Second: "1m30s", time.Second: "1s", 10 * time.Minute: "10m"} {
		if got := Short(d); got != want {
			t.Errorf("%v is shown as %s, want %s", d, got, want)
		}
	}
}
