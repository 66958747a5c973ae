package pinning

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxCells limits the comparisons of words in one report, and maxTextCells those of
	// one text. Above it, a text is shown as replaced.
	maxCells     = 4 << 20
	maxTextCells = 1 << 20
	// maxSame is the length of a part that both texts have and that is shown in full, in
	// bytes. Of a longer one, only shownEnds at each end is shown.
	maxSame, shownEnds = 200, 80
)

// words compares two texts word by word. It uses up cells.
func words(was, is string, cells *int) []Edit {
	a, b := split(was), split(is)
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		start++
	}
	end := 0
	for end < len(a)-start && end < len(b)-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	var edits []Edit
	edits = add(edits, Same, a[:start]...)
	middleA, middleB := a[start:len(a)-end], b[start:len(b)-end]
	if n := (len(middleA) + 1) * (len(middleB) + 1); n > maxTextCells || n > *cells {
		edits = add(add(edits, Removed, middleA...), Added, middleB...)
	} else {
		*cells -= n
		edits = compareWords(edits, middleA, middleB)
	}
	edits = add(edits, Same, a[len(a)-end:]...)
	for i := range edits {
		if edits[i].Op == Same {
			edits[i].Text = shorten(edits[i].Text)
		}
	}
	return edits
}

// compareWords appends the edits from a to b with the longest common subsequence.
func compareWords(edits []Edit, a, b []string) []Edit {
	width := len(b) + 1
	common := make([]uint16, (len(a)+1)*width) // from each pair to the end
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i*width+j] = common[(i+1)*width+j+1] + 1
			} else {
				common[i*width+j] = max(common[(i+1)*width+j], common[i*width+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			edits = add(edits, Same, a[i])
			i, j = i+1, j+1
		case common[(i+1)*width+j] >= common[i*width+j+1]:
			edits = add(edits, Removed, a[i])
			i++
		default:
			edits = add(edits, Added, b[j])
			j++
		}
	}
	return add(add(edits, Removed, a[i:]...), Added, b[j:]...)
}

// add appends words. Adjacent words of one operation are one edit.
func add(edits []Edit, op string, words ...string) []Edit {
	if len(words) == 0 {
		return edits
	}
	joined := strings.Join(words, "")
	if n := len(edits); n > 0 && edits[n-1].Op == op {
		edits[n-1].Text += joined
		return edits
	}
	return append(edits, Edit{op, joined})
}

// split cuts a text into words, runs of white space, and single other characters.
func split(text string) (words []string) {
	class := func(r rune) int {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_':
			return 1
		case unicode.IsSpace(r):
			return 2
		}
		return 0
	}
	start, last := 0, 0
	for i, r := range text {
		c := class(r)
		if i > start && (c != last || c == 0) {
			words = append(words, text[start:i])
			start = i
		}
		last = c
	}
	if start < len(text) {
		words = append(words, text[start:])
	}
	return words
}

// shorten leaves out the middle of a long text.
func shorten(text string) string {
	if len(text) <= maxSame {
		return text
	}
	head, tail := text[:shownEnds], text[len(text)-shownEnds:]
	for !utf8.RuneStart(text[len(head)]) {
		head = head[:len(head)-1]
	}
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	return head + " … " + tail
}

// groups joins edits that have only white space between them, so that a replaced phrase
// is shown as one phrase.
func groups(edits []Edit) (out []Edit) {
	for i := 0; i < len(edits); {
		if edits[i].Op == Same {
			out = append(out, edits[i])
			i++
			continue
		}
		var removed, added strings.Builder
		for i < len(edits) {
			gap := edits[i].Op == Same && strings.TrimSpace(edits[i].Text) == "" && i+1 < len(edits) && !strings.Contains(edits[i].Text, "\n")
			if edits[i].Op == Same && !gap {
				break
			}
			if edits[i].Op != Added {
				removed.WriteString(edits[i].Text)
			}
			if edits[i].Op != Removed {
				added.WriteString(edits[i].Text)
			}
			i++
		}
		for _, e := range []Edit{{Removed, removed.String()}, {Added, added.String()}} {
			if strings.TrimSpace(e.Text) != "" || e.Text != "" && removed.Len()+added.Len() == len(e.Text) {
				out = append(out, e)
			}
		}
	}
	return slices.Clip(out)
}
