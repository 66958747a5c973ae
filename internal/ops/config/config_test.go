package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/endpoint"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// TestSample checks that the sample has every key at its default.
func TestSample(t *testing.T) {
	got, err := config.Parse(config.Sample)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Devices = config.Devices{Serial: []config.SerialDevice{}, TCP: []config.TCPDevice{}, HTTP: []config.HTTPDevice{}, MQTT: []config.Broker{}, HomeAssistant: []config.Home{}}
	want.Auth.Tokens = []config.Token{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("sample is\n%+v\ndefault is\n%+v", got, want)
	}
	for _, key := range keys(reflect.TypeFor[config.Config]()) {
		if !regexp.MustCompile(`(?m)^[ #-]*` + key + `:`).Match(config.Sample) {
			t.Errorf("the sample lacks key %s", key)
		}
	}
}

// TestSampleExample checks the examples in comments of the sample.
func TestSampleExample(t *testing.T) {
	examples := regexp.MustCompile(`(?m)^([a-z]+:\n)|For example:\n(?:  )?#\n((?:(?:  )?# .*\n)+)`).FindAllSubmatch(config.Sample, -1)
	text := ""
	for _, m := range examples {
		text += string(m[1]) + regexp.MustCompile(`(?m)^(  )?# ?`).ReplaceAllString(string(m[2]), "$1")
	}
	got, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := config.Devices{
		Serial: []config.SerialDevice{{Port: "auto"}, {Port: "/dev/ttyUSB0", Baud: 115200, Name: "arm", Reset: "none"}},
		TCP:    []config.TCPDevice{{Address: "192.168.1.20:4242", Name: "robot"}},
		HTTP:   []config.HTTPDevice{{URL: "auto"}, {URL: "http://192.168.1.30/mcp", Name: "greenhouse", File: "green.token"}},
		MQTT: []config.Broker{{
			URL: "mqtts://192.168.1.40:8883", Name: "home", User: "ferrule", PasswordFile: "mqtt.password", CA: "broker-ca.pem", Adopt: "sensors", Prefix: "homeassistant",
		}},
		HomeAssistant: []config.Home{{URL: "https://192.168.1.50:8123", Name: "house", File: "house.token", CA: "house-ca.pem", Adopt: "sensors"}},
	}
	if !reflect.DeepEqual(got.Devices, want) {
		t.Errorf("got %+v", got.Devices)
	}
	if tokens := []config.Token{{Name: "claude", File: "claude.token", Scopes: []string{"read"}, Devices: []string{"lamp-*"}}}; !reflect.DeepEqual(got.Auth.Tokens, tokens) {
		t.Errorf("got %+v", got.Auth.Tokens)
	}
	if endpoints := []config.Endpoint{{Name: "home", File: "home.url", Limit: 8192}}; !reflect.DeepEqual(got.Endpoints, endpoints) {
		t.Errorf("got %+v", got.Endpoints)
	}
	if plugins := []config.Plugin{{Name: "weather", Exec: []string{"/usr/bin/python3", "weather.py"}, Env: map[string]ferrule.Secret{"UNITS": "metric"}}}; !reflect.DeepEqual(got.Plugins, plugins) {
		t.Errorf("got %+v", got.Plugins)
	}
	if len(got.Hooks) != 2 || got.Hooks[0].File != "hook.token" || got.Hooks[1].OnError != "refuse" || !reflect.DeepEqual(got.Hooks[1].Exec, []string{"./quiet-hours.sh"}) {
		t.Errorf("got %+v", got.Hooks)
	}
}

// keys returns all keys of a type.
func keys(t reflect.Type) []string {
	for t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var all []string
	for f := range t.Fields() {
		all = append(all, f.Tag.Get("yaml"))
		all = append(all, keys(f.Type)...)
	}
	return all
}

