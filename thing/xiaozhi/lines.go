package xiaozhi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"slices"
)

// maxLine is the longest message that is read.
const maxLine = 64 << 10

// Lines carries one message a line. Lines cannot carry sound: it is dropped.
func Lines(rw io.ReadWriteCloser) Conn {
	return lineConn{bufio.NewReaderSize(rw, maxLine), rw}
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
	if errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed) {
		err = io.EOF
	}
	return Message{Data: slices.Clone(line)}, err
}

func (c lineConn) Send(_ context.Context, m Message) error {
	if m.Binary {
		return nil
	}
	_, err := c.out.Write(append(slices.Clone(m.Data), '\n'))
	return err
}
