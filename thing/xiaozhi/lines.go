package xiaozhi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"
)

// Lines carries one message a line. Lines cannot carry sound: it is dropped.
func Lines(rw io.ReadWriteCloser) Conn {
	return lineConn{bufio.NewReaderSize(rw, maxMessage), rw}
}

type lineConn struct {
	in  *bufio.Reader
	out io.WriteCloser
}

func (c lineConn) Close() error { return c.out.Close() }

// Recv returns the next line. A context does not end it; closing the stream does.
func (c lineConn) Recv(context.Context) (Message, error) {
	line, err := c.in.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) { // too long, and dropped
		line = nil
		_, err = c.in.ReadSlice('\n')
	}
	return Message{Data: slices.Clone(line)}, endOf(err)
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
