package discovery

import (
	"slices"
	"testing"
)

// TestAbbreviations uses each short name in each block, alone and with the full name.
func TestAbbreviations(t *testing.T) {
	for block, count := range map[string]int{"entity": 273, "device": 11, "origin": 3} {
		if got := len(abbreviations()[block]); got != count {
			t.Errorf("%s has %d short names, want %d", block, got, count)
		}
	}
	for _, known := range [][2]string{{"avty_t", "availability_topic"}, {"pl_unlk", "payload_unlock"}, {"hum_state_tpl", "target_humidity_state_template"}, {"whit_cmd_t", "white_command_topic"}} {
		if got := abbreviations()["entity"][known[0]]; got != known[1] {
			t.Errorf("%s stands for %q", known[0], got)
		}
	}
	// Blocks in which a short name of an entity may stand, as paths of a message.
	read := map[string]func(pair string) (any, error){
		"root": func(pair string) (any, error) {
			return first(Topic{"switch", "", "a"}, `{"dev":{"ids":"a"},"x":1,`+pair+`}`)
		},
		"component": func(pair string) (any, error) {
			return first(Topic{"device", "", "a"}, `{"dev":{"ids":"a"},"o":{"name":"o"},"cmps":{"c":{"p":"switch","x":1,`+pair+`}}}`)
		},
		"availability": func(pair string) (any, error) {
			options, err := first(Topic{"switch", "", "a"}, `{"dev":{"ids":"a"},"avty":[{`+pair+`}]}`)
			return inAvailability(options), err
		},
		"availability of a component": func(pair string) (any, error) {
			options, err := first(Topic{"device", "", "a"}, `{"dev":{"ids":"a"},"o":{"name":"o"},"cmps":{"c":{"p":"switch","avty":{`+pair+`}}}}`)
			return inAvailability(options), err
		},
	}
	// What these mean is read, and not passed on.
	special := append([]string{"availability", "device", "origin", "components", "platform"}, ignored...)
	for short, full := range abbreviations()["entity"] {
		if _, isShort := abbreviations()["entity"][full]; isShort && short != full {
			t.Errorf("%s is short for %s, which is short for another one", short, full)
		}
		for name, read := range read {
			if slices.Contains(special, full) && name[0] != 'a' {
				continue
			}
			for _, pair := range []string{`"` + short + `":"v"`, `"` + short + `":"v","` + full + `":"w"`} {
				if short == full {
					pair = `"` + short + `":"v"`
				}
				options, err := read(pair)
				if err != nil {
					t.Fatalf("%s in %s: %v", short, name, err)
				}
				if got := options.(Options); got[full] != "v" || short != full && got.Has(short) {
					t.Errorf("%s in %s: got %v", short, name, got)
				}
			}
		}
	}
}

// TestAbbreviationsOfBlocks uses the short names of the device and origin.
func TestAbbreviationsOfBlocks(t *testing.T) {
	fields := map[string]func(m *Message) string{
		"identifiers": func(m *Message) string { return m.Device.Identifiers[0] }, "name": func(m *Message) string { return m.Device.Name },
		"manufacturer": func(m *Message) string { return m.Device.Manufacturer }, "model": func(m *Message) string { return m.Device.Model },
		"model_id": func(m *Message) string { return m.Device.ModelID }, "sw_version": func(m *Message) string { return m.Device.Version },
		"serial_number":  func(m *Message) string { return m.Device.Serial },
		"suggested_area": func(m *Message) string { return m.Device.Area }, "connections": func(m *Message) string { return m.Device.MAC },
	}
	for short, full := range abbreviations()["device"] {
		if full == "configuration_url" || full == "hw_version" || full == "via_device" {
			continue // nothing uses it
		}
		value := `"02005e0000a3"`
		if full == "connections" {
			value = `[["mac",` + value + `]]`
		}
		for name, topic := range map[string]Topic{`"cmps":{}`: {"device", "", "a"}, `"name":"x"`: {"switch", "", "a"}} {
			block := `"` + short + `":` + value
			if full != "identifiers" {
				block += `,"identifiers":"a"`
			}
			m, err := Parse(topic, []byte(`{"device":{`+block+`},"o":{"name":"o","sw":"v"},`+name+`}`))
			if err != nil {
				t.Fatalf("%s: %v", short, err)
			}
			if got := fields[full](m); got != "02005e0000a3" || m.Origin != (Origin{"o", "v"}) {
				t.Errorf("%s: got %q, %+v", short, got, m.Origin)
			}
		}
	}
}

func first(topic Topic, payload string) (Options, error) {
	m, err := Parse(topic, []byte(payload))
	if err != nil || len(m.Entities) == 0 {
		return nil, err
	}
	return m.Entities[0].Options, nil
}

func inAvailability(o Options) Options {
	if list := o.Objects("availability"); len(list) == 1 {
		return list[0]
	}
	return nil
}
