package agent

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule"
)

// Stdio serves one agent on a pair of streams, until it goes away or ctx ends. A
// stream that blocks a thread while nothing comes can stop the whole process: see
// Standard.
func (f *Front) Stdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	who := ferrule.Principal{Role: ferrule.Agent, Name: "stdio"}
	transport := &mcp.IOTransport{Reader: in, Writer: out, MaxLineLength: maxBody}
	session, err := f.viewAt("").server.Connect(context.WithValue(ctx, callerKey{}, who), transport, nil)
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
