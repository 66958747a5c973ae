package homeassistant

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/device/protocol/protocoltest"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestContract runs the suite of protocols, over a link of lines that carry messages.
func TestContract(t *testing.T) {
	protocoltest.Run(t, protocoltest.Subject{Protocol: overLines{New()}, Serve: serve})
}

// overLines speaks the protocol over a link of lines. Results are the responses of services.
type overLines struct{ protocol *Protocol }

func (p overLines) Greet(ctx context.Context, link transport.Link) (protocol.Session, *ferrule.Manifest, error) {
	session, manifest, err := p.protocol.Greet(ctx, lines{link})
	if err != nil {
		return nil, nil, err
	}
	return responses{session}, manifest, nil
}

type responses struct{ protocol.Session }

func (s responses) Invoke(ctx context.Context, c *ferrule.Call) (*ferrule.Result, error) {
	r, err := s.Session.Invoke(ctx, c)
	if err != nil {
		return nil, err
	}
	var o outcome
	if err := json.Unmarshal(r.Value, &o); err != nil {
		return nil, err
	}
	r.Value = o.Response
	return r, nil
}

// line is a message as a line of JSON.
type line struct {
	Channel  string          `json:"channel"`
	Data     json.RawMessage `json:"data"`
	Retained bool            `json:"retained,omitempty"`
}

type lines struct{ transport.Link }

func (l lines) Recv(ctx context.Context) (transport.Message, error) {
	m, err := l.Link.Recv(ctx)
	if err != nil {
		return m, err
	}
	var got line
	json.Unmarshal(m.Data, &got)
	return transport.Message{Channel: got.Channel, Data: got.Data, Retained: got.Retained}, nil
}

func (l lines) Send(ctx context.Context, m transport.Message) error {
	data, err := json.Marshal(line{m.Channel, m.Data, false})
	if err != nil {
		return err
	}
	return l.Link.Send(ctx, transport.Message{Data: data})
}

// serve plays a device whose services are the tools of the suite.
func serve(far io.ReadWriteCloser, tools protocoltest.Tools) {
	out := json.NewEncoder(far)
	say := func(channel string, value any, retained bool) {
		data, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		out.Encode(line{channel, data, retained})
	}
	offer := device([]home.Entity{{ID: "test.one", Key: "one", Domain: "test"}})
	for name := range tools {
		s := service("test", name, "text")
		s.Response = "always"
		offer.Services = append(offer.Services, s)
	}
	say(channelOffer, offer, false)
	say(channelStates, map[string]home.State{"test.one": {Value: "on"}}, true)
	for in := json.NewDecoder(far); ; {
		var got line
		if in.Decode(&got) != nil {
			return
		}
		var c call
		if json.Unmarshal(got.Data, &c) != nil {
			return
		}
		args, _ := json.Marshal(c.Data)
		r := result{ID: c.ID, Context: "c"}
		response, err := tools[c.Service](args)
		if err != nil {
			r.Error = &callError{"home_assistant_error", err.Error()}
		}
		r.Response = response
		say(channelResult, r, false)
	}
}

// groupOffer is the entities of an integration that have no device.
func groupOffer(names ...string) home.Offer {
	o := home.Offer{Device: home.Device{ID: "demo", Group: true}, Services: []home.Service{service("switch", "turn_on"), service("switch", "turn_off")}}
	for i, name := range names {
		o.Device.Entities = append(o.Device.Entities, home.Entity{ID: fmt.Sprintf("switch.s%d", i), Key: fmt.Sprintf("switch_%d", i), Domain: "switch", Name: name})
	}
	return o
}

