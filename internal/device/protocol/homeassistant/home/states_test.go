package home

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func apply(t testing.TB, s *States, event string) Change {
	t.Helper()
	c, err := s.Apply(json.RawMessage(event))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestStates(t *testing.T) {
	var s States
	c := apply(t, &s, `{"a":{"light.a":{"s":"on","a":{"brightness":128,"friendly_name":"A"},"c":"01J","lc":1743500000.1,"lu":1743500003.2}}}`)
	if !slices.Equal(c.Changed, []string{"light.a"}) || !c.Reshaped {
		t.Errorf("added: %+v", c)
	}
	a := s.Get("light.a")
	if a.Value != "on" || string(a.Attributes["brightness"]) != "128" || a.Context != "01J" || !a.Changed.Equal(time.UnixMilli(1743500000100)) || !a.Updated.Equal(time.UnixMilli(1743500003200)) {
		t.Errorf("state: %+v", a)
	}
	c = apply(t, &s, `{"c":{"light.a":{"+":{"s":"off","lc":1743500009.9,"c":{"user_id":"9f","id":"01K"}},"-":{"a":["brightness"]}}}}`)
	a = s.Get("light.a")
	if c.Reshaped || len(c.Changed) != 1 || a.Value != "off" || a.Context != "01K" || len(a.Attributes) != 1 || !a.Changed.Equal(a.Updated) || !a.Updated.Equal(time.UnixMilli(1743500009900)) {
		t.Errorf("change %+v: %+v", c, a)
	}
	// Only the user has changed: the context stays.
	if c = apply(t, &s, `{"c":{"light.a":{"+":{"lu":1743500010,"c":{"user_id":"a0"}}}}}`); len(c.Changed) != 0 || s.Get("light.a").Context != "01K" {
		t.Errorf("change %+v: %+v", c, s.Get("light.a"))
	}
	if c = apply(t, &s, `{"c":{"light.a":{"+":{"a":{"effect_list":["x"]}}}}}`); !c.Reshaped {
		t.Error("an ability has changed")
	}
	if c = apply(t, &s, `{"c":{"light.unknown":{"+":{"s":"on"}}}}`); len(c.Changed) != 0 || s.Len() != 1 {
		t.Error("a change of an unknown entity made one")
	}
	if c = apply(t, &s, `{"r":["light.a","light.b"]}`); !slices.Equal(c.Removed, []string{"light.a"}) || !c.Reshaped || s.Len() != 0 {
		t.Errorf("removed: %+v", c)
	}
}

func TestSecretsAreDropped(t *testing.T) {
	var s States
	apply(t, &s, `{"a":{
		"camera.a":{"s":"idle","a":{"access_token":"SECRET","entity_picture":"/api/camera_proxy/camera.a?token=SECRET","brand":"x"},"lc":1},
		"zone.home":{"s":"0","a":{"latitude":52.123,"longitude":13.456,"place":{"latitude":52.123,"name":"n"}},"lc":1},
		"media_player.a":{"s":"on","a":{"media_content_id":"http://h/x?\u0061uthSig=SECRET","list":["http://h/y?token=SECRET"]},"lc":1},
		"text.a":{"s":"SECRET","a":{"mode":"password"},"lc":1}}}`)
	for id := range s.IDs() {
		state := string(s.JSON(id))
		for _, secret := range []string{"SECRET", "52.123", "13.456"} {
			if strings.Contains(state, secret) {
				t.Errorf("%s: %s", id, state)
			}
		}
	}
	if s.Get("camera.a").Text("brand") != "x" || !strings.Contains(string(s.JSON("zone.home")), `"name":"n"`) {
		t.Error("more than the secrets was dropped")
	}
	// A new token of a camera is not a change.
	if c := apply(t, &s, `{"c":{"camera.a":{"+":{"a":{"access_token":"NEW","entity_picture":"/?token=NEW"},"lu":2}}}}`); len(c.Changed) != 0 || c.Reshaped {
		t.Errorf("change: %+v", c)
	}
	// The mode comes with the first state only.
	apply(t, &s, `{"c":{"text.a":{"+":{"s":"SECRET2","lc":2}}}}`)
	if s.Get("text.a").Value != HiddenValue {
		t.Error("the password is shown")
	}
}

func TestStatesAreBounded(t *testing.T) {
	var s States
	long := strings.Repeat("x", maxValue)
	var attributes []string
	for i := range 300 {
		attributes = append(attributes, fmt.Sprintf(`"a%d":"%s"`, i, strings.Repeat("y", 1000)))
	}
	apply(t, &s, fmt.Sprintf(`{"a":{"sensor.a":{"s":%q,"a":{"long":%q,%s},"lc":1e300},"Bad ID":{"s":"on"}}}`, long, long, strings.Join(attributes, ",")))
	if size := len(s.JSON("sensor.a")); size > maxState+maxAttributes*maxName {
		t.Errorf("the state has %d bytes", size)
	}
	a := s.Get("sensor.a")
	if a.Attributes["long"] != nil || len(a.Value) > maxID || !a.Changed.IsZero() || s.Len() != 1 {
		t.Errorf("value %d, changed %v, %d entities", len(a.Value), a.Changed, s.Len())
	}
}

func TestMissed(t *testing.T) {
	var s States
	s.Miss("lock.a")
	s.Miss("lock.b")
	if !IsUnavailable(s.JSON("lock.a")) || !s.Get("lock.a").restored() {
		t.Errorf("missed: %s", s.JSON("lock.a"))
	}
	apply(t, &s, `{"a":{"lock.b":{"s":"locked","lc":1}}}`)
	if s.DropMissed("lock.b") || !s.DropMissed("lock.a") || s.Len() != 1 {
		t.Error("the wrong entity was dropped")
	}
}

func FuzzStates(f *testing.F) {
	f.Add([]byte(read(f, "states")), []byte(`{"c":{"light.bed_light":{"+":{"s":"off","lc":1743500009.9,"c":{"id":"01K"}},"-":{"a":["brightness"]}}}}`))
	f.Add([]byte(`{"a":{"light.a":{"s":null,"a":{"x":[{}]},"c":[],"lc":-1}}}`), []byte(`{"r":["light.a"],"c":{"light.a":{"+":{"a":{"token=":"\u0000"}}}}}`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var s States
		for _, event := range [][]byte{first, second} {
			if _, err := s.Apply(event); err != nil {
				continue
			}
			for id := range s.IDs() {
				state := s.Get(id)
				if state == nil || !json.Valid(s.JSON(id)) || !ValidID(id) {
					t.Fatalf("%q: %s", id, s.JSON(id))
				}
				if IsUnavailable(s.JSON(id)) != state.Unavailable() {
					t.Errorf("unavailable: %s", s.JSON(id))
				}
				if bytes.Contains(s.JSON(id), []byte("authSig=")) || state.Attributes["access_token"] != nil {
					t.Errorf("a secret: %s", s.JSON(id))
				}
			}
		}
	})
}
