package xiaozhi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"
)

// Lines returns a Conn with one message per line. Audio is dropped, because lines cannot carry
// it.
func Lines(rw io.ReadWriteCloser) Conn {
	return lineConn{bufio.NewReaderSize(rw, maxMessage), rw}
}

type lineConn struct {
	in  *bufio.Reader
	out io.WriteCloser
}

func (c lineConn) Close() error { return c.out.Close() }

// Recv returns the next line. It ignores ctx; closing the stream ends it.
func (c lineConn) Recv(context.Context) (Message, error) {
	line, err := c.in.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) { // drop a line that is too long
		line = nil
		_, err = c.in.ReadSlice('\n')
	}
	return Message{Data: slices.Clone(line)}, asEOF(err)
}

func (c lineConn) Send(_ context.Context, m Message) error {
	switch {
	case m.Binary:
		return nil
	case len(m.Data) > maxFrame: // as on a WebSocket
		return ErrTooLong
	}
	_, err := c.out.Write(append(slices.Clone(m.Data), '\n'))
	return err
}
