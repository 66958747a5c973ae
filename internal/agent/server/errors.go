package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime/debug"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// codes are the JSON-RPC codes of errors, for methods whose results cannot be errors.
// All others are internal errors.
var codes = map[ferrule.Code]int64{
	ferrule.NotFound: jsonrpc.CodeInvalidParams,
	ferrule.Invalid:  jsonrpc.CodeInvalidParams,
	ferrule.Refused:  jsonrpc.CodeInvalidParams, // the device does not have it
}

// requestError converts an error to the error of a request.
func requestError(e *ferrule.Error) error {
	code, ok := codes[e.Code]
	if !ok {
		code = jsonrpc.CodeInternalError
	}
	data, err := json.Marshal(e)
	if err != nil {
		data = nil
	}
	return &jsonrpc.Error{Code: code, Message: e.Explain(), Data: data}
}

func badParams(message string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: message}
}

// noResource is the error for an unknown resource. The SDK's own error writes some URIs
// as invalid JSON, which would end the session.
func noResource(uri string) error {
	data, err := json.Marshal(map[string]string{"uri": uri})
	if err != nil {
		data = nil
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Resource not found", Data: data}
}

// recoverNotification is deferred around notifications: a panic loses one message.
func recoverNotification(log *slog.Logger) {
	if r := recover(); r != nil {
		log.Error("notification panicked\n"+string(debug.Stack()), "err", r)
	}
}

// quieter logs messages of the SDK two levels lower. To the SDK, an agent that
// disconnects is an error.
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
