package transporttest

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// RunLines checks a transport whose links carry lines over a stream of bytes: it runs
// Run and tests of line splitting. Its links must use transport.DefaultLimits.
func RunLines(t *testing.T, open func(t *testing.T) (transport.Link, io.ReadWriteCloser)) {
	Run(t, func(t *testing.T) (transport.Link, Peer) {
		link, far := open(t)
		return link, linePeer{far, transport.NewLines(far, transport.DefaultLimits())}
	})
	long := strings.Repeat("x", transport.DefaultLimits().Line+10)
	for name, test := range map[string]struct {
		writes []string
		want   []string // "!" stands for ErrTooLong
	}{
		"both line ends":                {[]string{"a\nb\r\nc\n"}, []string{"a", "b", "c"}},
		"empty lines are dropped":       {[]string{"\n\r\n\n", "a\n\n"}, []string{"a"}},
		"a line in pieces":              {[]string{"a", "b", "c\r", "\n", "d\n"}, []string{"abc", "d"}},
		"bytes that are not text":       {[]string{"\x00\xff\x1b[31m\xfe\n"}, []string{"\x00\xff\x1b[31m\xfe"}},
		"a bare CR does not end a line": {[]string{"a\rb\n"}, []string{"a\rb"}},
		"a line that is too long":       {[]string{"a\n", long, "\nb\n"}, []string{"a", "!", "b"}},
		"a line that never ends":        {[]string{long, long, long}, []string{"!"}},
		"the longest line": {
			[]string{strings.Repeat("y", transport.DefaultLimits().Line) + "\n"},
			[]string{strings.Repeat("y", transport.DefaultLimits().Line)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			link, far := open(t)
			go func() {
				for _, w := range test.writes {
					io.WriteString(far, w)
				}
			}()
			var got []string
			for range test.want {
				m, err := link.Recv(withTimeout(t))
				switch {
				case errors.Is(err, transport.ErrTooLong):
					got = append(got, "!")
				case err != nil:
					t.Fatal(err)
				default:
					got = append(got, string(m.Data))
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %.80q, want %.80q", got, test.want)
			}
		})
	}
	t.Run("a line must not contain a line end", func(t *testing.T) {
		link, _ := open(t)
		if err := link.Send(withTimeout(t), message("a\nb")); !errors.Is(err, transport.ErrUnsent) {
			t.Errorf("Send returned %v, want ErrUnsent", err)
		}
	})
	t.Run("send appends one LF", func(t *testing.T) {
		link, far := open(t)
		go link.Send(withTimeout(t), message(`{"a":1}`))
		buf := make([]byte, 8)
		if _, err := io.ReadFull(far, buf); err != nil || !bytes.Equal(buf, []byte("{\"a\":1}\n")) {
			t.Errorf("the peer got %q, %v", buf, err)
		}
	})
}
