// Package hass connects devices that describe themselves on an MQTT broker by the discovery
// messages of Home Assistant: Zigbee2MQTT, ESPHome, Tasmota and many others publish them.
//
//	broker --> Hub: configs, availability --> Sighting (one for each device)
//	             |                                |
//	             +--topics--> link <--Open--------+
//	                           |
//	        Protocol.Greet: discovery -> entity -> Manifest
//	        Session: state topics -> state tool, measurements, events
//	                 call -> publish -> echo
//
// Nothing on a broker answers a command. A call has run when the state that it asked for
// was heard after it was sent; see Session.Invoke.
package hass

// Name is the name of the protocol.
const Name = "hass"
