package jsonrpc

import (
	"context"
	"errors"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The errors of a call. Each says whether the call may have run:
//
//	before the first byte   Gone, Busy, TooLong, SendError with sent=false     no
//	the device answered     AnswerError with refused=true                      no
//	                        AnswerError with refused=false                     maybe
//	sent, and no answer     SendError with sent=true, WaitError, NoAnswer      maybe

// Gone is the error of a call after the link has ended.
func Gone(err error) *ferrule.Error {
	return ferrule.Errorf(ferrule.Offline, "the connection has ended: %w", err)
}

// Busy is the error of a call while another is under way.
func Busy(call *ferrule.Call) *ferrule.Error {
	return ferrule.Errorf(ferrule.Busy, "%s is busy with another call", call.Device)
}

// TooLong is the error of a call whose request the device would not accept whole.
func TooLong(call *ferrule.Call, size, limit int) *ferrule.Error {
	return ferrule.Errorf(ferrule.Invalid, "request is %d bytes, limit for %s is %d", size, call.Device, limit).
		WithHint("use shorter arguments")
}

// SendError is the error of a call whose request could not be sent. Sent says whether
// bytes of it may have left.
func SendError(ctx context.Context, call *ferrule.Call, err error, sent bool) *ferrule.Error {
	switch {
	case sent:
		return ferrule.Errorf(ferrule.Unanswered, "connection to %s broke while sending %s: %w", call.Device, call.Tool, err)
	case errors.Is(ctx.Err(), context.Canceled):
		return ferrule.Errorf(ferrule.Cancelled, "cancelled before %s was sent", call.Tool)
	case ctx.Err() != nil:
		return ferrule.Errorf(ferrule.Busy, "deadline passed before %s could be sent", call.Tool)
	}
	return ferrule.Errorf(ferrule.Offline, "%s is not reachable: %w", call.Device, err)
}

// WaitError is the error of a call that was sent, and whose ctx ended before the answer.
func WaitError(ctx context.Context, call *ferrule.Call) *ferrule.Error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ferrule.Errorf(ferrule.Cancelled, "cancelled while %s was running %s", call.Device, call.Tool).AfterSend()
	}
	return ferrule.Errorf(ferrule.Unanswered, "%s did not answer %s within %v", call.Device, call.Tool, call.Timeout)
}

// NoAnswer is the error of a call that was sent and will have no answer.
func NoAnswer(call *ferrule.Call, err error) *ferrule.Error {
	return ferrule.Errorf(ferrule.Unanswered, "%s did not answer %s: %w", call.Device, call.Tool, err)
}

// AnswerError is the error of a call that the device answered with an error. Refused
// says that the device did not try.
func AnswerError(call *ferrule.Call, err error, refused bool) *ferrule.Error {
	if refused {
		return ferrule.Errorf(ferrule.Refused, "%s refused %s: %w", call.Device, call.Tool, err)
	}
	return ferrule.Errorf(ferrule.Failed, "%s failed on %s: %w", call.Tool, call.Device, err)
}
