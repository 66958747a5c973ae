package mqttclient

import (
	"log/slog"
	"net"
	"time"
)

// SetKeepAlive changes the keep-alive time of a client that does not run yet.
func (c *Client) SetKeepAlive(d time.Duration) { c.keepAlive = d }

// Attach logs in on a socket, with MQTT 5 or 3.1.1.
func Attach(socket net.Conn, version byte, log *slog.Logger) (*Conn, error) {
	client := New(DefaultConfig(), log)
	if version == version4 {
		return client.attach(socket, codec4{}, "")
	}
	return client.attach(socket, codec5{}, "")
}

// Detach ends a connection and waits for its goroutines.
func (c *Conn) Detach() { c.leave(false) }
