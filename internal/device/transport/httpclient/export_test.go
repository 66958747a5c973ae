package httpclient

import "github.com/ferrulehq/ferrule/internal/device/transport"

// Idle reports whether a link keeps a connection for the next request, and nothing has
// arrived on it.
func Idle(l transport.Link) bool {
	i := &l.(*link).tripper.idle
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.conn != nil && i.conn.unused()
}
