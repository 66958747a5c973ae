// Package table formats rows in columns that fit a terminal.
package table

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// minCell is the width below which cells are not cut.
const minCell = 8

// Format returns rows below their column names. If they are wider than width, a last column
// of remarks moves to lines of its own, then spare columns are left out, then the widest
// cells are cut, except for the names in the first column. A width of 0 means no limit. Style
// is applied to cells after they are aligned.
func Format(columns []string, rows [][]string, width int, style func(column, cell string) string, spare ...string) string {
	var remarks []string
	if last := len(columns) - 1; width > 0 && total(columns, rows) > width && last > 0 && columns[last] == "REMARK" {
		columns, rows = columns[:last], slices.Clone(rows)
		for i, row := range rows {
			remarks = append(remarks, row[last])
			rows[i] = row[:last]
		}
	}
	for _, name := range spare {
		at := slices.Index(columns, name)
		if width == 0 || at < 0 || total(columns, rows) <= width {
			continue
		}
		columns, rows = without(columns, at), slices.Clone(rows)
		for i, row := range rows {
			rows[i] = without(row, at)
		}
	}
	widths := fit(columns, rows, width)
	var out strings.Builder
	line := func(row []string, style func(column, cell string) string) {
		var b strings.Builder
		for i, cell := range row {
			cell = cut(cell, widths[i])
			padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+gap)
			b.WriteString(style(columns[i], cell) + padding)
		}
		out.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	}
	line(columns, func(_, cell string) string { return cell })
	for i, row := range rows {
		line(row, style)
		if remarks != nil {
			for _, text := range wrap(remarks[i], width-gap) {
				out.WriteString("  " + text + "\n")
			}
		}
	}
	return out.String()
}

// without returns a copy without one element.
func without(all []string, at int) []string { return slices.Delete(slices.Clone(all), at, at+1) }

// gap is the space between columns.
const gap = 2

// widest returns the width of each column.
func widest(columns []string, rows [][]string) []int {
	widths := make([]int, len(columns))
	for _, row := range append([][]string{columns}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

func total(columns []string, rows [][]string) int { return sum(widest(columns, rows)) }

func sum(widths []int) int {
	all := gap * (len(widths) - 1)
	for _, w := range widths {
		all += w
	}
	return all
}

// fit returns the width of each column so that all fit: it shortens the widest again and
// again.
func fit(columns []string, rows [][]string, width int) []int {
	widths := widest(columns, rows)
	for others := widths[1:]; width > 0 && len(others) > 0 && sum(widths) > width; {
		at := slices.Index(others, slices.Max(others))
		if others[at] <= minCell {
			break
		}
		others[at]--
	}
	return widths
}

// cut shortens a text.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// wrap splits a text into lines at its spaces.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimLeft(line+" "+word, " ")
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
