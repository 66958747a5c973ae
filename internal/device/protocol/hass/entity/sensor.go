package entity

import "slices"

// textual are device classes whose values are texts, even if they look like numbers.
var textual = []string{"timestamp", "date", "uptime"}

// sensor describes something that is measured.
func (b *builder) sensor() {
	class := b.Options.Text("device_class", "")
	options := b.Options.List("options")
	s := State{Unit: b.unit(), Convert: toAny, Signal: true, ExpireAfter: b.seconds("expire_after")}
	switch {
	case slices.Contains(textual, class):
		s.Convert, s.Signal = toText, false
	case len(options) > maxOptions:
		s.Convert, s.Signal = toText, false
	case len(options) > 0:
		s.Convert, s.Discrete = toOption(options), true
	case s.Unit != "" || b.Options.Has("state_class"):
		s.Convert = toNumber
	}
	b.state(s, "state_topic", "value_template")
}

// binarySensor describes something that is on or off.
func (b *builder) binarySensor() {
	b.state(State{
		Convert: onOff(b.Options.Text("payload_on", "ON"), b.Options.Text("payload_off", "OFF")),
		Signal:  true, Discrete: true,
		ExpireAfter: b.seconds("expire_after"), OffDelay: b.seconds("off_delay"),
	}, "state_topic", "value_template")
}
