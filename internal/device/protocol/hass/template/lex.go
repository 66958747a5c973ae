package template

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

type kind byte

const (
	ending kind = iota // }} or %}, or nothing at the end of the text
	word
	str
	num
	operator
)

// token is a token of an expression.
type token struct {
	kind kind
	text string
	at   int
}

// describe names a token for an error. Texts in quotes are left out: they can be secrets.
func (t token) describe() string {
	switch {
	case t.kind == str:
		return "a text"
	case t.kind == num:
		return "a number"
	case t.text == "":
		return "the end"
	}
	return cleaned(t.text)
}

// lexer splits a template into text and tokens.
type lexer struct {
	src string
	pos int
	// open brackets of the current tag: inside of them, }} closes two of them.
	brackets int
	// strip is set if the last tag asked to remove the white space after it.
	strip bool
}

func (l *lexer) failAt(at int, format string, args ...any) {
	panic(parseError{at, fmt.Sprintf(format, args...)})
}

func (l *lexer) fail(format string, args ...any) { l.failAt(l.pos, format, args...) }

// data reads the text up to the next tag, without comments.
func (l *lexer) data() string {
	var b strings.Builder
	for {
		rest := l.src[l.pos:]
		end := len(rest)
		for _, mark := range []string{"{{", "{%", "{#"} {
			if i := strings.Index(rest, mark); i >= 0 && i < end {
				end = i
			}
		}
		s := rest[:end]
		if l.strip {
			s = strings.TrimLeftFunc(s, isSpace)
		}
		if strings.HasPrefix(rest[end:], "{%-") || strings.HasPrefix(rest[end:], "{{-") || strings.HasPrefix(rest[end:], "{#-") {
			s = strings.TrimRightFunc(s, isSpace)
		}
		b.WriteString(newlines(s))
		l.strip = false
		l.pos += end
		if !strings.HasPrefix(rest[end:], "{#") {
			return b.String()
		}
		stop := strings.Index(rest[end+2:], "#}")
		if stop < 0 {
			l.fail("a comment has no end")
		}
		l.strip = stop > 0 && rest[end+2+stop-1] == '-'
		l.pos += 2 + stop + 2
	}
}

// newlines replaces the newlines of other systems, as Jinja does.
func newlines(s string) string {
	if !strings.Contains(s, "\r") {
		return s
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

// open reads the mark that opens a tag. It returns an empty text at the end.
func (l *lexer) open() string {
	if l.pos == len(l.src) {
		return ""
	}
	mark := l.src[l.pos : l.pos+2]
	l.pos += 2
	if l.pos < len(l.src) && (l.src[l.pos] == '-' || l.src[l.pos] == '+' && mark == "{%") {
		l.pos++
	}
	l.brackets = 0
	return mark
}

// operators that have two characters. Single characters are listed in lex.
var operators = []string{"==", "!=", "<=", ">=", "//"}

// lex reads the next token of a tag.
func (l *lexer) lex() token {
	for l.pos < len(l.src) && strings.IndexByte(" \t\r\n\v\f", l.src[l.pos]) >= 0 {
		l.pos++
	}
	at := l.pos
	if at == len(l.src) {
		return token{ending, "", at}
	}
	if t, ok := l.tagEnd(); ok {
		return t
	}
	rest := l.src[at:]
	switch c := rest[0]; {
	case isLetter(c):
		end := 1
		for end < len(rest) && (isLetter(rest[end]) || isDigit(rest[end])) {
			end++
		}
		l.pos += end
		return token{word, rest[:end], at}
	case isDigit(c):
		return l.number()
	case c == '"' || c == '\'':
		return l.quoted(c)
	}
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			l.pos += 2
			return token{operator, op, at}
		}
	}
	switch c := rest[0]; {
	case strings.HasPrefix(rest, "**"):
		l.fail("** is not understood")
	case strings.IndexByte("([{", c) >= 0:
		l.brackets++
	case strings.IndexByte(")]}", c) >= 0:
		if l.brackets--; l.brackets < 0 {
			l.fail("a bracket closes nothing")
		}
	case strings.IndexByte(".,:|~+-*/%<>=", c) < 0:
		r, _ := utf8.DecodeRuneInString(rest)
		l.fail("%s is not understood", cleaned(string(r)))
	}
	l.pos++
	return token{operator, rest[:1], at}
}

// tagEnd reads the mark that closes a tag.
func (l *lexer) tagEnd() (token, bool) {
	at, rest := l.pos, l.src[l.pos:]
	if l.brackets > 0 {
		return token{}, false
	}
	for _, mark := range []string{"}}", "%}"} {
		for _, sign := range []string{"", "-", "+"} {
			if strings.HasPrefix(rest, sign+mark) && (sign != "+" || mark == "%}") {
				l.pos += len(sign) + 2
				l.strip = sign == "-"
				return token{ending, mark, at}, true
			}
		}
	}
	return token{}, false
}

// number reads digits, a fraction and an exponent.
func (l *lexer) number() token {
	at := l.pos
	digits := func() bool {
		from := l.pos
		for l.pos < len(l.src) && isDigit(l.src[l.pos]) {
			l.pos++
		}
		return l.pos > from
	}
	digits()
	if at > 0 && l.src[at-1] == '.' {
		return token{num, l.src[at:l.pos], at}
	}
	if l.pos+1 < len(l.src) && l.src[l.pos] == '.' && isDigit(l.src[l.pos+1]) {
		l.pos++
		digits()
	}
	if l.pos < len(l.src) && (l.src[l.pos] == 'e' || l.src[l.pos] == 'E') {
		back := l.pos
		l.pos++
		if l.pos < len(l.src) && (l.src[l.pos] == '+' || l.src[l.pos] == '-') {
			l.pos++
		}
		if !digits() {
			l.pos = back
		}
	}
	text := l.src[at:l.pos]
	if len(text) > 1 && text[0] == '0' && isDigits(text) || l.pos < len(l.src) && isLetter(l.src[l.pos]) {
		l.failAt(at, "a number is not understood")
	}
	return token{num, text, at}
}

// quoted reads a text in quotes.
func (l *lexer) quoted(mark byte) token {
	at := l.pos
	for end := at + 1; end < len(l.src); end++ {
		switch l.src[end] {
		case '\\':
			end++
		case mark:
			l.pos = end + 1
			return token{str, unescape(newlines(l.src[at+1 : end])), at}
		}
	}
	l.fail("a text has no closing quote")
	return token{}
}

// unescape replaces escape sequences as Python does. It keeps those that Python does not
// know.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		i := strings.IndexByte(s, '\\')
		if i < 0 || i+1 == len(s) {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		c := s[i+1]
		s = s[i+2:]
		const known, meant = "\\'\"abfnrtv", "\\'\"\a\b\f\n\r\t\v"
		if at := strings.IndexByte(known, c); at >= 0 {
			b.WriteByte(meant[at])
			continue
		}
		digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		code, err := strconv.ParseUint(s[:min(digits, len(s))], 16, 32)
		switch {
		case c == '\n':
		case digits > 0 && len(s) >= digits && err == nil && code <= utf8.MaxRune:
			b.WriteRune(rune(code))
			s = s[digits:]
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String()
}

// following reports whether the next token is a single character.
func (l *lexer) following(c string) bool {
	rest := strings.TrimLeft(l.src[l.pos:], " \t\r\n")
	return strings.HasPrefix(rest, c) && !strings.HasPrefix(rest, c+c)
}

func isLetter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isDigits reports whether a text consists of digits.
func isDigits(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}
