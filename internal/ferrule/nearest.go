package ferrule

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxNearest is the longest word that is corrected, in characters.
const maxNearest = 64

// Nearest returns the name that a misspelled word probably means, or "" if none is close.
// Of names that are equally close, it returns the first. It never returns the word itself.
func Nearest(word string, names []string) string {
	length := utf8.RuneCountInString(word)
	if length == 0 || length > maxNearest {
		return ""
	}
	said := word
	word = strings.ToLower(word)
	best, limit := "", max(1, length/3)+1
	for _, name := range names {
		n := utf8.RuneCountInString(name)
		if name == "" || name == said || n > maxNearest || max(n-length, length-n) >= limit {
			continue
		}
		if d := distance([]rune(word), []rune(strings.ToLower(name))); d < limit {
			best, limit = name, d
		}
	}
	return best
}

// DidYouMean returns the end of a message about a misspelled word: a suggestion, or "".
func DidYouMean(word string, names []string) string {
	if near := Nearest(word, names); near != "" {
		return fmt.Sprintf("; did you mean %s?", Clean(near, MaxWord))
	}
	return ""
}

// distance returns how many letters have to be inserted, deleted, replaced or swapped with
// their neighbor to turn one word into the other.
func distance(a, b []rune) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, row := rows[0], rows[1], rows[2]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		rows[0], rows[1], rows[2] = above, row, before
	}
	return rows[1][len(b)]
}
