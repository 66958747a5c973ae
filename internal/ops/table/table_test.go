package table

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func plain(_, cell string) string { return cell }

// TestFormat checks that a table fits a width, and shows everything without one.
func TestFormat(t *testing.T) {
	columns := strings.Fields("DEVICE STATE TRUST MODEL VERSION TOOLS ADDRESS REMARK")
	rows := func() [][]string {
		return [][]string{
			{"kitchen-temperature-sensor-2", "offline", "adopted", "bread-compact-wifi-lcd", "2.4.2", "12", "usb-Silicon_Labs_CP2102N-0123456789abcdef", "offline since 14:02:11: the port is used by another program; run `ferrule release kitchen-temperature-sensor-2`"},
			{"lamp", "online", "adopted", "lamp", "1.0.0", "3", "192.168.1.20:4242", ""},
		}
	}
	all := Format(columns, rows(), 0, plain)
	if !strings.Contains(all, "usb-Silicon_Labs_CP2102N-0123456789abcdef  offline since") || strings.Count(all, "\n") != 3 {
		t.Errorf("got\n%s", all)
	}
	for _, width := range []int{80, 100, 132} {
		got := Format(columns, rows(), width, plain, "VERSION", "NODE")
		for line := range strings.Lines(got) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("a line has %d characters, limit is %d:\n%s", n, width, got)
			}
		}
		for _, want := range []string{"online", "the port is used", "kitchen-temperature-sensor-2", "lamp"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
	}
	styled := Format([]string{"A", "B"}, [][]string{{"x", "y"}}, 80, func(column, cell string) string { return "<" + column + cell + ">" })
	if styled != "A  B\n<Ax>  <By>\n" {
		t.Errorf("got %q", styled)
	}
	if got := Format([]string{"A"}, nil, 80, plain); got != "A\n" {
		t.Errorf("got %q", got)
	}
}
