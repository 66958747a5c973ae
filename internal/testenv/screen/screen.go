// Package screen emulates a terminal: it shows what a program has written to it. It knows
// the escape sequences that Ferrule uses, and reports all others.
package screen

import (
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Screen is a terminal. It is safe for concurrent use.
type Screen struct {
	mu            sync.Mutex
	width, height int
	rows          [][]rune
	row, column   int
	cut           bool   // long lines are cut instead of wrapped
	open          []byte // the beginning of an escape sequence or character
	scrolled      []string
	styled        bool   // something was colored
	unknown       string // escape sequences that are not known
}

// New returns an empty screen.
func New(width, height int) *Screen {
	return &Screen{width: width, height: height, rows: make([][]rune, height)}
}

// Write implements io.Writer.
func (s *Screen) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := slices.Concat(s.open, data)
	s.open = nil
	for len(text) > 0 {
		if text[0] == '\x1b' {
			end := slices.IndexFunc(text[1:], func(c byte) bool { return c >= '@' && c <= '~' && c != '[' })
			if end < 0 {
				s.open = text
				break
			}
			s.command(string(text[2:end+1]), text[end+1])
			text = text[end+2:]
			continue
		}
		r, size := decode(text)
		if size == 0 {
			s.open = text
			break
		}
		s.put(r)
		text = text[size:]
	}
	return len(data), nil
}

// decode returns the first character of a text; its size is 0 if it is incomplete.
func decode(text []byte) (r rune, size int) {
	size = 1
	switch c := text[0]; {
	case c >= 0xf0:
		size = 4
	case c >= 0xe0:
		size = 3
	case c >= 0xc0:
		size = 2
	}
	if len(text) < size {
		return 0, 0
	}
	return []rune(string(text[:size]))[0], size
}

func (s *Screen) put(r rune) {
	switch r {
	case '\r':
		s.column = 0
		return
	case '\n': // a terminal's line discipline adds the \r
		s.column = 0
		s.down()
		return
	}
	if s.column >= s.width {
		if s.cut {
			return
		}
		s.column = 0
		s.down()
	}
	line := s.rows[s.row]
	for len(line) <= s.column {
		line = append(line, ' ')
	}
	line[s.column] = r
	s.rows[s.row] = line
	s.column++
}

func (s *Screen) down() {
	if s.row++; s.row == s.height {
		s.scrolled = append(s.scrolled, s.line(0))
		s.rows = append(s.rows[1:], nil)
		s.row--
	}
}

// command runs an escape sequence.
func (s *Screen) command(argument string, what byte) {
	n, err := strconv.Atoi(argument)
	switch {
	case what == 'A' && err == nil && n > 0:
		s.row = max(0, s.row-n)
	case what == 'K' && argument == "":
		s.rows[s.row] = s.rows[s.row][:min(s.column, len(s.rows[s.row]))]
	case what == 'J' && argument == "":
		s.rows[s.row] = s.rows[s.row][:min(s.column, len(s.rows[s.row]))]
		clear(s.rows[s.row+1:])
	case what == 'm':
		s.styled = true
	case argument == "?7":
		s.cut = what == 'l'
	default:
		s.unknown += argument + string(what) + " "
	}
}

func (s *Screen) line(n int) string { return strings.TrimRight(string(s.rows[n]), " ") }

// Text returns what is shown, without empty lines at the end.
func (s *Screen) Text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for i := range s.rows {
		lines = append(lines, s.line(i))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// History returns the lines that were scrolled away, whether something was colored, the
// unknown escape sequences, and the row of the cursor.
func (s *Screen) History() (scrolled []string, styled bool, unknown string, row int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.scrolled), s.styled, s.unknown, s.row
}

// Size returns the width and height.
func (s *Screen) Size() (width, height int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.width, s.height
}

// SetWidth changes the width.
func (s *Screen) SetWidth(width int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.width = width
}
