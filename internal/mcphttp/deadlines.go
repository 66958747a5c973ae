package mcphttp

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// WriteChunk is how many bytes of a response a client must read within one deadline.
const WriteChunk = 32 << 10

// Deadlines bound how long a client may take. A client that stalls is disconnected
// and keeps nobody else waiting.
type Deadlines struct {
	// Request is for sending a whole request.
	Request time.Duration
	// Response is for reading one chunk of a response.
	Response time.Duration
}

// DefaultDeadlines suit slow networks.
func DefaultDeadlines() Deadlines {
	return Deadlines{Request: 30 * time.Second, Response: 10 * time.Second}
}

// apply sets the deadline of a request's body, and returns a writer with the one of
// the response.
func (d Deadlines) apply(w http.ResponseWriter, r *http.Request) *deadlineWriter {
	control := http.NewResponseController(w)
	if r.Method == http.MethodPost {
		control.SetReadDeadline(time.Now().Add(d.Request))
		r.Body = &deadlineBody{r.Body, control}
	}
	return &deadlineWriter{w, control, d.Response}
}

// deadlineBody lifts the read deadline when the body has been read: the connection
// must not look broken while the client waits for its response. A body that never
// ends keeps its deadline.
type deadlineBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *deadlineBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// deadlineWriter sets a write deadline for each chunk of a response.
type deadlineWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration
}

func (w *deadlineWriter) Write(p []byte) (written int, err error) {
	defer w.control.SetWriteDeadline(time.Time{})
	for {
		chunk := p[written:min(len(p), written+WriteChunk)]
		w.control.SetWriteDeadline(time.Now().Add(w.limit))
		n, err := w.ResponseWriter.Write(chunk)
		written += n
		if err != nil || written >= len(p) {
			return written, err
		}
	}
}

// FlushError implements flushing for http.ResponseController.
func (w *deadlineWriter) FlushError() error {
	w.control.SetWriteDeadline(time.Now().Add(w.limit))
	defer w.control.SetWriteDeadline(time.Time{})
	return w.control.Flush()
}
