// Package logging formats the log of a gateway: for people on a terminal, as JSON for
// services that collect it.
//
//	terminal   15:04:05 WARN  robot is offline err="connection refused"
//	service    {"time":"2026-01-31T15:04:05Z","level":"WARN","msg":"robot is offline",…}
package logging

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// New returns a logger that writes records of a level and above, without secrets.
func New(w io.Writer, terminal bool, level slog.Level) *slog.Logger {
	if terminal {
		return slog.New(ferrule.MaskLog(&human{w: w, level: level, mu: &sync.Mutex{}}))
	}
	return slog.New(ferrule.MaskLog(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})))
}

// File returns a logger for a log file that people read.
func File(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(ferrule.MaskLog(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})))
}

// human writes one line per record: time, level, text and attributes.
type human struct {
	w     io.Writer
	level slog.Level
	mu    *sync.Mutex // serializes writes
	attrs []byte      // formatted
	group string      // prefix of keys
}

// Enabled implements slog.Handler.
func (h *human) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// Handle implements slog.Handler.
func (h *human) Handle(_ context.Context, r slog.Record) error {
	var b bytes.Buffer
	if !r.Time.IsZero() {
		b.WriteString(r.Time.Local().Format("15:04:05 "))
	}
	fmt.Fprintf(&b, "%-5s %s", r.Level, clean(r.Message))
	b.Write(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		appendAttr(&b, h.group, a)
		return true
	})
	b.WriteByte('\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := h.w.Write(b.Bytes())
	return err
}

// WithAttrs implements slog.Handler.
func (h *human) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	b := bytes.NewBuffer(bytes.Clone(h.attrs))
	for _, a := range attrs {
		appendAttr(b, h.group, a)
	}
	next.attrs = b.Bytes()
	return &next
}

// WithGroup implements slog.Handler.
func (h *human) WithGroup(name string) slog.Handler {
	next := *h
	if name != "" {
		next.group += name + "."
	}
	return &next
}

// appendAttr appends an attribute. A value that is not one plain word is quoted.
func appendAttr(b *bytes.Buffer, group string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, inner := range v.Group() {
			appendAttr(b, group, inner)
		}
		return
	}
	if a.Key == "" {
		return
	}
	text := clean(v.String())
	if text == "" || strings.ContainsAny(text, " \"=") {
		text = strconv.Quote(text)
	}
	fmt.Fprintf(b, " %s%s=%s", group, a.Key, text)
}

// clean removes what could control a terminal: messages may contain text of devices.
func clean(text string) string { return ferrule.OneLine(ferrule.Clean(text, maxText), maxText) }

// maxText limits a message and a value, in bytes.
const maxText = 2000
