// Package homeassistant uses the devices of a Home Assistant.
//
//	api       the WebSocket connection
//	home      what the home has: devices, entities, states, services
//	describe  tools and signals of a device
//
// A Hub keeps one connection and finds the devices behind it. Each device has a Link, whose first
// message is a home.Offer and whose others are states and results of services.
package homeassistant

// Name is the name of the protocol.
const Name = "homeassistant"
