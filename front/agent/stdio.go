package agent

import (
	"context"
	"errors"
	"io"

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
	if err := session.Wait(); ctx.Err() == nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
