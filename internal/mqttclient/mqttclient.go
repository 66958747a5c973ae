// Package mqttclient is a connection to an MQTT broker. Several users can share one, since a
// broker is a hub: one connection, many devices.
//
//	Client.Run --> connect (MQTT 5, else 3.1.1) --> Conn --Subscribe--> fn(Message)
//	    ^                                            |  <--Publish---
//	    +------------- back-off <--- lost -----------+
//
//	socket --> read-ahead --> decode, dispatch --> fn      one goroutine for each arrow
//	socket <-- queue <-- Publish, Subscribe
//
// A connection starts clean and leaves no session behind: messages that the broker had
// queued while nobody was connected would look new. A user of a Conn subscribes again
// after each connect. A message is published at most once; nothing is sent again.
//
// The packets are encoded and decoded by Eclipse Paho. Its clients are not used: a broker
// can make them panic in goroutines of their own, they hide whether a byte was written,
// and they send again.
package mqttclient

import "time"

// Dropped is the topic on which Mosquitto publishes how many messages it has dropped, because
// a subscriber did not take them in time.
const Dropped = "$SYS/broker/publish/messages/dropped"

// Name is the name of the transport.
const Name = "mqtt"

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
