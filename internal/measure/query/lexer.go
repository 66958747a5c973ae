package query

import (
	"strings"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Tables tells what can be asked about, in SQL's own words. Times are seconds since 1970.
const Tables = "signals(device, signal, unit, first, last, value), " +
	"samples(device, signal, time, value, within), " +
	"minutes(device, signal, time, min, max, mean, count), " +
	"hours(device, signal, time, min, max, mean, count), " +
	"holes(device, signal, from, to, why, most)"

// tables is the hint that says so.
const tablesHint = "there are " + Tables + "; times are seconds since 1970, as in datetime(time,'unixepoch'); from and to are written \"from\", \"to\""

// Check tells why a text is not a question: one statement that begins with SELECT, WITH
// or VALUES. What SQLite makes of it is another matter; nothing can be changed by it.
func Check(text string) error {
	refuse := func(format string, args ...any) error {
		return ferrule.Errorf(ferrule.Invalid, format, args...).WithHint(tablesHint)
	}
	switch {
	case len(text) > MaxText:
		return refuse("the question has %d bytes; at most %d are possible", len(text), MaxText)
	case !utf8.ValidString(text):
		return refuse("the question is not valid UTF-8")
	case strings.ContainsRune(text, 0):
		return refuse("the question has a NUL byte in it")
	}
	first, rest := next(text)
	switch strings.ToUpper(first) {
	case "SELECT", "WITH", "VALUES":
	case "":
		return refuse("the question is empty; want SELECT …")
	default:
		return refuse("a question begins with SELECT, WITH or VALUES, not with %s", ferrule.Clean(first, 32))
	}
	for token := first; token != ""; token, rest = next(rest) {
		if token != ";" {
			continue
		}
		for token == ";" {
			token, rest = next(rest)
		}
		if token != "" {
			return refuse("one statement can be asked at a time; another begins with %s", ferrule.Clean(token, 32))
		}
		return nil
	}
	return nil
}

// next is the first token of a text, as SQLite divides it, and what follows it; it is
// empty if there is none. A quoted text or name is one token, also if it has no end.
func next(text string) (token, rest string) {
	for {
		text = strings.TrimLeft(text, " \t\n\f\r\ufeff")
		switch {
		case strings.HasPrefix(text, "--"):
			_, text, _ = strings.Cut(text, "\n")
			continue
		case strings.HasPrefix(text, "/*"):
			_, text, _ = strings.Cut(text[2:], "*/")
			continue
		case text == "":
			return "", ""
		}
		break
	}
	end := 1
	switch c := text[0]; {
	case c == '\'' || c == '"' || c == '`':
		end = quoted(text, c)
	case c == '[':
		if end = strings.IndexByte(text, ']') + 1; end == 0 {
			end = len(text)
		}
	case inWord(c):
		for end < len(text) && inWord(text[end]) {
			end++
		}
	}
	return text[:end], text[end:]
}

// quoted is where a text between quotes ends that stand for themselves if doubled.
func quoted(text string, quote byte) int {
	for i := 1; i < len(text); i++ {
		if text[i] != quote {
			continue
		}
		if i+1 < len(text) && text[i+1] == quote {
			i++
			continue
		}
		return i + 1
	}
	return len(text)
}

// inWord tells whether a byte is part of a name, a keyword or a number.
func inWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}
