package terminal

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
)

// maxLine limits what a person types at a time, in bytes.
const maxLine = 64 << 10

// maxAhead limits what is read ahead, in lines.
const maxAhead = 64

// ErrLine is returned for a line that is too long.
var ErrLine = errors.New("the line is too long")

// Reader reads lines that a person types. Unlike ReadLine, it loses nothing that was typed
// after a wait ended early. It is safe for concurrent use; only one caller gets a line.
type Reader struct {
	In io.Reader

	start sync.Once
	lines chan readLine
}

type readLine struct {
	text string
	err  error
}

// Line returns the next line without its end. The error is io.EOF at the end of the
// input, ErrLine, or that of ctx.
func (r *Reader) Line(ctx context.Context) (string, error) {
	r.start.Do(func() {
		r.lines = make(chan readLine, maxAhead)
		go r.read()
	})
	if err := ctx.Err(); err != nil {
		return "", err
	}
	select {
	case line := <-r.lines:
		return line.text, line.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// Discard drops what was typed and no caller of Line got, on a terminal also a line without
// its end: it was typed for something else than what is shown next. It must not be called
// concurrently with Line.
func (r *Reader) Discard() {
	if f, ok := r.In.(*os.File); ok {
		discard(f)
	}
	for range cap(r.lines) {
		select {
		case <-r.lines:
		default:
			return
		}
	}
}

// read reads lines ahead. It goes on after the end of the input, because a terminal can
// be read after Ctrl-D.
func (r *Reader) read() {
	in := bufio.NewReaderSize(r.In, 4096)
	for {
		text, long, err := line(in)
		switch {
		case err != nil && text == "":
			r.lines <- readLine{err: io.EOF}
		case long:
			r.lines <- readLine{err: ErrLine}
		default:
			r.lines <- readLine{text: strings.TrimRight(text, "\r\n")}
		}
	}
}

// line reads one line, and keeps at most maxLine bytes of it.
func line(in *bufio.Reader) (text string, long bool, err error) {
	var b strings.Builder
	for {
		part, err := in.ReadSlice('\n')
		if b.Len()+len(part) > maxLine {
			long = true
		} else {
			b.Write(part)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return b.String(), long, err
		}
	}
}
