package homeassistant

import "encoding/json"

// The channels of the messages between a Link and its Session.
const (
	// channelOffer carries a home.Offer: the first message of a link, and again when the
	// device offers something else.
	channelOffer = "offer"
	// channelStates carries the states of entities, by ID: a map[string]home.State. The first
	// one has all entities of the device and is Retained; the others have those that changed.
	// A state that is null was removed.
	channelStates = "states"
	// channelCall carries a call, from the session to the link.
	channelCall = "call"
	// channelResult carries its result. There is one for each call, unless the link breaks.
	// States that changed before Home Assistant answered come before it.
	channelResult = "result"
)

// call asks Home Assistant to perform a service.
type call struct {
	ID       int            `json:"id"`
	Domain   string         `json:"domain"`
	Service  string         `json:"service"`
	Data     map[string]any `json:"data,omitempty"`
	Entities []string       `json:"entities,omitempty"`
	// Answer asks for the response of the service.
	Answer bool `json:"answer,omitempty"`
	// Secret reports that Data must not be shown, for example in a trace.
	Secret bool `json:"secret,omitempty"`
}

// result is the answer to a call.
type result struct {
	ID int `json:"id"`
	// Context is the ID that Home Assistant gave the call. States that changed because of it
	// have the same one.
	Context  string          `json:"context,omitempty"`
	Response json.RawMessage `json:"response,omitempty"`
	// Error is set if Home Assistant answered with an error.
	Error *callError `json:"error,omitempty"`
}

// callError is an error that Home Assistant answered with.
type callError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}
