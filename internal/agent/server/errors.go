package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime/debug"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// codes are how errors are told where MCP has no place for an outcome: when a
// resource is read, or a prompt got.
var codes = map[ferrule.Code]int64{
	ferrule.NotFound: jsonrpc.CodeInvalidParams,
	ferrule.Invalid:  jsonrpc.CodeInvalidParams,
	ferrule.Refused:  jsonrpc.CodeInvalidParams, // the device knows of no such thing
}

// requestError is an error as the answer to a request.
func requestError(e *ferrule.Error) error {
	code, ok := codes[e.Code]
	if !ok {
		code = jsonrpc.CodeInternalError
	}
	data, err := json.Marshal(e)
	if err != nil {
		data = nil
	}
	return &jsonrpc.Error{Code: code, Message: words(e), Data: data}
}

func badParams(message string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: message}
}

// noResource says that there is no such resource. The SDK has this error as well, but
// writes a URI with odd characters as no JSON has it, which would end the session.
func noResource(uri string) error {
	data, err := json.Marshal(map[string]string{"uri": uri})
	if err != nil {
		data = nil
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Resource not found", Data: data}
}

// survive is deferred by what tells agents something: if that panics, one agent is
// not told, and the gateway lives on.
func survive(log *slog.Logger) {
	if r := recover(); r != nil {
		log.Error("telling an agent panicked\n"+string(debug.Stack()), "err", r)
	}
}

// quieter logs what the SDK has to say two levels lower: that an agent went away
// is an error to it, and nothing to us.
type quieter struct{ slog.Handler }

func (q quieter) Enabled(ctx context.Context, level slog.Level) bool {
	return q.Handler.Enabled(ctx, level-8)
}

func (q quieter) Handle(ctx context.Context, r slog.Record) error {
	r.Level -= 8
	return q.Handler.Handle(ctx, r)
}

func (q quieter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quieter{q.Handler.WithAttrs(attrs)}
}

func (q quieter) WithGroup(name string) slog.Handler { return quieter{q.Handler.WithGroup(name)} }
