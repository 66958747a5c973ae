package query

import (
	"strings"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Tables describes the views that can be queried. Times are seconds since 1970.
const Tables = "signals(device, signal, unit, first, last, value), " +
	"samples(device, signal, time, value, within), " +
	"minutes(device, signal, time, min, max, mean, count), " +
	"hours(device, signal, time, min, max, mean, count), " +
	"gaps(device, signal, from, to, reason, max_missing)"

// tablesHint is the hint for queries that SQLite does not understand.
const tablesHint = "the tables are " + Tables + "; times are seconds since 1970, as in datetime(time,'unixepoch'); quote the columns \"from\" and \"to\""

// Check returns an error unless text is one statement that begins with SELECT, WITH or
// VALUES. It does not protect the file: the child opens it read-only. It also refuses the
// tables that SQLite makes of its pragmas, because one of them contains the path of the file.
func Check(text string) error {
	refuse := func(format string, args ...any) error {
		return ferrule.Errorf(ferrule.Invalid, format, args...).WithHint(tablesHint)
	}
	switch {
	case len(text) > MaxText:
		return refuse("query has %d bytes, limit is %d", len(text), MaxText)
	case !utf8.ValidString(text):
		return refuse("query is not valid UTF-8")
	case strings.ContainsRune(text, 0):
		return refuse("query contains a NUL byte")
	}
	first, rest := next(text)
	switch strings.ToUpper(first) {
	case "SELECT", "WITH", "VALUES":
	case "":
		return refuse("query is empty")
	default:
		return refuse("query must begin with SELECT, WITH or VALUES, got %s", ferrule.Clean(first, 32))
	}
	for token := first; token != ""; token, rest = next(rest) {
		if name := strings.ToLower(strings.TrimLeft(token, "\"'`[")); strings.HasPrefix(name, "pragma_") {
			return refuse("%s cannot be queried", ferrule.Clean(token, 64))
		}
		if token != ";" {
			continue
		}
		for token == ";" {
			token, rest = next(rest)
		}
		if token != "" {
			return refuse("query must be one statement, got a second one that begins with %s", ferrule.Clean(token, 32))
		}
		return nil
	}
	return nil
}

// next returns the first token of a text, as SQLite splits it, and the rest. The token is
// empty at the end. A quoted string or name is one token, also without its end quote.
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

// quoted returns the length of the quoted token at the start of text. A doubled quote is
// part of it.
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

// inWord reports whether a byte is part of a name, a keyword or a number.
func inWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}