// TestTarget checks which entity the argument of a call means.
func TestTarget(t *testing.T) {
	for said, want := range map[string]string{
		"switch.s1": "switch.s1", "": "is missing", "switch.s9": "no entity is called",
		// Rules were asked about the argument as it is, so that no other spelling is accepted.
		"Kettle": `no entity is called "Kettle"`, "SWITCH.S1": "no entity is called", "s1": "no entity is called", "switch_1": "no entity is called",
	} {
		on(t, groupOffer("Lamp left", "Kettle", "Water pump", "Lamp right"), func(t *testing.T, b *bench) {
			for i := range 4 {
				b.link.is(fmt.Sprintf("switch.s%d", i), "off", "")
			}
			b.link.onSend = func(c call) error { b.link.is(c.Entities[0], "on", ""); b.link.answers(c); return nil }
			args := fmt.Sprintf(`{"entity":%q}`, said)
			if strings.HasPrefix(want, "switch.") {
				if o := b.ok("turn_on", args); !o.confirmed() || o.States[want].State != "on" {
					t.Errorf("%q: got %+v", said, o)
				}
				b.sends("switch.turn_on " + want)
				return
			}
			if e := b.fails("turn_on", args, ferrule.Invalid, false); !strings.Contains(e.Message, want) || !strings.Contains(e.Hint, "use one of: ") || !strings.Contains(e.Hint, "switch.s1") {
				t.Errorf("%q: %s; %s", said, e.Message, e.Hint)
			}
			b.sends()
		})
	}
}

// TestChoices: values in lists that owners edit are checked against the state.
func TestChoices(t *testing.T) {
	on(t, lampOffer(false), func(t *testing.T, b *bench) {
		b.link.is(lamp, "off", `{"effect_list":["Rainbow","Fire"]}`)
		b.link.onSend = func(c call) error {
			b.link.is(lamp, "on", fmt.Sprintf(`{"effect":%q,"effect_list":["Rainbow","Fire"]}`, c.Data["effect"]))
			b.link.answers(c)
			return nil
		}
		if o := b.ok("turn_on", `{"effect":"Rainbow"}`); !o.confirmed() || string(o.States["light"].Attributes["effect"]) != `"Rainbow"` {
			t.Errorf("got %+v", o)
		}
		b.fails("turn_on", `{"effect":"rainbow"}`, ferrule.Invalid, false)
		e := b.fails("turn_on", `{"effect":"rainbw"}`, ferrule.Invalid, false)
		if !strings.Contains(e.Message, "did you mean Rainbow?") || !strings.Contains(e.Hint, "Fire, Rainbow") {
			t.Errorf("got %s; %s", e.Message, e.Hint)
		}
		if o := b.ok("read_state", `{}`); string(o.States["light"].Attributes["effect_list"]) != `["Rainbow","Fire"]` {
			t.Errorf("got %+v", o)
		}
	})
}

// TestSecrets: neither codes nor what lets somebody in is shown anywhere.
func TestSecrets(t *testing.T) {
	on(t, doorOffer(), func(t *testing.T, b *bench) {
		b.link.is(door, "locked", `{"code":"4711","access_token":"4711","entity_picture":"/api/camera_proxy/x?token=4711","latitude":47.11,"api_key":"4711",
			"url":"http://x/y?authSig=4711","deep":{"a":[{"access_token":"4711","fine":"yes"}]},"level":7}`)
		o := b.ok("read_state", `{}`)
		text, _ := json.Marshal(o)
		if strings.Contains(string(text), "47") || string(o.States["lock"].Attributes["level"]) != "7" || !strings.Contains(string(text), "fine") {
			t.Errorf("got %s", text)
		}
		b.link.onSend = func(c call) error {
			if c.Data["code"] != "4711" || !c.Secret {
				t.Errorf("sent %+v", c)
			}
			b.link.fails(c, "service_validation_error", "expected a word for code, got '4711'")
			return nil
		}
		if e := b.fails("unlock", `{"code":"4711"}`, ferrule.Refused, false); strings.Contains(e.Message, "4711") || !strings.Contains(e.Message, "got '…'") {
			t.Errorf("got %s", e.Message)
		}
	})
	password := device([]home.Entity{{ID: "text.p", Key: "text", Domain: "text", Abilities: map[string]json.RawMessage{"mode": json.RawMessage(`"password"`)}}}, service("text", "set_value", "value"))
	on(t, password, func(t *testing.T, b *bench) {
		b.link.is("text.p", "hunter2", `{"mode":"password"}`)
		b.link.onSend = func(c call) error { b.link.answers(c); return nil }
		for _, o := range []outcome{b.ok("read_state", `{}`), b.ok("set_value", `{"value":"hunter3"}`)} {
			if text, _ := json.Marshal(o); strings.Contains(string(text), "hunter") {
				t.Errorf("got %s", text)
			}
		}
	})
}

