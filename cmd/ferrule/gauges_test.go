package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// onScreen has gauges drawn on a screen, as long as the test lasts.
func onScreen(t *testing.T, width, height int) (*gauges, *screen) {
	t.Helper()
	s := newScreen(width, height)
	g := newGauges(&app{stdout: s, stderr: s}, s.size)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		g.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-over
		if _, styled, unknown, _ := s.history(); unknown != "" || styled {
			t.Errorf("it wrote %q, and %t in colour", unknown, styled)
		}
	})
	return g, s
}

// shows waits for the next drawing, and compares it.
func (s *screen) shows(t *testing.T, want ...string) {
	t.Helper()
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	if got := s.text(); got != strings.Join(want, "\n") {
		t.Errorf("it shows\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// TestGauges: each signal has a line that is drawn in place, what happens stands above
// them, and all become older.
func TestGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := onScreen(t, 60, 8)
		s.shows(t)
		if _, _, _, row := s.history(); row != 0 {
			t.Error("it has drawn nothing, in a line")
		}
		g.measured(aReading("robot", "heat", 20, 21, 22))
		s.shows(t, fmt.Sprintf("heat  %40s  22 °C  now", "▁▅█"))
		g.measured(aReading("robot", "a-speed", 7))
		lines := func(speed, heat, value, ages string) []string {
			return []string{fmt.Sprintf("a-speed  %38s  7 °C   %s", speed, ages[:2]), fmt.Sprintf("heat     %38s  %s  %s", heat, value, ages[3:])}
		}
		time.Sleep(2 * time.Second)
		s.shows(t, lines("▄", "▁▅█", "22 °C", "1s 1s")...)
		time.Sleep(3 * time.Second)
		s.shows(t, lines("▄", "▁▅█", "22 °C", "4s 4s")...)

		e := ferrule.Event{Time: time.Now(), Type: ferrule.Gone, Device: "robot", Node: "north", Reason: "it was unplugged by somebody"}
		g.happened(e, true)
		event := []string{e.Time.Local().Format("15:04:05.000") + " robot at north cannot be reached: it was unplug", "ged by somebody"}
		s.shows(t, append(event, lines("▄", "▁▅█", "22 °C", "5s 5s")...)...)
		g.missed(3)
		g.measured(aReading("robot", "heat", 20))
		event = append(event, "3 more came too fast to be shown")
		s.shows(t, append(event, lines("▄ ", "▁▅█ ▁", "20 °C", "5s now")...)...)
	})
}

// TestManyGauges: on a terminal that is low, as many are shown as there is room for, and
// how many more there are; on one that is narrow, less of each. Nothing is ever scrolled
// away but what happens.
func TestManyGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := onScreen(t, 30, 5)
		for i := range 7 {
			g.measured(aReading("robot", fmt.Sprintf("signal-%d", i), 1, 2, 3))
		}
		shows := func(age string) {
			t.Helper()
			line := fmt.Sprintf("  %8s  3 °C  %s", "▁▅█", age)
			s.shows(t, "signal-0"+line, "signal-1"+line, "signal-2"+line, "… and 4 more")
		}
		for range 5 {
			shows("now")
			g.measured(aReading("robot", "signal-6", 1, 2, 3))
		}
		time.Sleep(time.Second)
		shows("1s")
		if scrolled, _, _, _ := s.history(); len(scrolled) > 0 {
			t.Errorf("%q were scrolled away", scrolled)
		}
		g.happened(ferrule.Event{Type: ferrule.Gone, Device: "robot", Reason: "gone"}, false)
		shows("1s")
		if scrolled, _, _, _ := s.history(); len(scrolled) != 2 || !strings.HasSuffix(strings.Join(scrolled, ""), "robot cannot be reached: gone") {
			t.Errorf("%q were scrolled away", scrolled)
		}
		s.narrow(12)
		for i := range 3 * maxGauges { // whatever a device comes up with
			g.measured(aReading("robot", fmt.Sprintf("signal-%d", i), 1))
		}
		s.shows(t, "signal-0", "signal-1", "signal-10", "… and 1021 m")
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.all) != maxGauges {
			t.Errorf("%d are remembered", len(g.all))
		}
	})
}

// TestHolesOnly: a signal of which only holes are known has no value.
func TestHolesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := onScreen(t, 30, 5)
		g.measured(ferrule.Reading{Batches: []ferrule.SampleBatch{{Signal: "heat", Unit: "°C", Gaps: []ferrule.Gap{{Reason: ferrule.Silent}}}}})
		s.shows(t, "heat")
	})
}
