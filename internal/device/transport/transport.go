// Package transport defines how bytes reach a device: how peers are found, how a link
// to a peer is opened, and what it carries. It knows nothing about protocols.
//
//	Connector --Watch--> Sighting --Open--> Link <--Send, Recv--> Message
//
// Each package below is one transport. A transport reports what it sees and returns
// errors. It neither retries nor greets a device: the dock does. Every transport
// passes the suite in transporttest.
package transport

import (
	"context"
	"errors"
)

// Message is one unit on a link: its bytes and its channel.
type Message struct {
	// Channel is text or binary on a WebSocket, the role of the topic on MQTT,
	// and empty on a line. In a trace of HTTP it is the method or the status.
	Channel string
	// Data is the message without its framing: a line has no line end.
	Data []byte
	// Retained reports that a broker had kept the message for later subscribers. It is
	// old: nobody knows how old, and it answers nothing.
	Retained bool
}

// Link is a live, ordered pipe of Messages to one peer.
//
// One goroutine at a time may call Recv, and one at a time Send; the two are
// independent. Close and Info may be called concurrently at any time.
type Link interface {
	// Recv returns the next Message, which belongs to the caller. When ctx ends,
	// Recv returns ctx's error and the link stays usable. ErrTooLong means that one
	// message was dropped for its length; Recv may be called again. ErrClosed means
	// that Close was called here. Any other error means that the link is broken.
	Recv(ctx context.Context) (Message, error)

	// Send writes one whole Message in a single write. It fails when ctx's deadline
	// passes, and after a few seconds at the latest. ErrUnsent promises that no byte
	// was sent. After any other error bytes may have been sent, and the link is
	// closed. Send does not keep Data.
	Send(ctx context.Context, m Message) error

	// Close closes the link and ends blocked calls. It may be called more than once.
	// When any call of it returns, the peer is free.
	Close() error

	// Info describes the link. It never changes.
	Info() Info
}

// Info describes a link.
type Info struct {
	Transport string
	Address   string
	// BitRate is the number of bits per second of a serial line, where a byte takes
	// ten bits; zero if the transport is not the bottleneck.
	BitRate int
	// Restarts reports that opening the link may have restarted the peer.
	Restarts bool
	// SafeWrite is the length of the longest message that surely reaches the peer
	// in one piece; zero means no limit.
	SafeWrite int
	// InitializeFirst reports that the peer receives nothing before one initialize
	// request of MCP, and only one for each link.
	InitializeFirst bool
}

// The errors of a Link that its user must distinguish.
var (
	ErrUnsent  = errors.New("nothing was sent")
	ErrTooLong = errors.New("message too long")
	ErrClosed  = errors.New("link closed")
)

// Undelivered is the error of Send if somebody between here and the peer says that the
// message went no further. The peer surely did not get it, and the link stays usable.
type Undelivered struct {
	// Denied reports that the sender lacks a permission. Otherwise nobody was there to
	// receive the message.
	Denied bool
	Reason string
}

func (u *Undelivered) Error() string { return u.Reason }

// Sighting is a peer that is in reach now. It is not yet a device.
type Sighting struct {
	// Address identifies the hardware.
	Address string
	// Local reports that Address is unique on this machine only: a path, a loopback
	// address. The same address elsewhere is another peer.
	Local bool
	// Instance grows when the same address appears again: replugged, reconnected.
	Instance uint64
	// Inbound reports that the peer connected by itself, with this Instance, and
	// waits for an answer. Opening it disturbs nothing, and it has left its previous
	// connection.
	Inbound bool
	// Transport is the name of the transport, for people.
	Transport string
	// Name is the name that the owner configured; empty if there is none.
	Name string
	// Title is what the peer calls itself; empty if it does not. If there is no Name, it
	// becomes the ID. Anybody can choose any.
	Title string
	// Claims are what the peer says about itself, such as its area. They help to find
	// it, and grant nothing.
	Claims map[string]string
	// Hub is the name of what the peer is behind, such as a broker; empty if it is reached
	// directly. One decision may be about all peers of one Kind behind a hub.
	Hub string
	// Attached reports that the peer is plugged into this machine: who can change it can
	// change this machine too.
	Attached bool
	// Adopted reports that the owner configured this peer or has a credential on
	// it. Otherwise it was discovered.
	Adopted bool
	// Sensor reports that the owner trusts this peer if nothing can be changed with it, which
	// is true as far as its connector knows. The dock checks that all of its tools read, in the
	// manifest that Open leads to. It means nothing if Adopted is set.
	Sensor bool
	// Absent is why a configured peer is missing. Such a peer is expected and cannot
	// be opened. It is empty for most.
	Absent string
	// Withdrawn reports that the owner has withdrawn the peer, for the reason in Absent. It is
	// reported once, before the peer is gone. Its tools are gone at once then: it is not
	// expected back in a moment.
	Withdrawn bool
	// Location is where the peer is plugged in, if known. Another address at the
	// same location may be the same board while it is flashed.
	Location string
	// AdoptFirst is why the peer is not opened before its owner adopts it: opening
	// may disturb it. It is empty for most.
	AdoptFirst string
	// Reached returns the network endpoint at which the last Link reached the peer; empty
	// if it did not. It is nil if there is no such thing.
	Reached func() string
	// Announced is set if an unverified announcement says where the peer is. Anybody on
	// the network can announce any peer anywhere.
	Announced *Announced
	// Doubted reports that the peer claims to be another one that is known. No decision about
	// others counts for it.
	Doubted bool
	// Protocols are the protocols to try, best first.
	Protocols []string
	// Open returns a Link to the peer. It is called by one goroutine at a time, and
	// again only after the previous Link was closed.
	Open func(ctx context.Context) (Link, error)
}

// Announced opens a peer at endpoints other than the announced one, so that a peer which
// is still where it was trusted is not replaced by one that claims its Address.
type Announced struct {
	// Endpoints returns where the peer is announced now; none if that is unknown.
	Endpoints func() []string
	// OpenAt is Open at an endpoint that Reached returned before.
	OpenAt func(ctx context.Context, endpoint string) (Link, error)
	// Accepts reports whether anything accepts connections at an endpoint.
	Accepts func(ctx context.Context, endpoint string) bool
}

// Connector watches one transport.
type Connector interface {
	// Watch calls update with all sightings of one group (a port, a listener's
	// shard, a broker) whenever they may have changed; the receiver compares. It
	// calls update from one goroutine at a time. Watch returns nil when ctx ends,
	// after everything it started has ended, and an error when it cannot go on.
	Watch(ctx context.Context, update func(group string, all []Sighting)) error
}
