package server

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// Stdio serves one agent on a pair of streams, until it disconnects or ctx ends. Reading
// must not block a thread: see Standard.
func (s *Server) Stdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return s.Serve(ctx, ferrule.Principal{Role: ferrule.Agent, Auth: ferrule.AuthStdio, User: identity.CurrentUser()}, 0, in, out)
}

// MaxLine is the limit of a line that Serve reads.
const MaxLine = mcphttp.MaxBody

// PlainMessage returns the method of a request or notification with nothing unusual in it, which
// Serve can read. The message must be valid JSON whose members have names of their own.
func PlainMessage(message []byte) (method string, ok bool) {
	plain := !mayBeDeep(message)
	var rpc []byte
	for name, value := range strictjson.Members(message) {
		switch string(name) {
		case "jsonrpc":
			rpc = value
		case "id":
			plain = plain && plainID(value)
		case "method":
			if plain = plain && plainString(value); plain {
				method = string(value[1 : len(value)-1])
			}
		case "params":
			plain = plain && value[0] == '{'
		default:
			plain = false
		}
	}
	return method, plain && method != "" && string(rpc) == `"2.0"`
}

// CheckMessage returns an error for a message that would end the session in Serve.
func CheckMessage(line []byte) error {
	_, err := jsonrpc.DecodeMessage(line)
	return err
}

// Serve serves one agent as a principal, on a pair of streams with one message per
// line, until in or ctx ends. Its calls end with it. If the principal has no name, the
// agent names itself. If page is greater than 0, lists are brief and have at most page
// bytes per page.
func (s *Server) Serve(ctx context.Context, who ferrule.Principal, page int, in io.ReadCloser, out io.WriteCloser) error {
	both := newLines(in, out)
	transport := &mcp.IOTransport{Reader: lineReader{both}, Writer: lineWriter{both}, MaxLineLength: MaxLine}
	name := streamPrefix + rand.Text()
	defer s.sessionEnded(name)
	defer s.agents.gone(name)
	about := context.WithValue(context.WithValue(context.WithValue(ctx, callerKey{}, who), pageKey{}, page), sessionKey{}, name)
	about = context.WithValue(about, linesKey{}, both)
	v := s.viewAt("")
	var connected atomic.Pointer[mcp.ServerSession]
	both.direct = func(line []byte) bool {
		session := connected.Load()
		return session != nil && session.InitializeParams() != nil && both.serveDirect(about, v, session, line)
	}
	session, err := v.sdk.Connect(about, transport, nil)
	if err != nil {
		return err
	}
	connected.Store(session)
	stop := context.AfterFunc(ctx, func() { session.Close() })
	defer stop()
	if err := session.Wait(); ctx.Err() == nil && !disconnected(err) {
		return err
	}
	return nil
}

// disconnected reports whether an error means that the agent is gone. If it stops
// reading, writing fails first.
func disconnected(err error) bool {
	for _, gone := range []error{io.EOF, io.ErrClosedPipe, os.ErrClosed, syscall.EPIPE} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}
