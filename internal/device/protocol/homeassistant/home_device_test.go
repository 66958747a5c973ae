package homeassistant

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant/fake"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// openHome opens the device of a home.
func openHome(t *testing.T, w *watched, cfg HomeConfig) (*homeSession, *ferrule.Manifest) {
	t.Helper()
	wait.For(t, "the home", func() bool { return w.current() != nil })
	cfg.Name = "home"
	device := NewHomeDevice(cfg, w.Hub)
	link, err := device.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	session, m, err := HomeProtocol{}.Greet(t.Context(), link)
	if err != nil {
		t.Fatal(err)
	}
	return session.(*homeSession), m
}

// TestCallServiceData: data can neither name entities, about which no rule was asked, nor hide
// a secret. The schema refuses what is not nested, so that it is not recorded.
func TestCallServiceData(t *testing.T) {
	home := playRecorded(t)
	w, _ := watchLogged(t, home.url)
	session, m := openHome(t, w, HomeConfig{Devices: func(ferrule.Principal) map[string]string { return nil }})
	tool := m.Tool("call_service")
	compiled, err := schema.Compile(tool.Input)
	if err != nil {
		t.Fatal(err)
	}
	called := func() (n int) {
		for _, cmd := range home.Commands() {
			if cmd.Type == "call_service" {
				n++
			}
		}
		return n
	}
	home.mu.Lock()
	home.call = func(c *fake.Conn, cmd fake.Command) { c.Result(cmd.ID, map[string]any{}) }
	home.mu.Unlock()
	for data, nested := range map[string]bool{
		`{"entity_id":"all"}`: false, `{"entity_id":["lock.front_door"]}`: false, `{"area_id":"kitchen"}`: false, `{"floor_id":["up"]}`: false,
		`{"label_id":"doors"}`: false, `{"device_id":"abc"}`: false, `{"code":"1234"}`: false, `{"access_token":"x"}`: false,
		`{"params":{"code":"1234"}}`: true, `{"params":[{"user":{"Password":"x"}}]}`: true,
	} {
		args := `{"domain":"light","service":"turn_on","data":` + data + `}`
		_, err := session.Invoke(context.Background(), &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "a"}, Device: "home", Tool: "call_service", Args: json.RawMessage(args)})
		if ferrule.AsError(err).Code != ferrule.Invalid || called() != 0 {
			t.Errorf("%s: got %v, %d calls", data, err, called())
		}
		values, _, err := schema.DecodeArgs(json.RawMessage(args))
		if err != nil {
			t.Fatal(err)
		}
		if refused := len(compiled.Check(values)) > 0; refused == nested {
			t.Errorf("%s: the schema refuses it: %v", data, refused)
		}
		if shown := string(tool.MaskArgs(json.RawMessage(args), true)); nested && (strings.Contains(shown, "1234") || strings.Contains(shown, `"x"`)) {
			t.Errorf("%s is recorded as %s", data, shown)
		}
	}
	for _, name := range []string{"homeassistant.stop", "hassio.host_shutdown", "backup.create_automatic", "recorder.disable", "update.install"} {
		domain, service, _ := strings.Cut(name, ".")
		args, _ := json.Marshal(map[string]string{"domain": domain, "service": service})
		_, err := session.Invoke(t.Context(), &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "a"}, Device: "home", Tool: "call_service", Args: args})
		if err == nil || !strings.Contains(err.Error(), "is for people") || called() != 0 {
			t.Errorf("%s: got %v", name, err)
		}
	}
	// One target has one spelling.
	other := json.RawMessage(`{"message":"hello","target":"notify.persistent_notification"}`)
	if _, err := session.Invoke(t.Context(), &ferrule.Call{Device: "home", Tool: "notify", Args: other}); err == nil || called() != 0 {
		t.Errorf("another spelling of a target: %v, %d calls", err, called())
	}
	args := json.RawMessage(`{"domain":"light","service":"turn_on","data":{"brightness_pct":50}}`)
	if _, err := session.Invoke(t.Context(), &ferrule.Call{Device: "home", Tool: "call_service", Args: args}); err != nil || called() != 1 {
		t.Errorf("other data: %v, %d calls", err, called())
	}
}

// TestNotifyTarget: a target has one spelling, because rules are asked about it. An entity is
// reached by the tool of its device only.
func TestNotifyTarget(t *testing.T) {
	home := playRecorded(t)
	answers := func(command string) (all map[string]any) {
		if err := json.Unmarshal(home.answers[command].(json.RawMessage), &all); err != nil {
			t.Fatal(err)
		}
		home.answers[command] = all
		return all
	}
	answers("entity/source")["notify.notifier"] = map[string]any{"domain": "kitchen_sink"}
	answers("subscribe_entities")["a"].(map[string]any)["notify.notifier"] = map[string]any{"s": "unknown", "a": map[string]any{}, "lc": 1743500000}
	answers("get_services")["notify"].(map[string]any)["phone"] = map[string]any{"fields": map[string]any{}}
	var sent []string
	home.call = func(c *fake.Conn, cmd fake.Command) {
		sent = append(sent, cmd.Fields["domain"].(string)+"."+cmd.Fields["service"].(string))
		c.Result(cmd.ID, map[string]any{})
	}
	w := home.use(t, HubConfig{All: true})
	session, _ := openHome(t, w, HomeConfig{
		Devices: func(ferrule.Principal) map[string]string {
			all := make(map[string]string)
			for _, e := range w.Entities(func(string) bool { return true }) {
				all[e.Address] = "group"
			}
			return all
		},
	})
	for target, want := range map[string]string{
		"notify.notifier": "", "phone": "notify.phone", "": "persistent_notification.create",
		"notifier": "", "notify.phone": "", "send_message": "",
	} {
		sent = nil
		args, _ := json.Marshal(map[string]string{"message": "hello", "target": target})
		_, err := session.Invoke(t.Context(), &ferrule.Call{Device: "home", Tool: "notify", Args: args})
		if got := strings.Join(sent, " "); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: sent %q, %v", target, got, err)
		}
		if err != nil && !strings.Contains(ferrule.AsError(err).Hint, "phone") {
			t.Errorf("%q: hint %q", target, ferrule.AsError(err).Hint)
		}
	}
}
