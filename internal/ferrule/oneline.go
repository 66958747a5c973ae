package ferrule

import "strings"

// OneLine joins the words of a text with single spaces and shortens it to a number of
// characters.
func OneLine(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}