// TestSignals: states that change are measurements, those from before the session are not.
func TestSignals(t *testing.T) {
	offer := device([]home.Entity{
		{ID: "sensor.t", Key: "temperature", Domain: "sensor", Unit: "°C", Measures: true},
		{ID: "binary_sensor.d", Key: "door", Domain: "binary_sensor"}, {ID: lamp, Key: "light", Domain: "light"},
	})
	on(t, offer, func(t *testing.T, b *bench) {
		b.link.pass(channelStates, map[string]home.State{"sensor.t": {Value: "20"}, lamp: {Value: "on"}}, true)
		b.link.is("sensor.t", "21.5", "")
		b.link.is("sensor.t", "unavailable", "")
		b.link.is("sensor.t", "unknown", "")
		b.link.is("sensor.t", "NaN", "")
		b.link.is("binary_sensor.d", "on", "")
		b.link.is(lamp, "on", `{"brightness":128}`)
		synctest.Wait()
		var got []string
		for _, m := range b.measured {
			got = append(got, fmt.Sprint(m.Signal, m.Unit, m.Values, m.State))
		}
		want := "temperature°C[21.5] false; door[1] true; light[1] true; light_brightness[128] false"
		if strings.Join(got, "; ") != want {
			t.Errorf("got %q", got)
		}
		if o := b.ok("read_state", `{}`); o.States["temperature"].State != "NaN" || o.States["door"].State != "on" || o.Confirmed != nil {
			t.Errorf("got %+v", o)
		}
		if o := b.ok("read_state", `{"entity":"door"}`); len(o.States) != 1 {
			t.Errorf("got %+v", o)
		}
	})
}

// TestEvents: a press is an event once, and not when Home Assistant reports an old one.
func TestEvents(t *testing.T) {
	offer := device([]home.Entity{{ID: "event.bell", Key: "doorbell", Domain: "event"}, {ID: "button.b", Key: "identify", Domain: "button"}}, service("button", "press"))
	on(t, offer, func(t *testing.T, b *bench) {
		at := func(ago time.Duration) string {
			return time.Now().Add(-ago).UTC().Format("2006-01-02T15:04:05.000-07:00")
		}
		old := at(time.Hour)
		b.link.pass(channelStates, map[string]home.State{"event.bell": {Value: old}, "button.b": {Value: "unknown"}}, true)
		b.link.is("event.bell", old, `{"event_type":"ring","rssi":1}`)
		b.link.is("event.bell", "unavailable", "")
		b.link.is("event.bell", old, `{"event_type":"ring"}`)
		b.link.is("event.bell", at(0), `{"event_type":"ring","entity_picture":"x","event_types":["ring"]}`)
		synctest.Wait()
		if len(b.events) != 1 || !strings.HasPrefix(b.events[0], `doorbell {`) || !strings.Contains(b.events[0], `"attributes":{"event_type":"ring"}`) {
			t.Errorf("got %q", b.events)
		}
		b.link.onSend = func(c call) error { b.link.is("button.b", at(0), ""); b.link.answers(c); return nil }
		if o := b.ok("press", `{}`); !o.confirmed() || len(b.events) != 2 {
			t.Errorf("got %+v, %q", o, b.events)
		}
		for range 100 {
			time.Sleep(time.Millisecond)
			b.link.is("event.bell", at(0), "")
		}
		synctest.Wait()
		if len(b.events) != 20 {
			t.Errorf("%d events", len(b.events))
		}
	})
}

