// Package mqttclient is one connection to an MQTT broker, for everything that the gateway
// does there. A broker is a hub: one connection, many devices.
//
//	Client.Run --> connect (MQTT 5, else 3.1.1) --> Conn --Subscribe--> fn(Message)
//	    ^                                            |  <--Publish---
//	    +------------- back-off <--- lost -----------+
//
// A connection starts clean and leaves no session behind: messages that the broker had
// queued while nobody was connected would look new. A user of a Conn subscribes again
// after each connect. A message is published at most once; nothing is sent again.
package mqttclient

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Name is the name of the transport.
const Name = "mqtt"

// Config is how to reach a broker.
type Config struct {
	// URL is mqtt://HOST[:1883] or mqtts://HOST[:8883].
	URL string
	// User and Password are the credential; empty for none. PasswordFile names a file with
	// the password, which is read at each connect.
	User         string
	Password     ferrule.Secret
	PasswordFile string
	// CA is a file with CA certificates; empty for those of the system. Cert and Key are
	// files with the certificate of this client; empty for none.
	CA, Cert, Key string
	// ClientID is the name of this client at the broker; a random one if it is empty.
	ClientID string
	// Will is published by the broker if the connection breaks; nil for none.
	Will *Publication
	// Properties are user properties of CONNECT.
	Properties []Property
	// RetryMin and RetryMax limit the wait before a reconnect.
	RetryMin, RetryMax time.Duration
}

// DefaultConfig has everything but the URL.
func DefaultConfig() Config {
	return Config{RetryMin: 250 * time.Millisecond, RetryMax: 30 * time.Second}
}

// Check returns the first problem of the config.
func (c Config) Check() error { return nil }

// Message is a message that arrived.
type Message struct {
	Topic string
	// Payload belongs to the receiver.
	Payload []byte
	// Retained reports that the broker had kept it: it is old.
	Retained bool
	// Properties are the user properties; none with MQTT 3.1.1.
	Properties []Property
}

// Property is a user property of MQTT 5.
type Property struct{ Name, Value string }

// Publication is a message to publish.
type Publication struct {
	Topic      string
	Payload    []byte
	QoS        byte // 0 or 1
	Retain     bool
	Expiry     time.Duration // after which the broker must not deliver it; 0 for never
	Properties []Property
}

// Filter is a subscription.
type Filter struct {
	Topic string // may have + and #
	QoS   byte
	// NoLocal leaves out what this client publishes itself (MQTT 5).
	NoLocal bool
}

// Client keeps a connection to a broker. It must be running to be of use.
type Client struct{}

// New returns a Client. It does nothing until Run.
func New(cfg Config, log *slog.Logger) *Client { return &Client{} }

// Run connects, and reconnects with back-off, until ctx ends. It returns nil then.
func (c *Client) Run(ctx context.Context) error { return errors.New("not written yet") }

// Connect waits for a connection and returns it. All callers get the same one. It returns
// ctx's error if ctx ends first.
func (c *Client) Connect(ctx context.Context) (*Conn, error) {
	return nil, errors.New("not written yet")
}

// State describes the connection, for people.
type State struct {
	Connected bool
	// Since is when Connected last changed; Reason is why there is no connection.
	Since  time.Time
	Reason string
	// Version is 5 or 4, which is MQTT 3.1.1.
	Version byte
}

// State returns the present state.
func (c *Client) State() State { return State{} }

// Changed returns a channel that is closed when the State changes.
func (c *Client) Changed() <-chan struct{} { return nil }

// Conn is one connection, from CONNACK until it breaks. Its methods may be called
// concurrently.
type Conn struct{}

// Done returns a channel that is closed when the connection is lost. Err is why.
func (c *Conn) Done() <-chan struct{} { return nil }

// Err returns why the connection was lost; nil before that.
func (c *Conn) Err() error { return nil }

// Version is 5 or 4, which is MQTT 3.1.1.
func (c *Conn) Version() byte { return 0 }

// Subscribe subscribes to filters and passes each matching message to fn, in the order of
// arrival. One goroutine calls all functions of a connection; fn must not block. A message
// that matches several subscriptions is passed to each function once. It returns when the
// broker has agreed to all filters. The returned function ends the subscription at the
// broker unless another one has the same filter; it does not wait.
func (c *Conn) Subscribe(ctx context.Context, fn func(Message), filters ...Filter) (end func(), err error) {
	return nil, errors.New("not written yet")
}

// Publish publishes a message. With QoS 1 it returns when the broker has it. The error is
// transport.ErrUnsent if no byte was sent, and a *transport.Undelivered if the broker says
// that nobody subscribes or that its rules forbid it (MQTT 5 only). After any other error
// the message may have been delivered. It is never sent again.
func (c *Conn) Publish(ctx context.Context, p Publication) error {
	return errors.New("not written yet")
}
