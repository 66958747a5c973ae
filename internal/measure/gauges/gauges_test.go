package gauges

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/screen"
)

// onScreen draws gauges on a screen, as long as the test runs.
func onScreen(t *testing.T, width, height int) (*Gauges, *screen.Screen) {
	t.Helper()
	s := screen.New(width, height)
	g := New(s, s.Size, func(_ Style, text string) string { return text })
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		g.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-over
		if _, styled, unknown, _ := s.History(); unknown != "" || styled {
			t.Errorf("unknown sequences %q, colored: %t", unknown, styled)
		}
	})
	return g, s
}

// reading returns samples of a signal, a second apart, up to now.
func reading(signal string, values ...float64) ferrule.Reading {
	s := ferrule.SampleBatch{Signal: signal, Unit: "°C"}
	now := time.Now()
	for i, v := range values {
		s.Samples = append(s.Samples, ferrule.Sample{Time: now.Add(time.Duration(i+1-len(values)) * time.Second), Value: v})
	}
	return ferrule.Reading{Time: now, Batches: []ferrule.SampleBatch{s}}
}

// shows waits for the next drawing and compares it.
func shows(t *testing.T, s *screen.Screen, want ...string) {
	t.Helper()
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	if got := s.Text(); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// TestGauges checks that each signal has a line that is redrawn in place, that other lines
// are printed above, and that the ages grow.
func TestGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := onScreen(t, 60, 8)
		shows(t, s)
		if _, _, _, row := s.History(); row != 0 {
			t.Error("the cursor moved although nothing was drawn")
		}
		g.Measured(reading("heat", 20, 21, 22))
		shows(t, s, fmt.Sprintf("heat  %40s  22 °C  now", "▁▅█"))
		g.Measured(reading("a-speed", 7))
		lines := func(speed, heat, value, ages string) []string {
			return []string{fmt.Sprintf("a-speed  %38s  7 °C   %s", speed, ages[:2]), fmt.Sprintf("heat     %38s  %s  %s", heat, value, ages[3:])}
		}
		time.Sleep(2 * time.Second)
		shows(t, s, lines("▄", "▁▅█", "22 °C", "1s 1s")...)
		time.Sleep(3 * time.Second)
		shows(t, s, lines("▄", "▁▅█", "22 °C", "4s 4s")...)

		g.Above(func() { fmt.Fprintln(s, "12:00:00.000 robot at north is offline: it was unplugged by somebody") })
		event := []string{"12:00:00.000 robot at north is offline: it was unplugged by", "somebody"}
		shows(t, s, append(event, lines("▄", "▁▅█", "22 °C", "5s 5s")...)...)
		g.Gap()
		g.Above(func() { fmt.Fprintln(s, "3 events were missed") })
		g.Measured(reading("heat", 20))
		event = append(event, "3 events were missed")
		shows(t, s, append(event, lines("▄ ", "▁▅█ ▁", "20 °C", "5s now")...)...)
	})
}

// TestManyGauges checks small terminals: a low one shows some signals and the number of
// the others, a narrow one less of each. Gauges are never scrolled away.
func TestManyGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := onScreen(t, 30, 5)
		for i := range 7 {
			g.Measured(reading(fmt.Sprintf("signal-%d", i), 1, 2, 3))
		}
		showsAll := func(age string) {
			t.Helper()
			line := fmt.Sprintf("  %8s  3 °C  %s", "▁▅█", age)
			shows(t, s, "signal-0"+line, "signal-1"+line, "signal-2"+line, "… and 4 more")
		}
		for range 5 {
			showsAll("now")
			g.Measured(reading("signal-6", 1, 2, 3))
		}
		time.Sleep(time.Second)
		showsAll("1s")
		if scrolled, _, _, _ := s.History(); len(scrolled) > 0 {
			t.Errorf("scrolled away: %q", scrolled)
		}
		g.Above(func() { fmt.Fprintln(s, "robot is offline: gone, a line that is longer than this") })
		showsAll("1s")
		if scrolled, _, _, _ := s.History(); len(scrolled) != 2 || strings.Join(scrolled, "") != "robot is offline: gone, a line that is longer than this" {
			t.Errorf("scrolled away: %q", scrolled)
		}
		s.SetWidth(12)
		for i := range 3 * maxGauges { // a device may invent signals without end
			g.Measured(reading(fmt.Sprintf("signal-%d", i), 1))
		}
		shows(t, s, "signal-0", "signal-1", "signal-10", "… and 1021 m")
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.all) != maxGauges {
			t.Errorf("%d signals are remembered", len(g.all))
		}
	})
}

// TestGapsOnly checks that a signal without samples has no value.
func TestGapsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := onScreen(t, 30, 5)
		g.Measured(ferrule.Reading{Batches: []ferrule.SampleBatch{{Signal: "heat", Unit: "°C", Gaps: []ferrule.Gap{{Reason: ferrule.Silent}}}}})
		shows(t, s, "heat")
	})
}

// TestValue checks that numbers are short and that a unit cannot break the line.
func TestValue(t *testing.T) {
	for _, test := range []struct {
		value float64
		unit  string
		want  string
	}{
		{21.5, "°C", "21.5 °C"}, {0.1 + 0.2, "", "0.3"}, {1013.25, "hPa", "1013.25 hPa"}, {1234567, "", "1234567"}, {-1e300, "", "-1e+300"},
		{1, "a\nb\tc", "1 a b c"}, {1, "\x1b[2J", "1 [2J"},
	} {
		if got := Value(test.value, test.unit); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