// TestChange: a device that offers something else is described again, and no call is sent to
// a tool that has changed.
func TestChange(t *testing.T) {
	on(t, lampOffer(false), func(t *testing.T, b *bench) {
		b.link.is(lamp, "off", "")
		synctest.Wait()
		var changed *ferrule.Manifest
		stale := ferrule.Errorf(ferrule.Invalid, "changed")
		b.session.Changed(func(m *ferrule.Manifest) { changed = m }, func(*ferrule.Call) error {
			if changed != nil {
				return stale
			}
			return nil
		})
		more := lampOffer(false)
		more.Services = append(more.Services, service("light", "blink"))
		b.link.pass(channelOffer, more, false)
		synctest.Wait()
		if changed == nil || changed.Tool("blink") == nil {
			t.Fatalf("got %+v", changed)
		}
		b.fails("blink", `{}`, ferrule.Invalid, false)
		b.sends()
		changed = nil
		b.link.onSend = func(c call) error { b.link.answers(c); return nil }
		if o := b.ok("blink", `{}`); o.confirmed() || !strings.Contains(o.Note, "no state shows whether") {
			t.Errorf("got %+v", o)
		}
	})
}

// TestManyEntities: the states of a large group are cut, and say so.
func TestManyEntities(t *testing.T) {
	names := make([]string, 2000)
	on(t, groupOffer(names...), func(t *testing.T, b *bench) {
		all := make(map[string]home.State)
		for i := range names {
			all[fmt.Sprintf("switch.s%d", i)] = home.State{Value: "on", Attributes: map[string]json.RawMessage{"friendly": json.RawMessage(`"a text of some length"`)}}
		}
		b.link.pass(channelStates, all, true)
		o := b.ok("read_state", `{}`)
		if len(o.States) < 100 || len(o.States) >= 2000 || o.Note != fmt.Sprintf("%d more entities are not shown; read one at a time with the argument entity", 2000-len(o.States)) {
			t.Errorf("%d states, %q", len(o.States), o.Note)
		}
	})
}

// FuzzSession passes messages that a link should not pass.
func FuzzSession(f *testing.F) {
	f.Add("states", []byte(`{"light.lamp":{"value":"on","attributes":{"brightness":1,"x":null}},"x":null}`))
	f.Add("result", []byte(`{"id":1,"context":"x","response":{"a":[1]},"error":{"code":"c","message":"m"}}`))
	f.Add("offer", []byte(`{"device":{"id":"x","entities":[{"id":"light.lamp","key":"light","domain":"light"}]},"services":[{"domain":"light","name":"turn_on","fields":[{"name":"brightness","selector":{"number":{}}}]}]}`))
	f.Fuzz(func(t *testing.T, channel string, data []byte) {
		l := newTestLink(lampOffer(false))
		session, _, err := New().Greet(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		s := session.(*Session)
		s.Report(func(time.Time, []ferrule.Measurement) {})
		s.Notify(func(string, json.RawMessage) {})
		heard := make(chan struct{})
		l.onSend = func(call) error {
			go func() {
				defer close(heard)
				s.hear(transport.Message{Channel: channel, Data: data}, time.Now())
				s.hear(transport.Message{Channel: channelResult, Data: []byte(`{"id":1}`)}, time.Now())
			}()
			return nil
		}
		l.is(lamp, "on", "")
		s.hear(<-l.incoming, time.Now())
		ctx, cancel := context.WithTimeout(t.Context(), 51*time.Millisecond)
		defer cancel()
		if r, err := s.Invoke(ctx, &ferrule.Call{Tool: "turn_on"}); err == nil && !json.Valid(r.Value) {
			t.Errorf("got %s", r.Value)
		}
		<-heard
		if r, err := s.Invoke(ctx, &ferrule.Call{Tool: "read_state"}); err == nil && !json.Valid(r.Value) {
			t.Errorf("got %s", r.Value)
		}
	})
}
