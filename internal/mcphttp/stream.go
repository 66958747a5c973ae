package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// Stream is the stream of a subscriptions/listen request from 2026-07-28 on. It carries
// notifications that the SDK does not know, between those of the SDK.
type Stream struct{ reply *replyWriter }

// streamKey is the context key of a Stream.
type streamKey struct{}

// StreamOf returns the stream of a request; nil if it has none.
func StreamOf(ctx context.Context) *Stream {
	s, _ := ctx.Value(streamKey{}).(*Stream)
	return s
}

// Request returns the request, as the client sent it.
func (s *Stream) Request() []byte { return s.reply.request.body }

// Rewrite changes the first message of the stream, which acknowledges the request. It must be
// called before the SDK writes it.
func (s *Stream) Rewrite(fn func(message []byte) []byte) {
	s.reply.mu.Lock()
	defer s.reply.mu.Unlock()
	s.reply.rewrite = fn
}

// Send writes a message. It fails before the first message of the SDK and after the last one.
func (s *Stream) Send(message []byte) error {
	w := s.reply
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.decided || w.finished || w.refused != 0 || !w.contentIs(streamType) {
		return errEnded
	}
	if _, err := w.deadlineWriter.Write(event(message)); err != nil {
		return err
	}
	return w.deadlineWriter.FlushError()
}

// Events is a response that is a stream of messages, to a request that the SDK does not answer. It
// stays open for long, so it gets fewer comments than a stream whose client waits for an answer.
type Events struct {
	mu    sync.Mutex
	w     http.ResponseWriter
	alive *time.Timer // sends a comment now and then; nil before the first message
	ended bool
}

// NewEvents begins a stream. The caller must call End before its handler returns: nothing may be
// written afterwards.
func NewEvents(w http.ResponseWriter) *Events {
	h := w.Header()
	h["Content-Type"] = []string{streamType}
	h["Cache-Control"] = []string{"no-cache, no-transform"}
	h["Connection"] = []string{"keep-alive"}
	return &Events{w: w}
}

// comment keeps the connection open while there is nothing to send.
func (s *Events) comment() { s.write([]byte(comment)) }

// Send sends a message. It fails if the client is gone, and after End.
func (s *Events) Send(message []byte) error { return s.write(event(message)) }

func (s *Events) write(data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errEnded
	}
	if _, err := s.w.Write(data); err != nil {
		return err
	}
	if err := http.NewResponseController(s.w).Flush(); err != nil {
		return err
	}
	if s.alive == nil {
		s.alive = time.AfterFunc(keepAliveEvery, s.comment)
	} else {
		s.alive.Reset(keepAliveEvery)
	}
	return nil
}

// End ends the stream. Nothing is written afterwards.
func (s *Events) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.alive != nil {
		s.alive.Stop()
	}
}

var errEnded = errors.New("the stream is not open")

// event returns the event of a message in one line.
func event(message []byte) []byte {
	return append(append([]byte(messageEvent+eventData), message...), "\n\n"...)
}

// rewritten returns an event with the message that rewrite makes of its own, once. It is called
// with mu held.
func (w *replyWriter) rewritten(p []byte) []byte {
	message, ok := bytes.CutPrefix(p, []byte(messageEvent+eventData))
	if !ok || w.rewrite == nil {
		return p
	}
	fn := w.rewrite
	w.rewrite = nil
	return event(fn(bytes.TrimSpace(message)))
}
