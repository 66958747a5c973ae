package ratelimit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

func TestLimiter(t *testing.T) {
	rate := ratelimit.Rate{Burst: 3, Every: time.Second}
	var l ratelimit.Limiter
	now := time.Unix(1_700_000_000, 0)
	for _, step := range []struct {
		after time.Duration
		allow bool
		wait  time.Duration // before the event
	}{
		{0, true, 0},
		{0, true, -time.Second},
		{0, true, 0},
		{0, false, time.Second},
		{400 * time.Millisecond, false, 600 * time.Millisecond},
		{600 * time.Millisecond, true, 0},
		{0, false, time.Second},
		{time.Hour, true, 0},
	} {
		now = now.Add(step.after)
		if wait := l.Wait(rate, now); wait != step.wait {
			t.Errorf("wait is %v, want %v", wait, step.wait)
		}
		if got := l.Allow(rate, now); got != step.allow {
			t.Errorf("allow is %t, want %t", got, step.allow)
		}
	}
	if l.Idle(now) || !l.Idle(now.Add(time.Second)) {
		t.Error("a limiter is idle when its burst is complete again")
	}
}

func TestPerMinute(t *testing.T) {
	rate := ratelimit.PerMinute(7)
	var l ratelimit.Limiter
	now := time.Unix(1_700_000_000, 0)
	allowed := 0
	for range 1200 { // two minutes
		if l.Allow(rate, now) {
			allowed++
		}
		now = now.Add(100 * time.Millisecond)
	}
	if allowed != 7+14-1 && allowed != 7+14 {
		t.Errorf("%d in two minutes", allowed)
	}
}

func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, burst = 1000, 500
		var th ratelimit.Throttle
		start := time.Now()
		for range 50 {
			th.Spend(100, rate, burst)
		}
		// The burst and the first chunk are free.
		if took := time.Since(start); took < 4300*time.Millisecond || took > 4500*time.Millisecond {
			t.Errorf("took %v", took)
		}
		time.Sleep(time.Minute)
		start = time.Now()
		for range 5 {
			th.Spend(100, rate, burst)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("a burst after a pause took %v", took)
		}
	})
}
