package main

import (
	"slices"
	"strconv"
	"strings"
	"sync"
)

// screen is what a terminal shows of what is written to it, as far as we write it.
type screen struct {
	mu            sync.Mutex
	width, height int
	rows          [][]rune
	row, column   int
	cut           bool   // what does not fit on a line is lost, and does not go on below
	open          []byte // an escape sequence, or a character, of which more is to come
	scrolled      []string
	styled        bool   // something was in colour
	unknown       string // what we have never written
}

func newScreen(width, height int) *screen {
	return &screen{width: width, height: height, rows: make([][]rune, height)}
}

// Write implements io.Writer.
func (s *screen) Write(data []byte) (int, error) {
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

// decode is the first character of a text; its size is 0 if more is to come.
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

func (s *screen) put(r rune) {
	switch r {
	case '\r':
		s.column = 0
		return
	case '\n': // the line discipline of a terminal makes both of it
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

func (s *screen) down() {
	if s.row++; s.row == s.height {
		s.scrolled = append(s.scrolled, s.line(0))
		s.rows = append(s.rows[1:], nil)
		s.row--
	}
}

// command does what an escape sequence asks for.
func (s *screen) command(argument string, what byte) {
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

func (s *screen) line(n int) string { return strings.TrimRight(string(s.rows[n]), " ") }

// text is all that is shown, without empty lines at the end.
func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for i := range s.rows {
		lines = append(lines, s.line(i))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// history is what was scrolled away, whether something was in colour, what we have never
// written before, and in which line the cursor is.
func (s *screen) history() (scrolled []string, styled bool, unknown string, row int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.scrolled), s.styled, s.unknown, s.row
}

// size is how wide and high it is.
func (s *screen) size() (width, height int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.width, s.height
}

// narrow makes it less wide.
func (s *screen) narrow(width int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.width = width
}
