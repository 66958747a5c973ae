package server

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Stdio serves one agent on a pair of streams, until it goes away or ctx ends. A
// stream that blocks a thread while nothing comes can stop the whole process: see
// Standard.
func (f *Server) Stdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return f.Serve(ctx, ferrule.Principal{Role: ferrule.Agent, Name: "stdio"}, 0, in, out)
}

// Serve serves one agent as who on a pair of streams with a message in each line,
// until in ends, with which its calls end, or ctx does. The entries of a list take at
// most page bytes at once, and are as brief as they can be; 0 does not bound them.
func (f *Server) Serve(ctx context.Context, who ferrule.Principal, page int, in io.ReadCloser, out io.WriteCloser) error {
	transport := &mcp.IOTransport{Reader: in, Writer: out, MaxLineLength: maxBody}
	about := context.WithValue(context.WithValue(ctx, callerKey{}, who), pageKey{}, page)
	session, err := f.viewAt("").server.Connect(about, transport, nil)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { session.Close() })
	defer stop()
	if err := session.Wait(); ctx.Err() == nil && !left(err) {
		return err
	}
	return nil
}

// left tells whether an agent has gone away: that it reads no more is known by an
// error, when something was just being told.
func left(err error) bool {
	for _, gone := range []error{io.EOF, io.ErrClosedPipe, os.ErrClosed, syscall.EPIPE} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}
