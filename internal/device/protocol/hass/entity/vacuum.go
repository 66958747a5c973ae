package entity

// vacuum describes a robot that cleans.
func (b *builder) vacuum() {
	state := b.state(State{Convert: field("state", toText)}, "state_topic", "value_template")
	for _, s := range []struct {
		name, unit string
		convert    func(string) (Value, bool)
	}{{"battery_level", "%", toNumber}, {"fan_speed", "", toText}} {
		inside := field(s.name, s.convert)
		b.state(State{
			Name: s.name, Unit: s.unit, Signal: s.unit != "",
			Convert: func(text string) (Value, bool) {
				if text == "" || text[0] != '{' {
					return Value{}, false
				}
				return inside(text)
			},
		}, "state_topic", "value_template")
	}
	usual := []string{"start", "stop", "return_home", "clean_spot"}
	if to := b.sender("command_topic", ""); to != nil {
		for _, a := range []struct {
			verb, feature, text string
			wanted              []string
		}{
			{"start", "start", "Starts " + b.label + ".", []string{"cleaning"}},
			{"pause", "pause", "Pauses " + b.label + ".", []string{"paused"}},
			{"stop", "stop", "Stops " + b.label + ".", []string{"idle", "paused", "docked"}},
			{"return_to_base", "return_home", "Sends " + b.label + " back to its dock.", []string{"returning", "docked"}},
			{"clean_spot", "clean_spot", "Lets " + b.label + " clean around the place where it is.", []string{"cleaning"}},
			{"locate", "locate", "Lets " + b.label + " make a sound.", nil},
		} {
			if !b.can(a.feature, usual...) {
				continue
			}
			confirm := expectation(state, is(a.wanted...))
			if a.wanted == nil {
				confirm = nil
			}
			b.press(a.verb, a.text, to, b.Options.Text("payload_"+a.verb, a.verb), confirm)
		}
	}
	if to := b.sender("set_fan_speed_topic", ""); to != nil && b.can("fan_speed", usual...) {
		speeds, quarantine := b.options("fan_speed_list")
		confirm := ""
		if state != "" {
			confirm = b.suffixed("fan_speed")
		}
		b.tool(action{
			suffix: "fan_speed", verb: "fan_speed", text: "Sets the fan speed of " + b.label + ".",
			args: []property{enumArg("fan_speed", "", speeds)}, senders: []*sender{to}, quarantine: quarantine,
			command: func(args map[string]any) (Command, error) {
				speed, _ := argText(args, "fan_speed")
				return single(to, speed, nil, expectation(confirm, is(speed)))
			},
		})
	}
	if b.Options.Has("send_command_topic") {
		b.note("commands of its maker are left out")
	}
}

// lawnMower describes a robot that mows.
func (b *builder) lawnMower() {
	state := b.state(State{Convert: toText}, "activity_state_topic", "activity_value_template")
	for _, a := range []struct {
		verb, option, text string
		wanted             []string
	}{
		{"start", "start_mowing", "Starts " + b.label + ".", []string{"mowing"}},
		{"pause", "pause", "Pauses " + b.label + ".", []string{"paused"}},
		{"dock", "dock", "Sends " + b.label + " back to its dock.", []string{"returning", "docked"}},
	} {
		if to := b.sender(a.option+"_command_topic", a.option+"_command_template"); to != nil {
			b.press(a.verb, a.text, to, a.option, expectation(state, is(a.wanted...)))
		}
	}
}
