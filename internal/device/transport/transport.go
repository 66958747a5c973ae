// Package transport is the contract of a medium: how peers are seen, how a pipe to
// one of them is opened, and what travels in it. It knows bytes and no grammar.
//
//	Connector ──Watch──▶ Sighting ──Open──▶ Link ◀──Send, Recv──▶ Message
//
// One folder below holds one medium. A medium reports what it sees and returns
// errors; it never retries and never greets: the dock does. Every medium passes
// the suite in wiretest.
package transport

import (
	"context"
	"errors"
)

// Message is one unit on the wire: its bytes, and the channel that it came on or goes to.
type Message struct {
	// Channel is text or binary on a WebSocket, the role of the topic on MQTT,
	// and empty on a line. In a trace of HTTP it is the method or the status.
	Channel string
	// Data is the message without its framing: a line comes without its end.
	Data []byte
}

// Link is a live, ordered pipe of Messages to one peer.
//
// One goroutine at a time may call Recv, one at a time Send; the two do not
// disturb each other. Close and Info may be called by anyone at any time.
type Link interface {
	// Recv returns the next Message, which belongs to the caller. It ends with
	// ctx's error when ctx does, and the link stays as it was. ErrTooLong means
	// that one message was dropped for its length, and Recv may be called
	// again. ErrClosed means that Close was called here; any other error means
	// that the link has broken.
	Recv(ctx context.Context) (Message, error)

	// Send writes one whole Message in a single write, or fails: when ctx's
	// deadline passes, and within a few seconds at the latest. An error that is
	// ErrUnsent promises that no byte of it left. After any other error bytes
	// may have gone out, and the link is closed. Data is not kept.
	Send(ctx context.Context, m Message) error

	// Close ends the link and whatever waits on it. It may be called twice, and
	// the peer is free when any call of it returns.
	Close() error

	// Info tells what is known about the pipe. It never changes.
	Info() Info
}

// Info is what a medium knows about one of its links.
type Info struct {
	Transport string
	Address   string
	// BitRate is bits a second on the line, ten of which make a byte on a
	// serial port; zero where the medium is not the bottleneck.
	BitRate int
	// Restarts tells that opening the link may have restarted the peer.
	Restarts bool
	// SafeWrite is the longest message that is sure to reach the peer in one
	// piece; zero where there is no such limit.
	SafeWrite int
}

// The errors of a Link that its user has to tell apart.
var (
	ErrUnsent  = errors.New("nothing was sent")
	ErrTooLong = errors.New("message too long")
	ErrClosed  = errors.New("link closed")
)

// Sighting is a peer that is in reach now. It is not yet a device.
type Sighting struct {
	// Address tells the hardware apart from all other.
	Address string
	// Local tells that it does so on this machine only: a socket, a path, a
	// loopback address. What has the same address elsewhere is another peer.
	Local bool
	// Instance grows when the same address comes anew: replugged, redialled.
	Instance uint64
	// DialledIn tells that the peer came by itself, with this Instance, and waits
	// to be answered: opening it disturbs nothing, and it has left whatever it was
	// connected to before.
	Inbound bool
	// Medium is the name of the medium, for people.
	Transport string
	// Name is what the owner called the peer; empty if they did not.
	Name string
	// Adopted tells that the owner asked for this peer; without it the peer
	// was merely found.
	Adopted bool
	// Absent is why a peer that the owner asked for is not there. Such a one is
	// expected, and cannot be opened. It is empty for most.
	Absent string
	// Place is where the peer is plugged in, if that is known: what has another
	// address there may be the same board, being flashed.
	Location string
	// Shy is why the peer is not opened before its owner has adopted it: that
	// may disturb what is there. It is empty for most.
	AdoptFirst string
	// Dialects names the grammars that are worth trying, best first.
	Protocols []string
	// Open returns a Link to the peer. It is called by one goroutine at a
	// time, and again only after the last Link was closed.
	Open func(ctx context.Context) (Link, error)
}

// Connector watches one medium.
type Connector interface {
	// Watch calls update with the whole picture of one group (a port, a
	// listener's shard, a broker) whenever it may have changed, and lets the
	// owner find the difference. It calls from one goroutine at a time. Watch
	// returns nil when ctx ends, after all that it started, and an error when
	// the medium cannot be watched any more.
	Watch(ctx context.Context, update func(group string, all []Sighting)) error
}
