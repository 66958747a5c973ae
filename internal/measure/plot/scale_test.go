package plot

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTimeTicks checks that ticks are at round local times, also on days with 23 hours and
// in zones with an offset of minutes.
func TestTimeTicks(t *testing.T) {
	for _, test := range []struct {
		zone, from string
		length     time.Duration
		most       int
		want       string
	}{
		{"UTC", "2026-01-31T13:59:30Z", time.Hour, 8, "14:00(Sat Jan 31) 14:10 14:20 14:30 14:40 14:50"},
		{"Asia/Kathmandu", "2026-01-31T13:59:30Z", time.Hour, 4, "20:00(Sat Jan 31) 20:30"},
		{"Asia/Kathmandu", "2026-01-31T13:59:30Z", 6 * time.Hour, 8, "20:00(Sat Jan 31) 21:00 22:00 23:00 00:00(Sun Feb 1) 01:00"},
		{"UTC", "2026-01-31T23:59:58Z", 4 * time.Second, 5, "23:59:58(Sat Jan 31) 23:59:59 00:00:00(Sun Feb 1) 00:00:01 00:00:02"},
		{"UTC", "2026-01-31T12:00:00Z", time.Second / 2, 5, "00.000(Jan 31 12:00) 00.200 00.400"},
		{"Europe/Berlin", "2026-03-28T23:00:00Z", 23 * time.Hour, 5, "00:00(Sun Mar 29) 06:00 12:00 18:00 00:00(Mon Mar 30)"},
		{"Europe/Berlin", "2026-10-24T22:00:00Z", 6 * time.Hour, 8, "00:00(Sun Oct 25) 01:00 02:00 03:00 04:00 05:00"},
		{"UTC", "2025-12-28T12:00:00Z", 7 * day, 8, "Dec 29(2025) Dec 30 Dec 31 Jan 1(2026) Jan 2 Jan 3 Jan 4"},
		{"UTC", "2025-06-10T00:00:00Z", 365 * day, 6, "Jul(2025) Oct Jan(2026) Apr"},
		{"UTC", "1999-06-10T00:00:00Z", 9 * 365 * day, 6, "2000 2002 2004 2006 2008"},
	} {
		zone, err := time.LoadLocation(test.zone)
		if err != nil {
			t.Fatal(err)
		}
		from, err := time.Parse(time.RFC3339, test.from)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tick := range timeTicks(from, from.Add(test.length), zone, test.most) {
			word := tick.label
			if tick.day != "" {
				word += "(" + tick.day + ")"
			}
			got = append(got, word)
		}
		if words := strings.Join(got, " "); words != test.want {
			t.Errorf("%s, %v from %s:\n got %s\nwant %s", test.zone, test.length, test.from, words, test.want)
		}
	}
}

// TestTimeTicksOrder checks that ticks are in order, in the time range, and not too many.
func TestTimeTicksOrder(t *testing.T) {
	zone, err := time.LoadLocation("Australia/Lord_Howe") // summer time is half an hour
	if err != nil {
		t.Fatal(err)
	}
	for length := time.Microsecond; length < 150*365*day; length += length/2 + 1 {
		for _, from := range []time.Time{began, time.Date(2026, 10, 3, 15, 20, 0, 12345, time.UTC), time.Date(2026, 4, 4, 14, 40, 0, 999, time.UTC)} {
			ticks := timeTicks(from, from.Add(length), zone, 8)
			if len(ticks) > 9 || len(ticks) == 0 && length > time.Second {
				t.Errorf("%v has %d ticks", length, len(ticks))
			}
			if !slices.IsSortedFunc(ticks, func(a, b timeTick) int { return a.at.Compare(b.at) }) {
				t.Errorf("%v: not in order", length)
			}
			for _, tick := range ticks {
				if tick.at.Before(from) || tick.at.After(from.Add(length)) {
					t.Errorf("%v from %v: a tick at %v", length, from, tick.at)
				}
			}
		}
	}
}

func TestValueTicks(t *testing.T) {
	for _, test := range []struct {
		low, high float64
		want      string
	}{
		{0, 1, "0 0.2 0.4 0.6 0.8 1.0"},
		{14.2, 23.5, "16 18 20 22"},
		{-0.031, 0.04, "-0.02 0 0.02 0.04"},
		{0, 1023, "0 500 1000"},
		{1e9, 1e9 + 100, "1.00000000e+09 1.00000002e+09 1.00000004e+09 1.00000006e+09 1.00000008e+09 1.00000010e+09"},
		{0, 3e-9, "0 1e-09 2e-09 3e-09"},
		{1, 1, ""},
		{-math.MaxFloat64, math.MaxFloat64, "-1e+308 0 1e+308"},
	} {
		var got []string
		for _, tick := range valueTicks(test.low, test.high, 5) {
			got = append(got, tick.label)
		}
		if words := strings.Join(got, " "); words != test.want {
			t.Errorf("from %v to %v: got %s, want %s", test.low, test.high, words, test.want)
		}
	}
}
