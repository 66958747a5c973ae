package main

import (
	"strings"
	"testing"
)

// TestTable checks that columns are aligned, with and without colors.
func TestTable(t *testing.T) {
	var out strings.Builder
	a := &app{stdout: &out}
	rows := [][]string{{"robot", "online", "é"}, {"a-much-longer-name", "offline", ""}}
	err := a.table("DEVICE STATE REMARK", rows, func(column, cell string) string {
		if column == "STATE" {
			return "\x1b[31m" + cell + "\x1b[0m"
		}
		return cell
	})
	want := "DEVICE              STATE    REMARK\n" +
		"robot               \x1b[31monline\x1b[0m   é\n" +
		"a-much-longer-name  \x1b[31moffline\x1b[0m\n"
	if err != nil || out.String() != want {
		t.Errorf("%v:\n%q\nwant\n%q", err, out.String(), want)
	}
}