func TestParse(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "calls:\n"} {
		if got, err := config.Parse([]byte(text)); err != nil || !reflect.DeepEqual(got, config.Default()) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	got, err := config.Parse([]byte("calls: {deadline: 5s, cache: 3s, in_flight: 4, per_minute: 60}\njournal: {sync: 2s}\ndevices:\n  tcp:\n    - {address: 'a:1', name: robot, pending: true}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if j, err := got.JournalConfig(); err != nil || j.Sync != 2*time.Second {
		t.Errorf("journal %+v, %v", j, err)
	}
	if want := (pipeline.Config{Deadline: 5 * time.Second, Cache: 3 * time.Second, InFlight: 4, PerMinute: 60, RefusedPerMinute: 600, ApprovalWait: 5 * time.Minute}); got.Pipeline() != want || got.Dock().Waiting != 32 {
		t.Errorf("got %+v", got)
	}
	if h := got.HistoryConfig(); h != history.DefaultConfig() || !got.History.Enabled {
		t.Errorf("history: %+v", h)
	}
	if got, err := config.Parse([]byte("history: {enabled: false, sync: 10s, raw: 24h, minutes: 240h, hours: 2400h, size: 64}\n")); err != nil || got.History.Enabled ||
		got.HistoryConfig() != (history.Config{Sync: 10 * time.Second, Raw: 24 * time.Hour, Minutes: 240 * time.Hour, Hours: 2400 * time.Hour, Size: 64 << 20}) {
		t.Errorf("got %+v, %v", got.History, err)
	}
	if got, err := config.Parse([]byte("history: {size: 17592186044432}\n")); err != nil || got.HistoryConfig().Size < 1<<60 {
		t.Errorf("history size: %+v, %v", got.HistoryConfig(), err)
	}
	if _, err := config.Parse([]byte("history: {raw: 2400h, minutes: 240h}\n")); err == nil || !strings.Contains(err.Error(), "history.minutes") {
		t.Errorf("got %v", err)
	}
	if s := got.PollerConfig(); s != poller.DefaultConfig() {
		t.Errorf("poller %+v", s)
	}
	if got, err := config.Parse([]byte("polling: {enabled: false, fastest: 1s, in_flight: 8}\n")); err != nil || got.PollerConfig() != (poller.Config{Fastest: time.Second, InFlight: 8}) {
		t.Errorf("got %+v, %v", got.Polling, err)
	}
	got.Telemetry = config.Telemetry{Metrics: true, Readings: true, Traces: config.Traces{Endpoint: "http://h", Ratio: 0.5}}
	if want := (telemetry.Config{Metrics: true, Readings: true, Endpoint: "http://h", Ratio: 0.5}); got.TelemetryConfig() != want {
		t.Errorf("got %+v", got.TelemetryConfig())
	}
	if d := got.TCP([]string{"x"}); len(d.Boards) != 1 || d.Boards[0].Name != "robot" || !d.Boards[0].Pending || d.Protocols[0] != "x" {
		t.Errorf("got %+v", d)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"lisen: x\n", `line 1: unknown key "lisen"; did you mean listen?`},
		{"devices:\n  tcp:\n    - adress: x\n", `line 3: unknown key "adress"; did you mean address?`},
		{"calls: 5\n", "line 1: int was used where mapping is expected"},
		{"devices:\n  serial:\n  - port: COM3\n    baud: fast\n", "line 4: baud must be a whole number, such as 115200"},
		{"polling:\n\n  enabled: maybe\n", "line 3: enabled must be true or false"},
		{"calls:\n  waiting: [1]\n", "line 2: waiting must be a whole number, such as 32"},
		{"# a comment\ncalls:\n  cache: 2h\n", "line 3: calls.cache: must be from 0s to 1h0m0s, got 2h0m0s"},
		{"devices:\n  tcp:\n  - address: here\n", `line 2: devices.tcp: address "here": must be HOST:PORT`},
		{"history: {hours: 2000d, minutes: 13w}\ncalls: {waiting: -1}\n", "line 2: calls.waiting: must be at least 0, got -1"},
		{"calls:\n  deadline: soon\n", `line 2: calls.deadline: must be a duration such as 30s, 5m, 12h or 7d, got "soon"`},
		{"calls: {deadline: 1h}\n", "calls.deadline: must be greater than 0 and at most 10m0s"},
		{"calls: {waiting: -1}\n", "calls.waiting: must be at least 0, got -1"},
		{"calls:\n  cache: long\n", `line 2: calls.cache: must be a duration such as 30s, 5m, 12h or 7d, got "long"`},
		{"calls: {cache: -1s}\n", "calls.cache: must be from 0s to 1h0m0s, got -1s"},
		{"calls: {cache: 2h}\n", "calls.cache: must be from 0s to 1h0m0s, got 2h0m0s"},
		{"calls: {in_flight: 0}\n", "calls.in_flight: must be at least 1, got 0"},
		{"calls: {per_minute: -1}\n", "calls.per_minute: must be from 0 to 1000000, got -1"},
		{"calls: {per_minute: 1000001}\n", "calls.per_minute: must be from 0 to 1000000, got 1000001"},
		{"retry: {min: 5s, max: 1s}\n", "retry: must be 0 < min <= max, got 5s and 1s"},
		{"journal: {sync: never}\n", `journal.sync: must be always or an interval such as 5s, got "never"`},
		{"journal: {sync: 1h}\n", "journal.sync: must be always, or an interval of at most a minute"},
		{"listen: 0.0.0.0:80\nagents: {open_loopback: true}\n", "agents.open_loopback: other machines reach 0.0.0.0:80"},
		{"listen: gateway.local:80\nagents: {open_loopback: true}\n", "agents.open_loopback: other machines reach gateway.local:80"},
		{"listen: 127.0.0.1:http\n", `listen: must be HOST:PORT, got "127.0.0.1:http"`},
		{"tls: {cert: a.pem}\n", "tls: must have both cert and key, or neither"},
		{"agents: {hosts: [ferrule.example.com], open_loopback: true}\n", "agents.open_loopback: other machines reach the gateway under the names in agents.hosts"},
		{"agents: {open_loopback: true}\nauth: {url: 'https://gw.example'}\n", "agents.open_loopback: other machines reach the gateway at auth.url, https://gw.example"},
		{"agents: {server_card: true}\n", `agents.server_card: needs auth.url, which it announces: it must be an https:// URL without a path, such as https://ferrule.example.com, got ""`},
		{"agents: {server_card: true}\nauth: {url: 'http://gw.example'}\n", "agents.server_card: needs auth.url"},
		{"agents: {server_card: true}\nauth: {url: 'https://gw.example/x'}\n", "agents.server_card: needs auth.url"},
		{"listen: ''\nagents: {server_card: true}\nauth: {url: 'https://gw.example'}\n", "agents.server_card: nobody can fetch it"},
		{"agents: {hosts: ['https://h']}\n", `agents.hosts: must be names such as ferrule.example.com, without a port, got "https://h"`},
		{"agents: {hosts: ['h:80']}\n", `agents.hosts: must be names`},
		{"agents: {hosts: ['" + strings.Repeat("h", 254) + "']}\n", `agents.hosts: must be names`},
		{"auth: {server: {enabled: true}, url: 'http://gw.example'}\n", "auth.url: everybody on the way to http://gw.example could read the tokens"},
		{"auth: {server: {enabled: true}, url: 'https://gw.example/path'}\n", "auth.url: must be a URL without a path"},
		{"auth: {server: {enabled: true}, url: 'https://u:SECRET@gw.example'}\n", "auth.url: must be a URL without a path"},
		{"auth: {server: {enabled: true}, tokens: [{name: a, token: 0123456789abcdef}]}\nlisten: '0.0.0.0:1'\n", "auth.server: everybody on the network could read the tokens"},
		{"auth: {server: {enabled: true}}\nlisten: ''\n", "auth.server: agents and browsers cannot reach it"},
		{"auth: {server: {enabled: true, clients: [{id: a, redirects: ['https://a/']}]}}\n", "auth.server.clients[0]: must have either secret or secret_file"},
		{"dial_in: {listen: '0.0.0.0:3380', tls: {key: a.pem}}\n", "dial_in.tls: must have both cert and key, or neither"},
		{"dial_in: {tls: {cert: a.pem, key: a.pem}}\n", "dial_in.listen: must be set"},
		{"dial_in: {listen: '0.0.0.0:3380', url: 'http://h:3380', tls: {cert: a.pem, key: a.pem}}\n", "dial_in.url: must start with https://, because dial_in.tls is set"},
		{"cluster: {mode: join, secret: s, servers: ['nats://10.0.0.1:4222']}\n", "cluster.servers: nats://10.0.0.1:4222 is on another machine"},
		{"cluster: {mode: leaf, secret: s, servers: ['tls://10.0.0.1:7422', 'nats://me:word@h:7422']}\n", "cluster.servers: nats://…@h:7422 is on another machine"},
		{"listen: here\n", `listen: must be HOST:PORT, got "here"`},
		{"devices: {serial: [{port: COM3, baud: 1}]}\n", `devices.serial: port COM3: baud must be 50 to 12000000, got 1`},
		{"devices: {serial: [{port: COM3, name: x}], tcp: [{address: 'a:2', name: x}]}\n", `devices: duplicate name "x"`},
		{"devices: {tcp: [{address: here}]}\n", `devices.tcp: address "here": must be HOST:PORT`},
		{"devices: {tcp: [{address: 'a:1', name: x}, {address: 'a:2', name: x}]}\n", `devices: duplicate name "x"`},
		{"devices: {tcp: [{address: 'a:1', name: a__b}]}\n", `devices: name "a__b"`},
		{"polling: {fastest: 1ms}\n", "polling.fastest: must be between 10ms and 1h0m0s, got 1ms"},
		{"polling: {fastest: often}\n", `line 1: polling.fastest: must be a duration such as 30s, 5m, 12h or 7d, got "often"`},
		{"history: {size: 8}\n", "history.size: must be at least 16 MiB, got 8"},
		{"polling: {in_flight: 0}\n", "polling.in_flight: must be between 1 and 4096, got 0"},
		{"endpoints: [{name: home}]\n", "endpoints[0]: must have either url or file"},
		{"endpoints: [{name: home, url: 'wss://h/', file: f}]\n", "endpoints[0]: must have either url or file"},
		{"endpoints: [{name: home, url: 'https://h/?token=x'}]\n", "endpoints[0]: url: must be an address such as wss://"},
		{"endpoints: [{name: 'a:b', url: 'wss://h/'}]\n", `endpoints[0]: name "a:b"`},
		{"endpoints: [{name: a, url: 'wss://h/'}, {name: a, file: f}]\n", `endpoints: duplicate name "a"`},
		{"endpoints: [{name: a, file: f, limit: 100}]\n", "endpoints[0]: limit: must be from 4096 to 1048576, got 100"},
		{"telemetry: {metrics: false, readings: true}\n", "telemetry.readings: needs metrics: true"},
		{"telemetry: {traces: {ratio: 2}}\n", "telemetry.traces.ratio: must be from 0 to 1, got 2"},
		{"telemetry: {traces: {endpoint: 'localhost:4318'}}\n", "telemetry.traces.endpoint: must be a URL such as http://127.0.0.1:4318"},
		{"telemetry: {traces: {endpoints: x}}\n", `line 1: unknown key "endpoints"; did you mean endpoint?`},
		{"policy:\n  preset: strict\n", `line 2: policy.preset: must be open, careful, read-only, got "strict"`},
		{"policy:\n  presets: open\n", `line 2: unknown key "presets"; did you mean preset?`},
		{"policy:\n  agents:\n    local/claude: open\n", "line 2: policy.agents: local/claude must not have the preset open, which is milder than preset: careful. Any program on this machine can take that name"},
		{"policy: {groups: {family: anna}}\n", "line 1: "},
		{"devices: {tcp: [{address: 'a:1', name: gateway}]}\n", `devices: name "gateway" is reserved for the gateway`},
	} {
		if _, err := config.Parse([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q:\n got %v\nwant %s", test.text, err, test.want)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ferrule.yaml")
	if _, err := config.Load(path); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
	write(t, path, "overlays: mine\n")
	if _, err := config.Load(path); err == nil || !strings.Contains(err.Error(), "overlays: stat "+filepath.Join(dir, "mine")) {
		t.Errorf("got %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "mine"), 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path)
	if err != nil || c.Overlays != filepath.Join(dir, "mine") {
		t.Errorf("got %q, %v", c.Overlays, err)
	}
	if c.Policy.Dir != filepath.Join(dir, "policies") {
		t.Errorf("got %q", c.Policy.Dir)
	}
	write(t, path, "policy: {dir: rules}\n")
	if _, err := config.Load(path); err == nil || !strings.Contains(err.Error(), "policy.dir: stat "+filepath.Join(dir, "rules")) {
		t.Errorf("got %v", err)
	}
	write(t, path, "overlay: mine\n")
	if _, err := config.Load(path); err == nil || !strings.HasPrefix(err.Error(), path+": line 1: unknown key \"overlay\"; did you mean overlays?") {
		t.Errorf("got %v", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReadOverlays(t *testing.T) {
	dir := t.TempDir()
	if files, err := config.ReadOverlays(filepath.Join(dir, "none")); files != nil || err != nil {
		t.Errorf("got %v, %v", files, err)
	}
	write(t, filepath.Join(dir, "b.yaml"), "# the heater\nmatch: {device: heater}\ntools:\n  heat:\n    effect: endangers\n    deadline: 5s\n    input: {properties: {watts: {type: integer, maximum: 2000}}}\n")
	write(t, filepath.Join(dir, "a.json"), `{"tools":{"look":{"effect":"reads"}}}`)
	write(t, filepath.Join(dir, "readme.txt"), "not an overlay")
	files, err := config.ReadOverlays(dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	if heat := files[1].Tools["heat"]; heat.Effect != ferrule.Endangers || heat.Deadline != ferrule.Duration(5*time.Second) || !strings.Contains(string(heat.Input), `2000`) {
		t.Errorf("got %+v", files[1])
	}
	for text, want := range map[string]string{
		"tools: {a: {efect: reads}}\n": `c.yaml: line 1: unknown key "efect"; did you mean effect?`,
		"tools: {a: [}\n":              "c.yaml: line 1: ",
		"tools:\n  self.camera.take_photo:\n    effect: harmless\n":      `c.yaml: line 3: tools.self.camera.take_photo.effect: must be reads, changes or endangers, got "harmless"`,
		"tools:\n  look:\n    effect: reads\n    idempotent: often\n":    "c.yaml: line 4: idempotent must be true or false",
		"tools:\n  look: {effect: reads}\n  heat:\n    deadline: soon\n": `c.yaml: line 4: must be a duration such as 30s, 5m, 12h or 7d, got "soon"`,
		"polls:\n  light:\n    ring: {interval: 1s, size: 1}\n":          "c.yaml: line 3: polls.light.ring.size: must be from 2 to 4096, got 1",
		"polls:\n  light:\n    ring:\n      size: many\n":                "c.yaml: line 4: size must be a whole number",
		"match:\n  kind: xyz\n":                                          `c.yaml: line 2: match.kind: must be 12 to 64 hexadecimal digits, got "xyz"`,
	} {
		write(t, filepath.Join(dir, "c.yaml"), text)
		if _, err := config.ReadOverlays(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}

// TestDocumentedOverlay parses the example of the reference page.
func TestDocumentedOverlay(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/reference/overlays.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(doc), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	file, err := config.ParseOverlay([]byte(example))
	if err != nil || len(file.Tools) != 3 {
		t.Errorf("%+v, %v", file, err)
	}
}

// TestDocumentedPolls parses the example of the page about polling.
func TestDocumentedPolls(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/how-to/change-polling.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(doc), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	file, err := config.ParseOverlay([]byte(example))
	if err != nil || len(file.Polls) != 5 || file.Polls["current"].Ring.Size != 20 || *file.Polls["light_threshold"].Every != 0 {
		t.Errorf("%+v, %v", file, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(config.Sample)
	f.Add([]byte("devices: {tcp: [{address: 'a:1', name: x}]}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := config.Parse(data); err == nil {
			if err := c.Check(); err != nil {
				t.Errorf("parsed config does not pass Check: %v", err)
			}
		}
		config.ParseOverlay(data)
	})
}

// TestTokens checks tokens in the config and in files.
func TestTokens(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "ferrule.yaml")
	text := "listen: 0.0.0.0:3377\nauth:\n  tokens:\n    - {name: a, token: 0123456789abcdef}\n    - {name: b, file: b.token, scopes: [change], devices: [lamp-*, robot]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cfg.Tokens(); err == nil || !strings.Contains(err.Error(), "auth.tokens[1].file") {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b.token"), []byte("fedcba9876543210\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := cfg.Tokens()
	if err != nil {
		t.Fatal(err)
	}
	verify := func(secret string) (ferrule.Principal, error) {
		c, err := tokens.Verify(t.Context(), secret, identity.Request{})
		return c.Who, err
	}
	if who, err := verify("fedcba9876543210"); err != nil || who.Name != "b" || who.Scopes.String() != "read change" || who.Devices != "lamp-*,robot" {
		t.Errorf("%v, %v", who, err)
	}
	if who, err := verify("0123456789abcdef"); err != nil || who.Scopes.String() != "read change endanger metrics" || who.Devices != "" {
		t.Errorf("%v, %v", who, err)
	}
	for _, bad := range []string{"{name: a}", "{name: a, token: x, file: y}", "{name: a, file: y, scopes: [write]}", "{name: a, file: y, devices: ['[']}"} {
		if _, err := config.Parse([]byte("auth: {tokens: [" + bad + "]}\n")); err == nil || !strings.Contains(err.Error(), "auth.tokens[0]") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestEndpoints checks that the URL of an endpoint does not appear in errors.
func TestEndpoints(t *testing.T) {
	if _, err := config.Parse([]byte("endpoints:\n  - url: wss://me:word@h/?token=secret\n    nme: a\n")); err == nil || !strings.Contains(err.Error(), "line 3: unknown key") || strings.Contains(err.Error(), "word") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "ferrule.yaml")
	write(t, file, "endpoints:\n  - {name: a, url: 'ws://h/?token=x', limit: 65536}\n  - {name: b, file: b.url, ca: ca.pem}\n")
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cfg.EndpointConfigs(); err == nil || !strings.Contains(err.Error(), "endpoints[1].file") {
		t.Errorf("got %v", err)
	}
	write(t, filepath.Join(dir, "b.url"), "https://h/?token=secret\n")
	if _, err := cfg.EndpointConfigs(); err == nil || !strings.Contains(err.Error(), "endpoints[1]: url: must be") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	write(t, filepath.Join(dir, "b.url"), "wss://h/?token=secret\n")
	got, err := cfg.EndpointConfigs()
	want := []endpoint.Config{
		{Name: "a", URL: "ws://h/?token=x", Limit: 65536},
		{Name: "b", URL: "wss://h/?token=secret", Limit: endpoint.DefaultLimit, CA: filepath.Join(dir, "ca.pem")},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestIssuers: external issuers are checked, and their secrets come from files.
func TestIssuers(t *testing.T) {
	for text, want := range map[string]string{
		"[{name: a, url: 'https://a'}, {name: b, url: 'https://b'}]":                           "",
		"[{name: oauth, url: 'https://a'}]":                                                    "auth.issuers[0].name: oauth is the name of other callers",
		"[{url: 'https://a'}]":                                                                 "auth.issuers[0].name: ",
		"[{name: a, url: 'http://a'}]":                                                         "auth.issuers[0].url: must begin with https://",
		"[{name: a, url: 'https://a'}, {name: a, url: 'https://b'}]":                           "auth.issuers[1].name: a is the name of another issuer",
		"[{name: a, url: 'https://a'}, {name: b, url: 'https://a'}]":                           "auth.issuers[1].url: another issuer has this URL",
		"[{name: a, url: 'https://a', groups: {x: y}}]":                                        "auth.issuers[0].groups: need groups_claim",
		"[{name: a, url: 'https://a', client_id: x, client_secret: s, client_secret_file: f}]": "auth.issuers[0]: must have client_secret or client_secret_file, not both",
		"[{name: a, url: 'https://a', client_secret_file: f}]":                                 "auth.issuers[0].client_secret_file: needs client_id",
	} {
		_, err := config.Parse([]byte("auth: {issuers: " + text + "}\n"))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", text, err)
		}
	}
	path := filepath.Join(t.TempDir(), "ferrule.yaml")
	write(t, path, "auth: {issuers: [{name: a, url: 'https://a', client_id: x, client_secret_file: a.secret, ca: ca.pem, groups_claim: groups, groups: {Staff: operator, Lab: lab}}]}\n")
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.IssuerConfigs(); err == nil || !strings.HasPrefix(err.Error(), "auth.issuers[0].client_secret_file: ") {
		t.Errorf("without the file: %v", err)
	}
	write(t, filepath.Join(filepath.Dir(path), "a.secret"), secret+"\n")
	all, err := c.IssuerConfigs()
	if err != nil || len(all) != 1 || all[0].ClientSecret != secret || all[0].CA != filepath.Join(filepath.Dir(path), "ca.pem") || all[0].Groups["Staff"] != "operator" {
		t.Errorf("got %+v, %v", all, err)
	}
	if got := c.PolicyConfig().Claimed; !reflect.DeepEqual(got, []string{"lab", "operator", "owner", "viewer"}) {
		t.Errorf("rules may name the groups %v", got)
	}
}
