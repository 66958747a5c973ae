package api

import (
	"context"
	"net"
)

// SetDial replaces how a client connects.
func (c *Client) SetDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	c.dial = dial
}

// SetBacklog limits the bytes that may wait to be handled.
func (c *Client) SetBacklog(n int) { c.backlog = n }

// Limits that tests check.
const (
	MaxMessage = maxMessage
	MaxRequest = maxRequest
	MaxPending = maxPending
	RetryMax   = retryMax
	PingAfter  = pingAfter
	PongTime   = pongTime
	StableTime = stableTime
	AskEvery   = askEvery
	AskTime    = askTime
)
