package ferrule

import "encoding/json"

// Offer is a tool as agents see it: under the name that they call it by, and
// with the arguments that it takes under that name.
type Offer struct {
	Name string
	// Text says what it does; it is never empty.
	Text string
	// Input is a JSON Schema whose root is an object.
	Input json.RawMessage
	// Tool is what is offered: its effect and its output are the same under
	// every name.
	Tool *Tool
	// Devices names those that it can be called on, the first few of them, and
	// Count is how many there are. If Argument is set, the call says in it which
	// one is meant; else there is only one.
	Devices  []string
	Count    int
	Argument string
}
