package mqttclient

import "time"

// SetKeepAlive changes the keep-alive time of a client that does not run yet.
func (c *Client) SetKeepAlive(d time.Duration) { c.keepAlive = d }
