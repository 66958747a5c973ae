package transport_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// flood is a peer that never stops sending.
type flood struct{ line string }

func (f flood) Read(p []byte) (int, error) {
	n := 0
	for n+len(f.line) <= len(p) {
		n += copy(p[n:], f.line)
	}
	return n, nil
}

func TestLinesRate(t *testing.T) {
	for name, test := range map[string]struct {
		line  string
		lines int // limit per second
	}{
		"short lines": {"ab\n", 1 << 20 / (transport.LineCost + 3)},
		"long lines":  {strings.Repeat("x", 199) + "\n", 1 << 20 / (transport.LineCost + 200)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lines := transport.NewLines(flood{test.line}, transport.Limits{Line: 1024, Rate: 1 << 20, Burst: 1 << 10})
				start := time.Now()
				n := 0
				for ; time.Since(start) < 10*time.Second; n++ {
					if _, err := lines.Next(); err != nil {
						t.Fatal(err)
					}
				}
				if limit := test.lines * 10; n > limit+limit/50 || n < limit/2 {
					t.Errorf("%d lines in 10 s, want about %d and not more", n, limit)
				}
			})
		})
	}
}

func TestLinesFreeMemory(t *testing.T) {
	in := strings.Repeat("x", 100<<10) + "\n"
	lines := transport.NewLines(io.MultiReader(strings.NewReader(in), strings.NewReader("short\n")), transport.DefaultLimits())
	if line, err := lines.Next(); err != nil || len(line) != 100<<10 {
		t.Fatalf("%d bytes, %v", len(line), err)
	}
	if line, err := lines.Next(); err != nil || string(line) != "short" {
		t.Fatalf("%q, %v", line, err)
	}
	if n := cap(lines.Rest()); n > 1024 {
		t.Errorf("an idle reader holds %d bytes", n)
	}
}

func TestLinesKeepPartialLine(t *testing.T) {
	slow := io.MultiReader(strings.NewReader("ab"), iotest.TimeoutReader(strings.NewReader("cd\n")))
	lines := transport.NewLines(iotest.OneByteReader(slow), transport.DefaultLimits())
	var line []byte
	err := iotest.ErrTimeout
	for errors.Is(err, iotest.ErrTimeout) {
		line, err = lines.Next()
	}
	if err != nil || string(line) != "abcd" {
		t.Errorf("%q, %v", line, err)
	}
}

// FuzzLines compares the reader with bytes.Split, with reads of any size.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\n\rc"), byte(1))
	f.Add([]byte("0123456789abcdefg\nok\n"), byte(3))
	f.Add([]byte("0123456789abcdef\nok\n"), byte(16))
	f.Add([]byte("\xff\x00{\"id\":1}\n0123456789abcdef0123456789abcdef\n"), byte(255))
	const limit = 16
	f.Fuzz(func(t *testing.T, data []byte, size byte) {
		var want []string
		parts := bytes.Split(data, []byte("\n"))
		ended, rest := parts[:len(parts)-1], parts[len(parts)-1]
		for _, line := range ended {
			switch trimmed := bytes.TrimSuffix(line, []byte("\r")); {
			case len(line) > limit:
				want = append(want, "!")
			case len(trimmed) > 0:
				want = append(want, string(trimmed))
			}
		}
		lines := transport.NewLines(pieces{bytes.NewReader(data), int(size)%32 + 1}, transport.Limits{Line: limit, Rate: 1 << 30, Burst: 1 << 30})
		var got []string
		for {
			line, err := lines.Next()
			if errors.Is(err, transport.ErrTooLong) {
				got = append(got, "!")
				continue
			}
			if err != nil {
				break
			}
			got = append(got, string(line))
		}
		if len(rest) > limit {
			want = append(want, "!") // reported before its end
		}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// pieces reads at most n bytes at once.
type pieces struct {
	r io.Reader
	n int
}

func (p pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(p.n, len(b))]) }
