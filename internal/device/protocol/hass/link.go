package hass

import "context"

// Subscriber is the ability of a Link to a device behind a broker to receive more topics.
type Subscriber interface {
	// Subscribe passes the messages on these topics to Recv from now on, each with its
	// topic as Channel. What the broker has kept comes first, as Retained. It is called
	// once, in Greet.
	Subscribe(ctx context.Context, topics []string) error
}

// channelDiscovery is the Channel of the first message on a link: an offer as JSON.
const channelDiscovery = "discovery"

// offer is all that a device has said about itself, and how to read it.
type offer struct {
	Configs []config `json:"configs"` // sorted by component, node and object
	// Settings lets agents change settings of the device; Disabled includes what its
	// publisher marks as disabled.
	Settings bool `json:"settings,omitempty"`
	Disabled bool `json:"disabled,omitempty"`
	// Foreign lists topics in these configs that another device had first.
	Foreign []string `json:"foreign,omitempty"`
}

// config is one discovery message, with the parts of its topic.
type config struct {
	Component string `json:"component"`
	Node      string `json:"node,omitempty"`
	Object    string `json:"object"`
	Payload   string `json:"payload"`
}
